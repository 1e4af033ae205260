// A training step for real: GPT-2 124M in fp32, 4 sequences of 64 tokens, on one rank with 1 thread and with as many as
// there are cores. Four steps are performed; the time is the median of those after two of warm-up, and the counters are
// tokens a second and, of the ops of the last step, the share in percent of
//   matmul        products of weights, forward and backward
//   attention     the fused attention, whose products count here
//   norm, activation, loss (softmax and cross-entropy), embedding (tokens and positions, forward and backward)
//   optimizer     AdamW and the norm of the gradient
//   zero_grad     setting gradients to zero
//   other         biases, residuals
// Arithmetic: products take 6 FLOPs a parameter they multiply with and token, 6 x 123.5M x 256 = 190 GFLOP; AdamW moves
// 7 words a parameter, the gradient's norm and its zeros one each: 9 x 4 x 124.4M = 4.5 GB.
#include <benchmark/benchmark.h>

#include <map>
#include <thread>
#include <variant>

#include "execute/performer.h"
#include "sim/lower/lower.h"
#include "sim/plan/scenario.h"

namespace rehearse {
namespace {

struct KindOf {
  const char* operator()(const program::Gemm&) const { return "matmul"; }
  const char* operator()(const program::Attention&) const { return "attention"; }
  const char* operator()(const program::Norm&) const { return "norm"; }
  const char* operator()(const program::Activation&) const { return "activation"; }
  const char* operator()(const program::CrossEntropy&) const { return "loss"; }
  const char* operator()(const program::MeanSquaredError&) const { return "loss"; }
  const char* operator()(const program::Embedding&) const { return "embedding"; }
  const char* operator()(const program::Optimizer&) const { return "optimizer"; }
  const char* operator()(const program::SumSquares&) const { return "optimizer"; }
  const char* operator()(const program::Elementwise& e) const {
    using Fn = program::ElementwiseFn;
    if (e.fn == Fn::add_position || e.fn == Fn::position_grad) return "embedding";
    return e.fn == Fn::fill ? "zero_grad" : "other";
  }
  template <class Shape>
  const char* operator()(const Shape&) const {
    return "other";
  }
};

void gpt2_124m(benchmark::State& state) {
  const auto s = plan::read_scenario(
      std::string(REHEARSE_SOURCE_DIR) + "/scenarios/gpt-tiny-ddp.yaml",
      {"model=gpt2-small", "cluster.gpus=1", "cluster.threads_per_rank=" + std::to_string(state.range(0)),
       "plan.micro_batch=4", "plan.bucket=25MiB", "training.global_batch=4", "training.seq_len=64"},
      REHEARSE_SOURCE_DIR);
  const program::Program program = lower::lower(s);
  execute::Options options;
  options.steps = 4;
  options.record = true;
  for (auto _ : state) {
    const result::Result r = execute::perform(s, program, options).result;
    state.SetIterationTime(static_cast<double>(r.step_time_ps) * 1e-12);
    std::map<std::string, double> by_kind;
    double total = 0;
    for (const auto& record : r.records) {
      const auto& ops = program.roles[0].bodies[static_cast<std::size_t>(record.body)].ops;
      const auto duration = static_cast<double>(record.duration_ps);
      const program::Op& op = ops[static_cast<std::size_t>(record.op)];
      if (program::is_transfer(op) || std::holds_alternative<program::Input>(op.shape)) continue;  // beside the step
      by_kind[std::visit(KindOf(), op.shape)] += duration;
      total += duration;
    }
    for (const auto& [kind, time] : by_kind) state.counters[kind] = 100 * time / total;
    state.counters["tokens/s"] = r.tokens_per_s;
  }
}
void threads(benchmark::internal::Benchmark* b) {
  b->Arg(1);
  if (const unsigned cores = std::thread::hardware_concurrency(); cores > 1) b->Arg(cores);
}
BENCHMARK(gpt2_124m)->ArgName("threads")->Apply(threads)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rehearse
