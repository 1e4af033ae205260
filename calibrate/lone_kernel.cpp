#include "calibrate/lone_kernel.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <numeric>

#include "execute/rank/kernel_call.h"
#include "kernels/device.h"
#include "sim/base/check.h"
#include "sim/base/half.h"

namespace rehearse::calibrate {
namespace {

// Keeps the time of every repetition; prints nothing.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs)
      if (run.run_type == Run::RT_Iteration && run.iterations > 0)
        seconds.push_back(run.real_accumulated_time / static_cast<double>(run.iterations));
  }
  std::vector<double> seconds;
};

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<void, Free>;

// How many indices an operand of integers may hold: rows of a table, classes; 1 (all zeros) where they mean positions.
std::int64_t index_range(const program::Op& op) {
  if (const auto* e = std::get_if<program::Embedding>(&op.shape)) return std::max<std::int64_t>(1, e->rows);
  if (const auto* e = std::get_if<program::EmbeddingBags>(&op.shape)) {
    std::int64_t least = e->tables.front().rows;
    for (const program::BagTable& table : e->tables) least = std::min(least, table.rows);
    return std::max<std::int64_t>(1, least);
  }
  if (const auto* r = std::get_if<program::Router>(&op.shape)) return std::max<std::int64_t>(1, r->experts);
  if (const auto* p = std::get_if<program::Permute>(&op.shape)) return std::max<std::int64_t>(1, p->rows);
  if (const auto* c = std::get_if<program::CrossEntropy>(&op.shape)) return std::max<std::int64_t>(1, c->valid_cols);
  return 1;
}

Memory make_operand(const program::Buffer& buffer, std::int64_t range) {
  constexpr std::size_t kAlignment = 256;
  const auto bytes =
      (static_cast<std::size_t>(std::max<std::int64_t>(1, buffer.bytes())) + kAlignment - 1) / kAlignment * kAlignment;
  Memory memory(std::aligned_alloc(kAlignment, bytes));
  if (memory == nullptr) throw std::bad_alloc();
  // Of 8 bits: a number between 0.1 and 1, and scales, of blocks, that make no denormals of it.
  std::fill_n(static_cast<std::uint8_t*>(memory.get()), bytes,
              static_cast<std::uint8_t>(is_fp8(buffer.dtype) ? 0x38 : 1));
  const std::int64_t n = buffer.elements();
  // Between 0.1 and 1: no denormals, no negative sums where a kernel takes a logarithm or a root.
  if (buffer.dtype == program::DType::f32 || is_half(buffer.dtype))
    for (std::int64_t i = 0; i < n; ++i) {
      const float x = 0.1F + 0.9F * static_cast<float>(i * 7919 % 1009) / 1009;
      from_float(buffer.dtype, &x, 1, static_cast<std::byte*>(memory.get()) + i * size_of(buffer.dtype));
    }
  if (buffer.dtype == program::DType::i32)
    for (std::int64_t i = 0; i < n; ++i)
      static_cast<std::int32_t*>(memory.get())[i] = static_cast<std::int32_t>(i * 7919 % range);
  return memory;
}

// Of a grouped product, or its bias: as many rows for each group.
void fill_loads(const program::Op& op, const program::Buffer& buffer, void* memory) {
  const auto fill = [&](const auto* g) {
    if (g == nullptr || !g->counted || buffer.elements() != g->groups || buffer.dtype != program::DType::f32) return;
    const std::int64_t each = g->rows / g->groups;
    std::fill_n(static_cast<float*>(memory), g->groups, static_cast<float>(each));
  };
  fill(std::get_if<program::GroupedGemm>(&op.shape));
  fill(std::get_if<program::GroupedBias>(&op.shape));
}

// Of gradients that were sent: places all over the bucket.
void fill_places(const program::Op& op, const program::Buffer& buffer, void* memory) {
  const auto* c = std::get_if<program::Compress>(&op.shape);
  if (c == nullptr || !c->decompress || c->code.places() == 0 || buffer.dtype != program::DType::u8) return;
  for (std::int64_t m = 0; m < c->members; ++m) {
    auto* const packed = static_cast<std::byte*>(memory) + m * c->code.bytes();
    auto* const places = reinterpret_cast<std::int32_t*>(packed + c->code.bytes()) - c->code.places();
    for (std::int64_t j = 0; j < c->code.kept; ++j)
      places[j] = static_cast<std::int32_t>(j * c->code.elements / c->code.kept);
  }
}

}  // namespace

std::vector<double> repeat(const std::function<void()>& body, double seconds) {
  constexpr double kShortest = 50e-6;
  constexpr int kFewest = 3, kMost = 40, kMostCalls = 10'000;
  const auto before = Clock::now();
  body();
  const auto between = Clock::now();
  body();
  const double once =
      std::max(1e-8, std::min(seconds_between(before, between), seconds_between(between, Clock::now())));
  const double left = seconds - seconds_between(before, Clock::now());
  const int calls = std::clamp(static_cast<int>(kShortest / once), 1, kMostCalls);
  int repetitions = std::min(kMost, static_cast<int>(std::max(0.0, left) / (once * calls)));
  if (once * calls * kFewest < 0.02) repetitions = std::max(kFewest, repetitions);
  if (repetitions == 0) return {once};
  benchmark::ClearRegisteredBenchmarks();
  benchmark::RegisterBenchmark("kernel",
                               [&](benchmark::State& state) {
                                 for ([[maybe_unused]] auto _ : state) {
                                   const auto start = Clock::now();
                                   body();
                                   state.SetIterationTime(seconds_between(start, Clock::now()));
                                 }
                               })
      ->Iterations(calls)
      ->Repetitions(repetitions)
      ->UseManualTime();
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector, ".");
  benchmark::ClearRegisteredBenchmarks();
  REHEARSE_CHECK(!collector.seconds.empty(), "the benchmark reported nothing");
  // What took no tick of the clock took less than one.
  for (double& s : collector.seconds) s = std::max(s, 1e-9);
  return std::move(collector.seconds);
}

std::vector<double> repeat_polled(const std::function<void()>& body, double seconds, const Budget& budget) {
  constexpr double kTurn = 0.2;
  const Budget own = budget.part(seconds);
  std::vector<double> samples;
  do {
    budget.poll();
    const std::vector<double> more = repeat(body, std::clamp(own.left(), 0.0, kTurn));
    samples.insert(samples.end(), more.begin(), more.end());
  } while (!own.spent());
  return samples;
}

std::int64_t operand_bytes(const program::Role& role, const program::Op& op) {
  std::map<program::BufferId, std::int64_t> bytes;
  for (const auto* list : {&op.reads, &op.writes})
    for (const program::Operand& o : *list) bytes[o.buffer] = role.buffers[static_cast<std::size_t>(o.buffer)].bytes();
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& entry) { return sum + entry.second; });
}

std::vector<double> measure(const LoneKernel& kernel, int threads, double seconds) {
  const program::Op& op = kernel.op;
  std::map<program::BufferId, Memory> memory;
  const auto pointers = [&](const std::vector<program::Operand>& operands) {
    std::vector<kernels::Out> list;
    for (const program::Operand& o : operands) {
      Memory& m = memory[o.buffer];
      const program::Buffer& buffer = kernel.role.buffers[static_cast<std::size_t>(o.buffer)];
      if (m == nullptr) {
        m = make_operand(buffer, index_range(op));
        fill_loads(op, buffer, m.get());
        fill_places(op, buffer, m.get());
      }
      list.emplace_back(m.get(), buffer.dtype);
    }
    return list;
  };
  const std::vector<kernels::Out> reads = pointers(op.reads), writes = pointers(op.writes);
  const kernels::StepValues step = execute::step_values(kernel.scenario.training, 0, 1);
  const auto device = kernels::make_cpu_device(threads);
  execute::CallContext context{kernel.scenario, *device, 0, 0, &step, 0};
  context.equal_documents = true;
  return repeat([&] { execute::call_kernel(op, reads, writes, context); }, seconds);
}

}  // namespace rehearse::calibrate
