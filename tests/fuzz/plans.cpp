// Random plans, and what holds for each that can be simulated: the lowered program passes the static check (the flow
// itself throws InternalError where it does not), the account of the step adds up to the picosecond, memory to the
// byte, no link carries more than it can, no stage computes longer than the step takes, and everything is the same
// bytes when it is done again, every rank by itself instead of one of those that are alike, on two threads.
#include "tests/fuzz/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>

#include "reports/difference.h"
#include "reports/limits.h"
#include "sim/lower/lower.h"
#include "sim/program/memory_plan.h"
#include "sim/result/read_directory.h"
#include "sim/run/fit.h"
#include "sim/run/prepared.h"
#include "sim/search/layer_floor.h"
#include "sim/search/least_energy.h"
#include "sim/search/least_step.h"
#include "sim/search/machines.h"
#include "tests/fuzz/random_plan.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/small_plans.h"

namespace rehearse::fuzz {
namespace {

constexpr double kManyTimes = 4000;  // of work_of(): what is simulated some fifty times in a second

PlanCounts counts;

void require(bool condition, const std::string& what, const RandomPlan& plan) {
  if (!condition) fail(what + "\n" + plan.text);
}

// But for what the run itself took and simulated.
std::string bytes_of(result::Result r) {
  r.wall_s = 0;
  r.peak_rss_bytes = 0;
  r.events = 0;
  r.ranks_simulated = 0;
  std::string text = result::to_json(r);
  for (const result::OpRecord& o : r.records)
    text += fmt::format("{} {} {} {} {} {} {} {} {} {} {}\n", o.rank, o.step, o.slot, o.body, o.op, o.start_ps,
                        o.duration_ps, o.waited_ps, o.queued_ps, o.woken_by, o.moving_ps);
  return text;
}

void check_step(const result::Result& r, const RandomPlan& plan) {
  require(r.step_time_ps > 0, "a step of no time", plan);
  const std::int64_t sum = std::accumulate(r.breakdown_ps.begin(), r.breakdown_ps.end(), std::int64_t{0});
  require(sum == r.step_time_ps, fmt::format("the breakdown sums to {} ps, the step takes {} ps", sum, r.step_time_ps),
          plan);
  for (const std::int64_t share : r.breakdown_ps) require(share >= 0, "a share of the step below 0", plan);
  const double coverage = std::accumulate(r.coverage.begin(), r.coverage.end(), 0.0);
  require(std::abs(coverage - 1) < 1e-9, fmt::format("coverage sums to {}", coverage), plan);
  const double step = static_cast<double>(r.step_time_ps) * 1e-12;
  require(r.interval_low_s > 0 && r.interval_low_s <= step * (1 + 1e-9) && r.interval_high_s >= step * (1 - 1e-9),
          fmt::format("the interval {} to {} does not hold the step {}", r.interval_low_s, r.interval_high_s, step),
          plan);
  require(r.model_flops > 0 && r.hardware_flops > 0, "no FLOPs", plan);
}

void check_memory(const result::Result& r, const RandomPlan& plan) {
  require(!r.stages.empty(), "no stages", plan);
  for (const result::StageMemory& s : r.stages) {
    const std::int64_t parts[] = {s.parameters, s.gradients,     s.optimizer, s.activations,
                                  s.workspace,  s.communication, s.framework};
    for (const std::int64_t part : parts) require(part >= 0, fmt::format("stage {}: memory below 0", s.stage), plan);
    const std::int64_t sum = std::accumulate(std::begin(parts), std::end(parts), std::int64_t{0});
    require(s.peak > 0 && s.peak == sum, fmt::format("stage {}: parts of {} bytes, a peak of {}", s.stage, sum, s.peak),
            plan);
  }
  require(r.memory_fits == (result::tightest(r.stages)->peak <= r.memory_capacity - r.memory_headroom),
          "it fits and does not", plan);
}

void check_links(const result::Result& r, const RandomPlan& plan) {
  const std::int64_t all = r.local_steps.known ? r.local_steps.round_ps : r.step_time_ps;  // that times are in
  for (const result::LinkUse& link : r.links.busiest) {
    require(0 <= link.first_ps && link.first_ps <= link.last_ps && link.last_ps <= all,
            link.name + " is in use outside the step", plan);
    require(link.busy_ps <= link.last_ps - link.first_ps, link.name + " is busy for longer than it is in use", plan);
    require(result::utilisation(link, link.window_bytes, link.window_ps) <= 1 + 1e-6,
            fmt::format("{} carries {} bytes in {} ps", link.name, link.window_bytes, link.window_ps), plan);
    std::int64_t sum = 0;
    for (const result::LinkUser& user : link.users) sum += user.bytes;
    require(sum == link.bytes, link.name + ": its users' bytes are not its own", plan);
  }
}

// Over all steps: neither more bytes over a link than it carries in that time, nor more work on a stage's compute
// stream.
void check_whole_run(const plan::Scenario& scenario, const run::Options& options, const RandomPlan& plan) {
  const run::Prepared prepared(scenario, options);
  engine::Options engine_options = prepared.engine_options();
  const plan::RankGrid& grid = prepared.grid();
  engine_options.recorded_ranks = grid.members(0, {Axis::pipeline});
  const engine::Outcome outcome = prepared.simulate(engine_options);
  const double seconds = outcome.step_ends.back().seconds();
  for (std::size_t i = 0; i < outcome.link_bytes.size(); ++i) {
    const cluster::Resource& link = prepared.cluster().resources()[i];
    require(static_cast<double>(outcome.link_bytes[i]) <=
                static_cast<double>(link.capacity.per_s()) * seconds * (1 + 1e-6) + 1,
            link.name + " carries more than it can", plan);
  }
  std::map<int, double> busy;  // of a stage's rank in the last step
  for (const result::OpRecord& o : outcome.records) {
    const program::Role& role =
        prepared.program()
            .roles[static_cast<std::size_t>(program::role_of(prepared.program(), grid.coordinates(o.rank)))];
    const program::Op& op = role.bodies[static_cast<std::size_t>(o.body)].ops[static_cast<std::size_t>(o.op)];
    if (role.streams[static_cast<std::size_t>(op.stream)].kind == program::StreamKind::compute)
      busy[o.rank] += static_cast<double>(o.duration_ps) * 1e-12;
  }
  // Each step the same.
  const bool unlike = scenario.noise.any() || !scenario.jobs.empty() || scenario.plan.steps_apart();
  const double steps = unlike ? 1 : options.steps;
  for (const auto& [rank, time] : busy)
    require(time * steps <= seconds * (1 + 1e-9),
            fmt::format("rank {} computes {} s a step, {} steps end after {} s", rank, time, steps, seconds), plan);
}

// A search's bounds (sim/search) are none of a plan without scatter: its layers' floor is no more than what its program
// takes at least, and that no more than the simulated step; the same of memory.
void check_bounds(const plan::Scenario& scenario, const run::Options& options, const result::Result& r,
                  const RandomPlan& plan) {
  if (scenario.noise.any() || !scenario.jobs.empty() || options.fidelity != run::Fidelity::flow) return;
  if (options.steps < 2) return;
  const run::Machine machine(scenario, options);
  for (int kind = 0; kind < machine.kinds(); ++kind)
    if (scenario.noise.machine && machine.costs_of(kind).device().jitter.any()) return;
  search::CollectiveTimes times(machine.collectives.model());
  search::PassesHeld held;
  const search::PlanFloor floor =
      search::plan_floor(search::layer_floors(scenario, machine), scenario, machine, times, held);
  const std::optional<run::ChosenLayers> by_time = run::choose_layers(scenario, machine);
  const plan::Scenario& whole = by_time ? by_time->scenario : scenario;
  const lower::DistinctStages stages = lower::lower_distinct(whole, !search::uneven(*machine.cluster));
  const Time least = search::least_step(stages, whole.grid(), machine, !whole.data.takes_time());
  std::int64_t peak = 0;
  for (const program::Role& role : stages.program.roles) peak = std::max(peak, program::memory_peak(role).peak_bytes);
  const std::int64_t most = run::largest_peak(r.stages);
  ++counts.bounded;
  counts.bounded_mixed += machine.kinds() > 1 ? 1 : 0;
  counts.bound += least.seconds() / Time::from_ps(r.step_time_ps).seconds();
  require(least.ps() <= r.step_time_ps,
          fmt::format("a step of {} ps is to take {} ps at least", r.step_time_ps, least.ps()), plan);
  require(floor.step.ps() <= r.step_time_ps,
          fmt::format("a step of {} ps has layers that take {} ps at least", r.step_time_ps, floor.step.ps()), plan);
  if (r.energy.known && !whole.plan.served()) {
    const std::int64_t gpus = whole.cluster.gpus;
    const double of_floor = search::least_energy(machine, floor.step, gpus, floor.kernels),
                 of_program = search::least_energy(machine, least, gpus, search::kernel_joules(stages, whole, machine));
    require(
        std::max(of_floor, of_program) <= r.energy.joules() * (1 + 1e-9),
        fmt::format("a step of {} J is to take {} J at least, its layers {}", r.energy.joules(), of_program, of_floor),
        plan);
  }
  const std::int64_t least_bytes = search::with_reserve(floor.bytes, scenario, machine);
  require(least_bytes <= most && peak <= most,
          fmt::format("{} bytes at the peak, {} and {} at least", most, least_bytes, peak), plan);
}

// What is written can be read, and is no different from itself.
void check_files(const result::Result& r, const RandomPlan& plan) {
  // What was read once is an input, which no output replaces.
  static int count = 0;
  const std::string folder = (std::filesystem::path(temporary_folder()) / fmt::format("result{}", ++count)).string();
  result::write_directory(r, folder);
  result::StoredResult stored;
  try {
    stored = result::read_directory(folder);
  } catch (const InputError& error) {
    require(false, std::string("what was written cannot be read: ") + error.what(), plan);
  }
  require(stored.ops.size() == r.records.size(), "ops are lost on the way to a file and back", plan);
  const reports::Difference same = reports::difference(stored, stored);
  require(same.same_program() && same.step_difference_ps() == 0, "a result differs from itself", plan);
  for (const reports::AccountLine& line : same.account)
    require(line.difference() == 0, "a result's account differs from itself", plan);
  std::filesystem::remove_all(folder);
}

result::Result simulate(const plan::Scenario& scenario, run::Options options, int threads, bool fold) {
  options.threads = threads;
  options.fold = fold;
  result::Result r = run::simulate_scenario(scenario, options);
  r.limited_by = reports::limited_by(r);
  return r;
}

void run_plan(const std::string& bytes) {
  static const std::string calibration = source_file("tests/fuzz/corpus/calibration/small.json");
  Choices choices(bytes);
  RandomPlan plan = random_plan(choices, calibration);
  plan.options.data_root = REHEARSE_SOURCE_DIR;
  const std::string path = put_file("plan.yaml", plan.text);
  ++counts.made;
  const plan::Scenario scenario = plan::read_scenario(path, {}, REHEARSE_SOURCE_DIR);
  if (work_of(scenario) > kManyTimes) {
    plan.options.samples = 0;
    plan.options.what_if = false;
    if (plan.options.fidelity == run::Fidelity::step) plan.options.fidelity = run::Fidelity::flow;
  }
  const result::Result r = simulate(scenario, plan.options, 1, true);
  ++counts.simulated;
  check_step(r, plan);
  check_memory(r, plan);
  check_links(r, plan);
  print_all(r);
  const result::Result every_rank = simulate(scenario, plan.options, 2, false);
  require(bytes_of(r) == bytes_of(every_rank),
          fmt::format("{} ranks that stand for {}, on one thread, give another result than all on two",
                      r.ranks_simulated, every_rank.ranks_simulated),
          plan);
  counts.mixed += r.stages.front().device.empty() ? 0 : 1;
  counts.served += scenario.plan.served() ? 1 : 0;
  counts.apart += scenario.plan.steps_apart() ? 1 : 0;
  counts.folded += r.ranks_simulated < every_rank.ranks_simulated ? 1 : 0;
  check_whole_run(scenario, plan.options, plan);
  check_bounds(scenario, plan.options, r, plan);
  if (plan.write) check_files(r, plan);
  if (plan.would_fit) (void)run::changes_that_fit(scenario, {}, plan.options);
}

}  // namespace

PlanCounts plan_counts() {
  return counts;
}

void add_plans(std::vector<Reader>& list) {
  list.push_back({.name = "plan", .read = run_plan, .choices = true, .runs = 200});
}

}  // namespace rehearse::fuzz
