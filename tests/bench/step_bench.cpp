// A step of GPT-3 175B on 1,024 GPUs, part by part: what a user waits for. `every_rank` takes all 1,024 ranks through
// their steps, `folded` one of those that are alike; the counter `ops` is the op instances of one step of all ranks,
// `relative_to_plain_loop` the time of one of them over that of a turn of a plain priority queue (plain_loop.h).
// `whole_run` is what a command does: from the scenario file to the result. Design budgets: 1 s and 1 GiB a step of
// every rank; folded 100 ms where units of the fabric hold no whole stages, as here.
#include <benchmark/benchmark.h>

#include "plain_loop.h"
#include "sim/cluster/topology.h"
#include "sim/collective/collective.h"
#include "sim/cost/cost.h"
#include "sim/engine/engine.h"
#include "sim/lower/lower.h"
#include "sim/plan/scenario.h"
#include "sim/program/memory_plan.h"
#include "sim/program/static_check.h"
#include "sim/run/run.h"

namespace rehearse {
namespace {

const std::string kRoot = REHEARSE_SOURCE_DIR;

plan::Scenario scenario(const std::string& name, const std::vector<std::string>& assignments = {}) {
  return plan::read_scenario(kRoot + "/scenarios/" + name + ".yaml", assignments, kRoot);
}

void read_scenario(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(scenario("gpt3-175b-1024xa100"));
}
BENCHMARK(read_scenario)->Unit(benchmark::kMillisecond);

void lower_plan(benchmark::State& state, const std::string& name) {
  const auto s = scenario(name);
  for (auto _ : state) benchmark::DoNotOptimize(lower::lower(s));
}
BENCHMARK_CAPTURE(lower_plan, gpt3, "gpt3-175b-1024xa100")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(lower_plan, gpt1t_64_stages, "published/korthikanti-1t-full")->Unit(benchmark::kMillisecond);

void check_program(benchmark::State& state) {
  const auto program = lower::lower(scenario("gpt3-175b-1024xa100"));
  for (auto _ : state)
    for (std::size_t role = 0; role < program.roles.size(); ++role)
      benchmark::DoNotOptimize(program::check_role(program, static_cast<program::RoleId>(role)));
}
BENCHMARK(check_program)->Unit(benchmark::kMillisecond);

void memory_of_program(benchmark::State& state) {
  const auto program = lower::lower(scenario("gpt3-175b-1024xa100"));
  for (auto _ : state)
    for (const auto& role : program.roles) benchmark::DoNotOptimize(program::memory_peak(role));
}
BENCHMARK(memory_of_program)->Unit(benchmark::kMillisecond);

void simulate_step(benchmark::State& state, const std::string& name, bool fold) {
  const auto s = scenario(name);
  const auto program = lower::lower(s);
  const auto grid = s.grid();
  const auto cluster = cluster::build_cluster(s.cluster.topology, grid.ranks(), {}, 0, kRoot);
  const std::string device = cost::find_device_file(cluster->device_name(), kRoot);
  const auto costs = cost::load_costs({device});
  const auto collectives = collective::make_model(*cluster, device);
  engine::Options options;
  options.launch_cost = s.framework.launch_cost;
  options.steps = static_cast<int>(state.range(0));
  options.fold = fold;
  double ops = 0, ranks = 0;
  bench::PlainLoop plain(state);
  for (auto _ : state) {
    const auto outcome = engine::simulate(program, grid, *cluster, *collectives, *costs, options);
    ops = static_cast<double>(outcome.ops) / options.steps;
    ranks = static_cast<double>(outcome.ranks_simulated);
    benchmark::DoNotOptimize(outcome.step_time);
  }
  plain.finish(ops * options.steps);
  state.counters["ops"] = ops;
  state.counters["ranks"] = ranks;
}
BENCHMARK_CAPTURE(simulate_step, gpt3_every_rank, "gpt3-175b-1024xa100", false)
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_step, gpt3_folded, "gpt3-175b-1024xa100", true)
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_step, gpt3_zero3, "gpt3-175b-zero3-tp2", false)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_step, gpt1t_512_ranks, "published/korthikanti-1t-full", false)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_step, gpt1t_512_ranks_folded, "published/korthikanti-1t-full", true)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);

// The counter `ranks` is how many there are.
void whole_run(benchmark::State& state, const std::string& name, const std::vector<std::string>& assignments) {
  run::Options options;
  options.data_root = kRoot;
  options.record = false;
  double ranks = 0;
  for (auto _ : state) {
    const result::Result r = run::simulate_scenario(scenario(name, assignments), options);
    ranks = static_cast<double>(r.ranks);
    benchmark::DoNotOptimize(r.step_time_ps);
  }
  state.counters["ranks"] = ranks;
}
BENCHMARK_CAPTURE(whole_run, gpt3, "gpt3-175b-1024xa100", {})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_run, gpt3_whole_units, "gpt3-175b-1024xa100",
                  {"cluster.overrides.fabric.nodes_per_unit=16", "cluster.overrides.fabric.units=35"})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_run, deepseek_v3, "deepseek-v3-2048xh800", {})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_run, gpt3_16384, "gpt3-175b-1024xa100",
                  {"cluster.gpus=16384", "cluster.overrides.fabric.units=104", "training.global_batch=24576"})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_run, gpt3_102400, "gpt3-175b-1024xa100",
                  {"cluster.gpus=102400", "cluster.overrides.fabric.units=640", "training.global_batch=153600"})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rehearse
