// CPU kernels against what bounds them, on one thread:
//   copy              memcpy of 64 MiB: the bandwidth (read + written) that memory-bound kernels are held against
//   stream/NAME       memory-bound kernels on tensors of 16 Mi elements: the bytes a kernel must read and write, a
//   second;
//                     of_copy is the share of a copy's bandwidth: each call follows a copy, and the medians are divided
//   gemm/FORM/N       C = A B of N x N by the device; eigen/FORM/N: the same by Eigen alone on its own matrices
//   gemm/layer/NAME   products of a transformer layer (rows 2048, width 1024) and Eigen alone
//   half/..           the same product and element-wise kernels on 16-bit operands, which are widened and rounded
//   flash/..          attention of 8 heads of 64, causal: FLOPs counted as the two (five) half-filled products
// FLOP/s and bytes/s are counters. For a ratio of two benchmarks to mean anything take the best of several interleaved
// repetitions (--benchmark_repetitions=5 --benchmark_enable_random_interleaving=true).
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_GEMM_TO_COEFFBASED_THRESHOLD 1
#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/host_memory.h"
#include "kernels/device.h"

namespace rehearse::kernels {
namespace {

using Floats = cpu::HostVector<float>;

Floats random_floats(std::int64_t n) {
  std::minstd_rand engine(7);
  Floats x(static_cast<std::size_t>(n));
  for (float& v : x) v = static_cast<float>(engine() % 2001) / 1000 - 1;
  return x;
}

void set_flops(benchmark::State& state, double flops) {
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}
void set_bytes(benchmark::State& state, double bytes) {
  state.counters["B/s"] = benchmark::Counter(bytes, benchmark::Counter::kIsIterationInvariantRate);
}

void gemm(benchmark::State& state, const Gemm& shape) {
  const Floats a = random_floats(shape.m * shape.k), b = random_floats(shape.k * shape.n);
  Floats c(static_cast<std::size_t>(shape.m * shape.n));
  const auto device = make_cpu_device(1);
  for (auto _ : state) device->gemm(shape, a.data(), b.data(), nullptr, c.data());
  set_flops(state, 2.0 * static_cast<double>(shape.m * shape.n * shape.k));
}

void gemm_half(benchmark::State& state, const Gemm& shape, DType type) {
  const auto device = make_cpu_device(1);
  const auto halves = [&](std::int64_t n) {
    cpu::HostVector<std::uint16_t> x(static_cast<std::size_t>(n));
    device->copy(n, random_floats(n).data(), Out(x.data(), type));
    return x;
  };
  const auto a = halves(shape.m * shape.k), b = halves(shape.k * shape.n);
  auto c = halves(shape.m * shape.n);
  for (auto _ : state) device->gemm(shape, In(a.data(), type), In(b.data(), type), nullptr, Out(c.data(), type));
  set_flops(state, 2.0 * static_cast<double>(shape.m * shape.n * shape.k));
}

// Widen, compute, round: bytes are those of the 16-bit operands.
void gelu_half(benchmark::State& state, DType type) {
  constexpr std::int64_t n = 1 << 24;
  const auto device = make_cpu_device(1);
  cpu::HostVector<std::uint16_t> x(n), y(n);
  device->copy(n, random_floats(n).data(), Out(x.data(), type));
  for (auto _ : state) device->activation_forward(Unary::gelu, n, In(x.data(), type), Out(y.data(), type));
  set_bytes(state, 4.0 * static_cast<double>(n));
}

void eigen(benchmark::State& state, const Gemm& s) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Matrix a = Matrix::Random(s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k);
  const Matrix b = Matrix::Random(s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n);
  Matrix c(s.m, s.n);
  for (auto _ : state) {
    if (s.transpose_a) {
      c.noalias() = a.transpose() * b;
    } else if (s.transpose_b) {
      c.noalias() = a * b.transpose();
    } else {
      c.noalias() = a * b;
    }
    benchmark::DoNotOptimize(c.data());
    benchmark::ClobberMemory();
  }
  set_flops(state, 2.0 * static_cast<double>(s.m * s.n * s.k));
}

void copy(benchmark::State& state) {
  const Floats x = random_floats(1 << 24);
  Floats y(x.size());
  for (auto _ : state) {
    std::memcpy(y.data(), x.data(), x.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  set_bytes(state, 2.0 * static_cast<double>(x.size() * sizeof(float)));
}

// What a streaming kernel works on: rows x cols elements and vectors of cols.
struct Tensors {
  static constexpr std::int64_t kCols = 1024, kRows = 16384, kElements = kRows * kCols;

  Floats x = random_floats(kElements), y = random_floats(kElements), z = random_floats(kElements), w = x;
  Floats gamma = random_floats(kCols), beta = gamma, stats = Floats(2 * kRows), table = random_floats(kElements);
  cpu::HostVector<std::uint8_t> mask = cpu::HostVector<std::uint8_t>(kElements, 1);
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(kRows);
  StepValues step{.lr = 1e-9F};
  DropoutSite site{.probability = 0.1, .seed = 5, .step = &step, .micro_batch = 4};
  float loss = 0, sum = 0;

  Tensors() {
    for (float& v : w) v = v * v;  // second moments
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 37 % kCols);
  }
};

struct Streaming {
  const char* name;
  double bytes_per_element;
  std::function<void(Device&, Tensors&)> run;
};

std::vector<Streaming> streaming_kernels() {
  constexpr std::int64_t n = Tensors::kElements, rows = Tensors::kRows, cols = Tensors::kCols;
  using T = Tensors;
  return {
      {"add", 12, [](Device& d, T& t) { d.add(n, t.x.data(), t.y.data(), t.z.data()); }},
      {"accumulate", 12, [](Device& d, T& t) { d.accumulate(n, t.x.data(), t.z.data()); }},
      {"scale", 8, [](Device& d, T& t) { d.scale(n, 0.5f, t.x.data(), t.z.data()); }},
      {"fill", 4, [](Device& d, T& t) { d.fill(n, 0.5f, t.z.data()); }},
      {"gelu", 8, [](Device& d, T& t) { d.activation_forward(Unary::gelu, n, t.x.data(), t.z.data()); }},
      {"gelu_backward", 12,
       [](Device& d, T& t) { d.activation_backward(Unary::gelu, n, t.y.data(), t.x.data(), t.z.data()); }},
      {"relu", 8, [](Device& d, T& t) { d.activation_forward(Unary::relu, n, t.x.data(), t.z.data()); }},
      {"swiglu", 6, [](Device& d, T& t) { d.swiglu_forward(rows, cols / 2, t.x.data(), nullptr, t.z.data()); }},
      {"swiglu_backward", 10,
       [](Device& d, T& t) { d.swiglu_backward(rows, cols / 2, t.y.data(), t.x.data(), nullptr, t.z.data()); }},
      {"layer_norm", 8,
       [](Device& d, T& t) {
         d.norm_forward(false, rows, cols, 1e-5, t.x.data(), t.gamma.data(), t.beta.data(), t.z.data(), t.stats.data());
       }},
      {"layer_norm_backward_input", 16,
       [](Device& d, T& t) {
         d.norm_backward_input(false, rows, cols, t.y.data(), t.x.data(), t.stats.data(), t.gamma.data(), t.w.data(),
                               t.z.data());
       }},
      {"layer_norm_backward_weight", 8,
       [](Device& d, T& t) {
         d.norm_backward_weight(false, rows, cols, t.y.data(), t.x.data(), t.stats.data(), t.gamma.data(),
                                t.beta.data());
       }},
      {"rms_norm", 8,
       [](Device& d, T& t) {
         d.norm_forward(true, rows, cols, 1e-5, t.x.data(), t.gamma.data(), nullptr, t.z.data(), t.stats.data());
       }},
      {"bias_dropout_add", 13,
       [](Device& d, T& t) {
         d.bias_dropout_add(rows, cols, t.site, t.x.data(), t.gamma.data(), t.y.data(), t.z.data(), t.mask.data());
       }},
      {"dropout", 9, [](Device& d, T& t) { d.dropout(rows, cols, t.site, t.x.data(), t.z.data(), t.mask.data()); }},
      {"dropout_backward", 9,
       [](Device& d, T& t) { d.dropout_backward(n, 0.1, t.x.data(), t.mask.data(), t.z.data()); }},
      {"bias_grad", 4, [](Device& d, T& t) { d.bias_grad(rows, cols, t.x.data(), t.beta.data()); }},
      {"add_position", 9,  // a quarter of a table
       [](Device& d, T& t) { d.add_position(rows, cols, 4, 0, t.x.data(), t.table.data(), t.z.data()); }},
      {"embedding", 8,
       [](Device& d, T& t) { d.embedding_forward(rows, rows, cols, 0, t.ids.data(), t.table.data(), t.z.data()); }},
      {"rope", 8,  // in place; a third of qkv is values, which are not touched
       [](Device& d, T& t) {
         d.rope({4, 8, 8, rows / 4 * 2 / 3, 64}, 0, false, t.z.data());
       }},
      {"cross_entropy", 4,
       [](Device& d, T& t) {
         d.cross_entropy_forward(rows, cols, cols, 1e-6, t.x.data(), t.ids.data(), t.stats.data(), &t.loss);
       }},
      {"cross_entropy_backward", 8,
       [](Device& d, T& t) {
         d.cross_entropy_backward(rows, cols, cols, 0, 1e-6, nullptr, t.x.data(), t.ids.data(), t.stats.data(), 2,
                                  t.stats.data() + 1, 2, t.z.data());
       }},
      {"mse", 8, [](Device& d, T& t) { d.mse_forward(n, 1e-6, t.x.data(), t.y.data(), &t.loss); }},
      {"mse_backward", 12,
       [](Device& d, T& t) { d.mse_backward(n, 1e-6, nullptr, t.x.data(), t.y.data(), t.z.data()); }},
      {"attention_softmax", 6,  // causal: half is read, all is written
       [](Device& d, T& t) {
         d.attention_softmax({1, 16, 16, 1024, 64}, t.x.data(), t.z.data());
       }},
      {"adamw", 28,
       [](Device& d, T& t) {
         d.adamw(n, {.step = &t.step}, t.x.data(), nullptr, t.y.data(), nullptr, t.z.data(), t.w.data());
       }},
      {"sum_squares", 4, [](Device& d, T& t) { d.sum_squares(n, t.x.data(), &t.sum); }},
      {"max_pool", 6,  // the argmax too
       [](Device& d, T& t) {
         d.pool_forward(256, 64, 32, 32, 2, t.x.data(), t.z.data(), reinterpret_cast<std::int32_t*>(t.w.data()));
       }},
  };
}

void flash(benchmark::State& state, std::int64_t seq, bool backward, double dropout) {
  const AttentionShape s{1, 8, 8, seq, 64};
  const Floats qkv = random_floats(seq * 3 * 8 * 64), d_out = random_floats(seq * 8 * 64);
  Floats out(d_out.size()), logsumexp(static_cast<std::size_t>(seq * 8)), d_qkv(qkv.size());
  const StepValues step{.first_sequence = 3};
  const DropoutSite site{.probability = dropout, .seed = 1, .step = &step};
  const auto device = make_cpu_device(1);
  device->flash_forward(s, site, qkv.data(), out.data(), logsumexp.data());
  for (auto _ : state) {
    if (backward) {
      device->flash_backward(s, site, d_out.data(), qkv.data(), out.data(), logsumexp.data(), d_qkv.data());
    } else {
      device->flash_forward(s, site, qkv.data(), out.data(), logsumexp.data());
    }
  }
  const double product = static_cast<double>(seq) * static_cast<double>(seq) * 64 * 8;  // 2 FLOPs, half the square
  set_flops(state, (backward ? 5 : 2) * product);
}

void register_gemm(const std::string& name, const Gemm& shape) {
  benchmark::RegisterBenchmark(("gemm/" + name).c_str(), gemm, shape);
  benchmark::RegisterBenchmark(("eigen/" + name).c_str(), eigen, shape);
}

// Of this thread at work: others on the machine do not count, but for what they take of its caches and memory.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double median(std::vector<double> x) {
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::nth_element(x.begin(), middle, x.end());
  return *middle;
}

void stream(benchmark::State& state, const Streaming& kernel) {
  static Tensors tensors;  // shared: 350 MB
  static const Floats from = random_floats(1 << 24);
  static Floats to(from.size());
  const auto device = make_cpu_device(1);
  std::vector<double> copies, calls;  // seconds
  const auto timed = [](std::vector<double>& into, const auto& body) {
    const double start = thread_seconds();
    body();
    into.push_back(thread_seconds() - start);
  };
  for (auto _ : state) {
    timed(copies, [] { std::memcpy(to.data(), from.data(), from.size() * sizeof(float)); });
    benchmark::ClobberMemory();
    timed(calls, [&] { kernel.run(*device, tensors); });
    state.SetIterationTime(calls.back());
  }
  const double bytes = kernel.bytes_per_element * Tensors::kElements;
  set_bytes(state, bytes);
  const double copied = 2.0 * static_cast<double>(from.size() * sizeof(float));
  state.counters["of_copy"] = bytes / median(calls) / (copied / median(copies));
}

int register_all() {
  benchmark::RegisterBenchmark("copy", copy);
  for (const std::int64_t n : {128, 256, 512, 1024}) {
    register_gemm("nn/" + std::to_string(n), {n, n, n});
    register_gemm("nt/" + std::to_string(n), {n, n, n, false, true});
    register_gemm("tn/" + std::to_string(n), {n, n, n, true});
  }
  for (const DType type : {DType::bf16, DType::f16}) {
    const std::string suffix = "/" + std::string(name_of(type));
    benchmark::RegisterBenchmark(("half/gemm/1024" + suffix).c_str(), gemm_half, Gemm{1024, 1024, 1024}, type);
    benchmark::RegisterBenchmark(("half/gelu" + suffix).c_str(), gelu_half, type);
  }
  register_gemm("layer/qkv", {2048, 3072, 1024, false, true});
  register_gemm("layer/mlp_weight_grad", {4096, 1024, 2048, true});
  for (const Streaming& kernel : streaming_kernels()) {
    benchmark::RegisterBenchmark((std::string("stream/") + kernel.name).c_str(), stream, kernel)->UseManualTime();
  }
  for (const std::int64_t seq : {256, 1024}) {
    for (const double dropout : {0.0, 0.1}) {
      const std::string name = std::to_string(seq) + (dropout > 0 ? "/dropout" : "");
      benchmark::RegisterBenchmark(("flash/forward/" + name).c_str(), flash, seq, false, dropout);
      benchmark::RegisterBenchmark(("flash/backward/" + name).c_str(), flash, seq, true, dropout);
    }
  }
  return 0;
}

const int kRegistered = register_all();

}  // namespace
}  // namespace rehearse::kernels
