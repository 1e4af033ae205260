// Matrix products and attention on a GPU, in TFLOP/s and as a share of the chip's dense 16-bit peak:
//   matmul/LAYER/PASS/TYPE/first|best   layers of GPT-3 175B and Llama-3 70B, tensor 8, 4,096 tokens; forward, dgrad,
//   wgrad
//                                       (bf16 into fp32, added); by the first algorithm that cuBLASLt proposes, and by
//                                       the fastest of up to eight; the label names it
//   flash/SHAPE/forward|backward        bf16, causal: FLOPs counted as the two (five) half-filled products
// Times are a stream's between two events around enough calls for 20 ms, after three; operands are normal random
// numbers and rotate among sets of 256 MB in all. Nothing is printed but the reason where there is no GPU.
//
// What to expect of flash, reckoned before any run from the instructions of the inner loops (none has been measured
// yet; to be checked). A step of a forward warp at head_dim 128 (32 queries x 48 keys): 192 mma.m16n8k16, 64
// ldmatrix.x4, 48 ex2, about 320 fp32 and 150 integer operations; at 64 (32 x 64): 128, 40, 64. A step of the keys
// kernel of the backward pass at 128 (16 keys x 32 queries): 128 mma, 80 ldmatrix; at 64 (32 x 32): 128, 48; of the
// queries kernel at 128: 96, 64. An mma takes 8 cycles of an A100's quarter of a multiprocessor and 6.4 of an H100's,
// where mma.sync reaches 63% of wgmma's rate (Luo et al. 2024, arXiv 2402.13499); ldmatrix.x4 takes 4 cycles of the
// whole multiprocessor's shared memory. So on an H100 the forward pass is bounded by mma and shared memory alike (at
// 128: 1,221 and 1,216 cycles a step) and the backward pass at 128 by shared memory (1,408 against 814 cycles). With
// half of the softmax hidden:
//                           A100, of 312 TFLOP/s         H100, of 989 TFLOP/s
//   forward  64 / 128          50% / 60%                    33% / 40%
//   backward 64 / 128          40% / 40%                    25% / 23%      (7 products done, 5 counted)
// More than this on an H100 takes wgmma and tensor-map copies (FlashAttention-3), which these kernels do not use.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/stream_timer.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr std::size_t kRotatedBytes = std::size_t{256} << 20;

struct Gpu {
  DeviceFacts facts = device_facts(0);
  Stream stream;
  StreamTimer timer{stream};
  DeviceMemory workspace{device_workspace_bytes(facts.major)};
  CudaDevice device{stream, {}, workspace.data(), workspace.bytes()};

  // Dense 16-bit FLOP/s with fp32 sums (NVIDIA's A100, H100 and B200 data sheets, per multiprocessor and cycle); 0 if
  // the chip is none of them.
  double peak() const {
    const double each = facts.major == 8 && facts.minor == 0 ? 2048
                        : facts.major == 9                   ? 4096
                        : facts.major == 10                  ? 8192
                                                             : 0;
    return each * facts.multiprocessors * static_cast<double>(facts.clock_khz) * 1e3;
  }
};

// `n` normal numbers of a 16-bit type or fp32: a million of them, repeated.
DeviceMemory normal(Gpu& gpu, std::int64_t n, DType type) {
  std::minstd_rand engine(7);
  std::normal_distribution<float> distribution;
  const std::int64_t drawn = std::min<std::int64_t>(n, 1 << 20);
  std::vector<float> numbers(static_cast<std::size_t>(drawn));
  for (float& x : numbers) x = distribution(engine);
  const DeviceMemory wide(numbers.size() * sizeof(float));
  copy(wide.data(), numbers.data(), wide.bytes(), gpu.stream);
  DeviceMemory out(static_cast<std::size_t>(n * size_of(type)));
  for (std::int64_t at = 0; at < n; at += drawn)
    gpu.device.copy(std::min(drawn, n - at), {wide.data(), DType::f32}, {out.as<char>() + at * size_of(type), type});
  gpu.stream.synchronize();
  return out;
}

// Seconds a call takes, calls numbered so that they can take their operands in turn.
double seconds(Gpu& gpu, const std::function<void(int)>& call) {
  for (int i = 0; i < 3; ++i) call(i);
  gpu.stream.synchronize();
  const auto time = [&](int calls) {
    return gpu.timer.time([&] {
      for (int i = 0; i < calls; ++i) call(i);
    });
  };
  const double once = std::max(time(1), 1e-6);
  const int calls = std::clamp(static_cast<int>(0.02 / once), 1, 10000);
  return time(calls) / calls;
}

void report(benchmark::State& state, Gpu& gpu, double flops, const std::function<void(int)>& call) {
  for (auto _ : state) state.SetIterationTime(seconds(gpu, call));
  state.counters["TFLOP/s"] = benchmark::Counter(flops / 1e12, benchmark::Counter::kIsIterationInvariantRate);
  if (gpu.peak() > 0)
    state.counters["of_peak"] = benchmark::Counter(flops / gpu.peak(), benchmark::Counter::kIsIterationInvariantRate);
}

struct Layer {
  const char* name;
  std::int64_t out, in;  // of this rank
};
constexpr Layer kLayers[] = {{"gpt3_qkv", 4608, 12288},   {"gpt3_attention_out", 12288, 1536},
                             {"gpt3_up", 6144, 12288},    {"gpt3_down", 12288, 6144},
                             {"llama70_qkv", 1280, 8192}, {"llama70_gate_up", 7168, 8192},
                             {"llama70_down", 8192, 3584}};
constexpr std::int64_t kTokens = 4096;

void matmul(benchmark::State& state, Gpu& gpu, const MatmulProblem& p, bool best) {
  const auto bytes_of = [](const MatrixLayout& l) { return l.batch_stride * size_of(l.type); };
  const auto set_bytes = static_cast<std::size_t>(bytes_of(p.a) + bytes_of(p.b) + bytes_of(p.c));
  const std::size_t sets = std::clamp<std::size_t>(kRotatedBytes / set_bytes, 1, 16) + 1;
  const auto type_of_bytes = [](MatrixType t) {
    return size_of(t) == 4 ? DType::f32 : t == MatrixType::f16 ? DType::f16 : DType::bf16;
  };
  std::vector<DeviceMemory> a, b, c;
  for (std::size_t i = 0; i < sets; ++i) {
    a.push_back(normal(gpu, p.a.batch_stride, type_of_bytes(p.a.type)));
    b.push_back(normal(gpu, p.b.batch_stride, type_of_bytes(p.b.type)));
    c.push_back(normal(gpu, p.c.batch_stride, type_of_bytes(p.c.type)));
  }
  Blas& blas = gpu.device.blas();
  const auto run = [&](std::size_t algorithm, int i) {
    const std::size_t set = static_cast<std::size_t>(i) % sets;
    MatmulOperands x;
    x.a = a[set].data();
    x.b = b[set].data();
    x.c = c[set].data();
    blas.run(p, x, algorithm, gpu.stream.get());
  };
  const std::vector<Algorithm> algorithms = blas.algorithms(p);
  std::size_t chosen = 0;
  double least = 1e9;
  for (std::size_t i = 0; best && i < algorithms.size(); ++i) {
    const double took = seconds(gpu, [&](int call) { run(i, call); });
    if (took < least) {
      least = took;
      chosen = i;
    }
  }
  report(state, gpu, p.flops(), [&](int i) { run(chosen, i); });
  state.SetLabel(algorithms[chosen].describe());
}

void add_matmuls(Gpu& gpu) {
  struct Kind {
    const char* name;
    DType type;
    bool tf32;
  };
  for (const Kind kind : {Kind{"bf16", DType::bf16, false}, Kind{"f16", DType::f16, false},
                          Kind{"tf32", DType::f32, true}, Kind{"f32", DType::f32, false}}) {
    for (const Layer& l : kLayers) {
      if (kind.type != DType::bf16 && std::string(l.name) != "gpt3_up") continue;
      const std::pair<const char*, Gemm> passes[] = {{"forward", {kTokens, l.out, l.in, false, true, false}},
                                                     {"dgrad", {kTokens, l.in, l.out, false, false, false}},
                                                     {"wgrad", {l.out, l.in, kTokens, true, false, true}}};
      for (const auto& [pass, shape] : passes) {
        const DType result = shape.accumulate ? DType::f32 : kind.type;
        const MatmulProblem p = gemm_problem(shape, kind.type, kind.type, false, result, kind.tf32);
        for (const bool best : {false, true}) {
          const std::string name =
              std::string("matmul/") + l.name + "/" + pass + "/" + kind.name + (best ? "/best" : "/first");
          benchmark::RegisterBenchmark(name.c_str(), [&gpu, p, best](benchmark::State& s) { matmul(s, gpu, p, best); })
              ->UseManualTime()
              ->Iterations(5)
              ->Unit(benchmark::kMicrosecond);
        }
      }
    }
  }
}

void flash(benchmark::State& state, Gpu& gpu, const AttentionShape& s, bool backward) {
  const std::int64_t rows = s.seq * s.micro_batch;
  const std::int64_t qkv_size = rows * (s.heads + 2 * s.kv_heads) * s.head_dim, out_size = rows * s.heads * s.head_dim;
  const DeviceMemory qkv = normal(gpu, qkv_size, DType::bf16), d_out = normal(gpu, out_size, DType::bf16);
  const DeviceMemory out(static_cast<std::size_t>(2 * out_size)), d_qkv(static_cast<std::size_t>(2 * qkv_size)),
      logsumexp(static_cast<std::size_t>(4 * rows * s.heads));
  const auto forward = [&](int) {
    gpu.device.flash_forward(s, {}, {qkv.data(), DType::bf16}, {out.data(), DType::bf16}, logsumexp.as<float>());
  };
  forward(0);
  const double product =
      2.0 * static_cast<double>(s.micro_batch * s.heads * s.seq * s.seq * s.head_dim) / (s.causal ? 2 : 1);
  if (!backward) return report(state, gpu, 2 * product, forward);
  report(state, gpu, 5 * product, [&](int) {
    gpu.device.flash_backward(s, {}, {d_out.data(), DType::bf16}, {qkv.data(), DType::bf16}, {out.data(), DType::bf16},
                              logsumexp.as<float>(), {d_qkv.data(), DType::bf16});
  });
}

void add_flash(Gpu& gpu) {
  const std::pair<const char*, AttentionShape> shapes[] = {
      {"gpt2_64", {8, 12, 12, 1024, 64, true}},   {"gpt3_128", {2, 12, 12, 2048, 128, true}},
      {"llama_128", {1, 32, 8, 8192, 128, true}}, {"full_128", {2, 16, 16, 4096, 128, false}},
      {"80", {4, 16, 16, 2048, 80, true}},        {"96", {4, 16, 16, 2048, 96, true}}};
  for (const auto& [shape_name, shape] : shapes) {
    for (const bool backward : {false, true}) {
      const std::string name = std::string("flash/") + shape_name + (backward ? "/backward" : "/forward");
      benchmark::RegisterBenchmark(
          name.c_str(), [&gpu, s = shape, backward](benchmark::State& state) { flash(state, gpu, s, backward); })
          ->UseManualTime()
          ->Iterations(5)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace rehearse::kernels::cuda

int main(int argc, char** argv) {
  using namespace rehearse::kernels::cuda;
  benchmark::Initialize(&argc, argv);
  if (const std::string reason = why_no_device(); !reason.empty()) {
    std::printf("no CUDA device: %s\n", reason.c_str());
    return 0;
  }
  Gpu gpu;
  std::string reason;
  if (find_blas_api(&reason))
    add_matmuls(gpu);
  else
    std::printf("no matrix products: %s\n", reason.c_str());
  add_flash(gpu);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
