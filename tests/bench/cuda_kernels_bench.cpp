// CUDA kernels against what bounds them: memory. Without a GPU it says so and ends well.
//   stream/NAME/TYPE[/COLS]   a kernel on 64 Mi elements (vocabularies and tables as named): the bytes it must move
//   (each
//                             operand once, as stated at the head of its file) a second; of_copy is their share of the
//                             bandwidth of a device-to-device copy (bytes read plus written) timed beside it
//   flash/PART/TYPE/SHAPE     fused causal attention, SHAPE as batch x tokens, heads/key heads x width: operations a
//                             second, of which only those on and before the diagonal count (half of 4 or 10 batch heads
//                             tokens^2 width). PART forward and backward are ours, forward-cudnn and backward-cudnn the
//                             library's, where there is one
// Method: operands are random numbers, in as many sets as together exceed four times the second-level cache, used in
// turn. A graph of calls is launched between two events, after one launch that is not counted, so that launch costs
// stay out; 15 such measurements alternate with a copy's, and the medians are compared. Clocks are left as they are.
//   rehearse-cuda-bench --benchmark_filter=norm --benchmark_format=json
#include <benchmark/benchmark.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/sdpa.h"
#include "kernels/cuda/stream_timer.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr std::int64_t kElements = std::int64_t{1} << 26;
constexpr int kMeasurements = 15, kCalls = 8;

enum class Fill : unsigned char { numbers, squares, ones, ids, zeros };
struct Operand {
  std::int64_t elements;
  DType type;
  Fill fill = Fill::numbers;
};
using Pointers = std::vector<void*>;
struct Case {
  std::string name;
  double bytes;  // that must be moved
  std::vector<Operand> operands;
  std::function<void(CudaDevice&, const Pointers&)> run;
  double flops = 0;  // 0: bound by memory alone
};

std::size_t bytes_of(const Operand& o) {
  return static_cast<std::size_t>(o.elements * size_of(o.type));
}

// A stretch of elements as the device holds them, repeated over an operand.
std::vector<std::byte> pattern(const Operand& o) {
  constexpr std::int64_t kPattern = 1 << 20;
  const std::int64_t n = std::min(o.elements, kPattern);
  std::vector<std::byte> bytes(static_cast<std::size_t>(n * size_of(o.type)));
  std::minstd_rand engine(17);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < n; ++i) {
    float x = o.fill == Fill::zeros ? 0.0F : o.fill == Fill::ones ? 1.0F : normal(engine);
    if (o.fill == Fill::squares) x *= x;
    const __nv_bfloat16 half = __float2bfloat16_rn(x);
    const auto id = static_cast<std::int32_t>(engine() % 32000);
    const std::uint8_t byte = 1;
    const void* from = o.type == DType::bf16  ? static_cast<const void*>(&half)
                       : o.type == DType::i32 ? static_cast<const void*>(&id)
                       : o.type == DType::u8  ? static_cast<const void*>(&byte)
                                              : static_cast<const void*>(&x);
    std::memcpy(bytes.data() + i * size_of(o.type), from, static_cast<std::size_t>(size_of(o.type)));
  }
  return bytes;
}

class Bench {
 public:
  Bench()
      : workspace_(device_workspace_bytes(device_facts(0).major)),
        device_(stream_, {}, workspace_.data(), workspace_.bytes()) {
    const StepValues values{.lr = 1e-6F, .correction1 = 0.1F, .correction2 = 0.05F};
    step_ = DeviceMemory(sizeof values);
    copy(step_.data(), &values, sizeof values, stream_);
    stream_.synchronize();
  }
  const StepValues* step() const { return step_.as<StepValues>(); }

  void measure(benchmark::State& state, const Case& c) {
    std::size_t set_bytes = 0;
    for (const Operand& o : c.operands) set_bytes += bytes_of(o);
    const auto l2 = static_cast<std::size_t>(device_facts(0).l2_bytes);
    const std::size_t sets = std::max<std::size_t>(2, 4 * l2 / set_bytes + 1);
    std::vector<DeviceMemory> memory;
    std::vector<Pointers> operands(sets);
    for (Pointers& set : operands) {
      for (const Operand& o : c.operands) {
        memory.emplace_back(bytes_of(o));
        fill(memory.back(), o);
        set.push_back(memory.back().data());
      }
    }
    const DeviceMemory from(kCopyBytes), to(kCopyBytes);
    fill(from, {static_cast<std::int64_t>(kCopyBytes / 4), DType::f32});
    const Graph kernels(stream_, [&] {
      for (int call = 0; call < kCalls; ++call) c.run(device_, operands[static_cast<std::size_t>(call) % sets]);
    });
    const Graph copies(stream_, [&] { copy(to.data(), from.data(), kCopyBytes, stream_); });
    std::vector<double> kernel_ms, copy_ms;
    for (int i = -1; i < kMeasurements; ++i) {
      const double k = timed(kernels) / kCalls, m = timed(copies);
      if (i < 0) continue;
      kernel_ms.push_back(k);
      copy_ms.push_back(m);
    }
    const double seconds = median(kernel_ms) / 1e3, copy_rate = 2.0 * kCopyBytes / (median(copy_ms) / 1e3);
    for (auto _ : state) state.SetIterationTime(seconds);
    if (c.flops > 0) {
      state.counters["FLOP/s"] = c.flops / seconds;
    } else {
      state.counters["B/s"] = c.bytes / seconds;
      state.counters["copy_B/s"] = copy_rate;
      state.counters["of_copy"] = c.bytes / seconds / copy_rate;
    }
    state.counters["spread"] = (kernel_ms.back() - kernel_ms.front()) / median(kernel_ms);  // sorted by median
  }

 private:
  static constexpr std::size_t kCopyBytes = std::size_t{512} << 20;

  static double median(std::vector<double>& x) {
    std::sort(x.begin(), x.end());
    return x[x.size() / 2];
  }
  double timed(const Graph& graph) {
    return 1e3 * timer_.time([&] { graph.launch(stream_); });
  }
  void fill(const DeviceMemory& memory, const Operand& o) {
    const std::vector<std::byte> bytes = pattern(o);
    for (std::size_t done = 0; done < memory.bytes(); done += bytes.size())
      copy(memory.as<std::byte>() + done, bytes.data(), std::min(bytes.size(), memory.bytes() - done), stream_);
    stream_.synchronize();
  }

  Stream stream_;
  StreamTimer timer_{stream_};
  DeviceMemory workspace_, step_;
  CudaDevice device_;
};

float* f(void* p) {
  return static_cast<float*>(p);
}
std::int32_t* ids(void* p) {
  return static_cast<std::int32_t*>(p);
}
std::uint8_t* mask(void* p) {
  return static_cast<std::uint8_t*>(p);
}

std::vector<Case> elementwise_cases(DType t) {
  constexpr std::int64_t n = kElements;
  const auto size = static_cast<double>(n * size_of(t));
  const Operand x{n, t};
  using D = CudaDevice;
  using P = Pointers;
  return {
      {"copy",
       2 * size,
       {x, x},
       [=](D& d, const P& p) {
         d.copy(n, {p[0], t}, {p[1], t});
       }},
      {"add",
       3 * size,
       {x, x, x},
       [=](D& d, const P& p) {
         d.add(n, {p[0], t}, {p[1], t}, {p[2], t});
       }},
      {"accumulate_f32",
       size + 8.0 * n,
       {x, {n, DType::f32}},
       [=](D& d, const P& p) {
         d.accumulate(n, {p[0], t}, f(p[1]));
       }},
      {"scale",
       2 * size,
       {x, x},
       [=](D& d, const P& p) {
         d.scale(n, 0.5F, {p[0], t}, {p[1], t});
       }},
      {"fill",
       size,
       {x},
       [=](D& d, const P& p) {
         d.fill(n, 0.5F, {p[0], t});
       }},
      {"gelu",
       2 * size,
       {x, x},
       [=](D& d, const P& p) {
         d.activation_forward(Unary::gelu, n, {p[0], t}, {p[1], t});
       }},
      {"gelu_backward",
       3 * size,
       {x, x, x},
       [=](D& d, const P& p) {
         d.activation_backward(Unary::gelu, n, {p[0], t}, {p[1], t}, {p[2], t});
       }},
      {"relu",
       2 * size,
       {x, x},
       [=](D& d, const P& p) {
         d.activation_forward(Unary::relu, n, {p[0], t}, {p[1], t});
       }},
      {"dropout_backward",
       2 * size + n,
       {x, {n, DType::u8}, x},
       [=](D& d, const P& p) {
         d.dropout_backward(n, 0.1, {p[0], t}, mask(p[1]), {p[2], t});
       }},
      {"sum_squares",
       size,
       {x, {64, DType::f32, Fill::zeros}},
       [=](D& d, const P& p) {
         d.sum_squares(n, {p[0], t}, f(p[1]));
       }},
  };
}

std::vector<Case> row_cases(DType t, std::int64_t cols, const StepValues* step) {
  const std::int64_t n = kElements, rows = n / cols;
  const auto size = static_cast<double>(n * size_of(t));
  const Operand x{n, t}, row{cols, t}, sums{cols, DType::f32}, stats{2 * rows, DType::f32, Fill::ones};
  const DropoutSite site{.probability = 0.1, .seed = 5, .step = step, .micro_batch = 4};
  const AttentionShape heads{4, cols / 64, cols / 64, rows / 4, 64};
  const std::int64_t qkv = 3 * n;
  using D = CudaDevice;
  using P = Pointers;
  return {
      {"layernorm",
       2 * size,
       {x, row, row, x, stats},
       [=](D& d, const P& p) {
         d.norm_forward(false, rows, cols, 1e-5, {p[0], t}, {p[1], t}, {p[2], t}, {p[3], t}, f(p[4]));
       }},
      {"layernorm_backward",
       4 * size,
       {x, x, stats, row, x, x},
       [=](D& d, const P& p) {
         d.norm_backward_input(false, rows, cols, {p[0], t}, {p[1], t}, f(p[2]), {p[3], t}, {p[4], t}, {p[5], t});
       }},
      {"layernorm_weights",
       2 * size,
       {x, x, stats, sums, sums},
       [=](D& d, const P& p) {
         d.norm_backward_weight(false, rows, cols, {p[0], t}, {p[1], t}, f(p[2]), f(p[3]), f(p[4]));
       }},
      {"rmsnorm",
       2 * size,
       {x, row, x, stats},
       [=](D& d, const P& p) {
         d.norm_forward(true, rows, cols, 1e-5, {p[0], t}, {p[1], t}, nullptr, {p[2], t}, f(p[3]));
       }},
      {"bias_grad",
       size,
       {x, sums},
       [=](D& d, const P& p) {
         d.bias_grad(rows, cols, {p[0], t}, f(p[1]));
       }},
      {"bias_dropout_add",
       3 * size + n,
       {x, row, x, x, {n, DType::u8}},
       [=](D& d, const P& p) {
         d.bias_dropout_add(rows, cols, site, {p[0], t}, {p[1], t}, {p[2], t}, {p[3], t}, mask(p[4]));
       }},
      {"dropout",
       2 * size + n,
       {x, x, {n, DType::u8}},
       [=](D& d, const P& p) {
         d.dropout(rows, cols, site, {p[0], t}, {p[1], t}, mask(p[2]));
       }},
      {"swiglu",
       1.5 * size,
       {x, x},
       [=](D& d, const P& p) {
         d.swiglu_forward(rows, cols / 2, {p[0], t}, nullptr, {p[1], t});
       }},
      {"swiglu_backward",
       2.5 * size,
       {x, x, x},
       [=](D& d, const P& p) {
         d.swiglu_backward(rows, cols / 2, {p[0], t}, {p[1], t}, nullptr, {p[2], t});
       }},
      {"add_position",
       2 * size + size / 4,
       {x, {n / 4, t}, x},
       [=](D& d, const P& p) {
         d.add_position(rows, cols, 4, 0, {p[0], t}, {p[1], t}, {p[2], t});
       }},
      {"position_grad",
       size + 2.0 * n,
       {x, {n / 4, DType::f32}},
       [=](D& d, const P& p) {
         d.position_grad(rows, cols, 4, 0, {p[0], t}, f(p[1]));
       }},
      {"rope",
       4 * size,
       {{qkv, t}},
       [=](D& d, const P& p) {
         d.rope(heads, 0, false, {p[0], t});
       }},
      {"embedding",
       2 * size,
       {{rows, DType::i32}, {32000 * cols, t}, x},
       [=](D& d, const P& p) {
         d.embedding_forward(rows, 32000, cols, 0, ids(p[0]), {p[1], t}, {p[2], t});
       }},
  };
}

// Vocabularies of Llama 2 and, at odd addresses row after row, GPT-2; a table of 32,000 tokens met 16,384 at a time.
std::vector<Case> vocabulary_cases(DType t, std::int64_t cols) {
  const std::int64_t rows = kElements / cols;
  const auto size = static_cast<double>(rows * cols * size_of(t));
  const Operand x{rows * cols, t}, targets{rows, DType::i32}, stats{2 * rows, DType::f32, Fill::ones};
  using D = CudaDevice;
  using P = Pointers;
  return {
      {"cross_entropy",
       size,
       {x, targets, stats, {64, DType::f32, Fill::zeros}},
       [=](D& d, const P& p) {
         d.cross_entropy_forward(rows, cols, cols, 1e-4, {p[0], t}, ids(p[1]), f(p[2]), f(p[3]));
       }},
      {"cross_entropy_backward",
       2 * size,
       {x, targets, stats, x},
       [=](D& d, const P& p) {
         d.cross_entropy_backward(rows, cols, cols, 0, 1e-4, nullptr, {p[0], t}, ids(p[1]), f(p[2]), 2, f(p[2]) + 1, 2,
                                  {p[3], t});
       }},
  };
}

std::vector<Case> training_cases(DType t, const StepValues* step) {
  constexpr std::int64_t n = kElements, cols = 4096, tokens = 16384;
  const Operand g{n, t}, w{n, DType::f32}, v{n, DType::f32, Fill::squares};
  const bool own = t == DType::f32;
  const auto size = static_cast<double>(size_of(t));
  using D = CudaDevice;
  using P = Pointers;
  return {
      {"adamw",
       n * (24 + (own ? 4 : 2 * size)),
       {g, {own ? 64 : n, t}, w, w, v},
       [=](D& d, const P& p) {
         const AdamW rule{.weight_decay = 0.1, .step = step};
         d.adamw(n, rule, {p[0], t}, nullptr, own ? Out(f(p[2])) : Out(p[1], t), own ? nullptr : f(p[2]), f(p[3]),
                 f(p[4]));
       }},
      {"sgd_momentum",
       n * (16 + (own ? 4 : 2 * size)),
       {g, {own ? 64 : n, t}, w, w},
       [=](D& d, const P& p) {
         const Sgd rule{.momentum = 0.9, .step = step};
         d.sgd(n, rule, {p[0], t}, nullptr, own ? Out(f(p[2])) : Out(p[1], t), own ? nullptr : f(p[2]), f(p[3]));
       }},
      {"mse",
       n * (size + 4),
       {g, w, {64, DType::f32, Fill::zeros}},
       [=](D& d, const P& p) {
         d.mse_forward(n, 1e-6, {p[0], t}, f(p[1]), f(p[2]));
       }},
      {"mse_backward",
       n * (2 * size + 4),
       {g, w, g},
       [=](D& d, const P& p) {
         d.mse_backward(n, 1e-6, nullptr, {p[0], t}, f(p[1]), {p[2], t});
       }},
      // Each token's row read, its row of the table read and written; about 12,800 rows of 32,000 are met.
      {"embedding_backward",
       tokens * cols * size + 8.0 * 12800 * cols,
       {{tokens * cols, t}, {tokens, DType::i32}, {32000 * cols, DType::f32}},
       [=](D& d, const P& p) {
         d.embedding_backward(tokens, 32000, cols, 0, {p[0], t}, ids(p[1]), f(p[2]));
       }},
  };
}

// cuDNN's attention on the bench's device; null, and a line that says why, where there is none.
std::shared_ptr<Sdpa> library_attention() {
  std::string reason;
  std::shared_ptr<Sdpa> sdpa = Sdpa::load(&reason);
  if (!sdpa) std::fprintf(stderr, "no attention of cuDNN: %s\n", reason.c_str());
  return sdpa;
}

// Shapes of GPT-2 (124M and 1.5B), Llama with grouped keys, and a wide head.
std::vector<Case> attention_cases(DType t, const std::shared_ptr<Sdpa>& library) {
  std::vector<Case> cases;
  for (const AttentionShape& s : {AttentionShape{16, 12, 12, 1024, 64}, AttentionShape{4, 25, 25, 1024, 64},
                                  AttentionShape{4, 32, 4, 2048, 64}, AttentionShape{4, 16, 16, 2048, 128}}) {
    const std::int64_t rows = s.micro_batch * s.seq, width = s.heads * s.head_dim;
    const std::string shape = "/" + std::string(name_of(t)) + "/" + std::to_string(s.micro_batch) + "x" +
                              std::to_string(s.seq) + "," + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) +
                              "x" + std::to_string(s.head_dim);
    const double product = 2.0 * static_cast<double>(rows * width * s.seq) / 2;
    const Operand qkv{rows * (s.heads + 2 * s.kv_heads) * s.head_dim, t}, out{rows * width, t},
        logsumexp{rows * s.heads, DType::f32};
    cases.push_back({"forward" + shape,
                     0,
                     {qkv, out, logsumexp},
                     [=](CudaDevice& d, const Pointers& p) {
                       d.flash_forward(s, {}, {p[0], t}, {p[1], t}, f(p[2]));
                     },
                     2 * product});
    cases.push_back({"backward" + shape,
                     0,
                     {qkv, out, logsumexp, out, qkv},
                     [=](CudaDevice& d, const Pointers& p) {
                       d.flash_backward(s, {}, {p[3], t}, {p[0], t}, {p[1], t}, f(p[2]), {p[4], t});
                     },
                     5 * product});
    if (!library) continue;
    try {
      for (const Sdpa::Pass pass : {Sdpa::Pass::forward, Sdpa::Pass::backward}) library->prepare(pass, s, t);
    } catch (const DeviceError& error) {
      std::fprintf(stderr, "%s: %s\n", shape.c_str(), error.what());
      continue;
    }
    cases.push_back({"forward-cudnn" + shape,
                     0,
                     {qkv, out, logsumexp},
                     [=](CudaDevice& d, const Pointers& p) {
                       library->forward(s, {p[0], t}, {p[1], t}, f(p[2]), d.stream().get());
                     },
                     2 * product});
    cases.push_back({"backward-cudnn" + shape,
                     0,
                     {qkv, out, logsumexp, out, qkv},
                     [=](CudaDevice& d, const Pointers& p) {
                       library->backward(s, {p[3], t}, {p[0], t}, {p[1], t}, f(p[2]), {p[4], t}, d.stream().get());
                     },
                     5 * product});
  }
  return cases;
}

void add_all(const std::shared_ptr<Bench>& bench, const std::vector<Case>& cases, const std::string& prefix,
             const std::string& suffix) {
  for (const Case& c : cases) {
    benchmark::RegisterBenchmark((prefix + c.name + suffix).c_str(),
                                 [bench, c](benchmark::State& state) { bench->measure(state, c); })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace

void register_benchmarks() {
  const auto bench = std::make_shared<Bench>();
  const std::shared_ptr<Sdpa> library = library_attention();
  for (const DType t : {DType::bf16, DType::f32}) {
    const std::string type(name_of(t));
    const auto add = [&](const std::vector<Case>& cases, const std::string& suffix) {
      add_all(bench, cases, "stream/", "/" + suffix);
    };
    if (t != DType::f32) add_all(bench, attention_cases(t, library), "flash/", "");
    add(elementwise_cases(t), type);
    for (const std::int64_t cols : {1024, 4096, 8192})
      add(row_cases(t, cols, bench->step()), type + "/" + std::to_string(cols));
    for (const std::int64_t cols : {32000, 50257}) add(vocabulary_cases(t, cols), type + "/" + std::to_string(cols));
    add(training_cases(t, bench->step()), type);
  }
}

}  // namespace rehearse::kernels::cuda

int main(int argc, char** argv) {
  namespace cuda = rehearse::kernels::cuda;
  if (const std::string reason = cuda::why_no_device(); !reason.empty()) {
    std::printf("no CUDA device: %s\n", reason.c_str());
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  cuda::register_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
