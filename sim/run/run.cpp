// The main flow: a scenario becomes a program (lower), is checked, its memory planned, its cluster and costs loaded,
// and is simulated; the outcome becomes the result that every command prints and writes.
#include "sim/run/run.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "sim/account/program_facts.h"
#include "sim/account/stage_memory.h"
#include "sim/base/check.h"
#include "sim/cluster/topology.h"
#include "sim/collective/collective.h"
#include "sim/cost/calibration_file.h"
#include "sim/cost/cost.h"
#include "sim/engine/engine.h"
#include "sim/lower/lower.h"
#include "sim/program/static_check.h"
#include "sim/program/work.h"
#include "sim/run/describe_scenario.h"

namespace rehearse::run {

using program::Program;
using program::Role;
using program::RoleId;

namespace {

program::GridView view_of(const plan::RankGrid& grid) {
  program::GridView view;
  view.ranks = grid.ranks();
  view.role = [&grid](int rank) { return static_cast<RoleId>(grid.coordinate(rank, Axis::pipeline)); };
  view.members = [&grid](int rank, const program::Group& g) { return grid.members(rank, g.axes, g.pipeline_only); };
  view.peer = [&grid](int rank, Axis axis, int offset) { return grid.peer(rank, axis, offset); };
  return view;
}

std::vector<program::Violation> check(const Program& program, const plan::RankGrid& grid) {
  std::vector<program::Violation> all;
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    auto found = program::check_role(program, static_cast<RoleId>(r));
    all.insert(all.end(), found.begin(), found.end());
  }
  auto found = program::check_ranks(program, view_of(grid));
  all.insert(all.end(), found.begin(), found.end());
  return all;
}

// Bytes a rank of each stage holds, and whether they fit.
void plan_memory(const Program& program, const plan::Scenario& scenario, const cost::Device& device,
                 result::Result& out) {
  out.memory_capacity = device.memory.count();
  out.stages = account::stage_memory(program, scenario.framework, device.cpu);
  for (const result::StageMemory& m : out.stages) out.memory_fits = out.memory_fits && m.peak <= out.memory_capacity;
}

// How well the costs of an op are known; the first rank of the role stands for the others.
std::string coverage_of(const Program& program, const Role& role, const program::Op& op, const plan::RankGrid& grid,
                        const cost::CostModel& costs, const collective::CollectiveModel& collectives) {
  const auto text = [](auto coverage) {
    constexpr const char* names[] = {"exact", "interpolated", "extrapolated", "spec"};
    return names[static_cast<int>(coverage)];
  };
  const int rank = account::first_rank(grid, role);
  if (const auto* collective = std::get_if<program::Collective>(&op.shape)) {
    const program::Group& g = program.groups[static_cast<std::size_t>(collective->group)];
    const std::vector<int> members = grid.members(rank, g.axes, g.pipeline_only);
    return text(collectives.collective(collective->kind, members, Bytes(program::collective_bytes(op))).coverage);
  }
  if (const auto* legs = std::get_if<program::PointToPoint>(&op.shape)) {
    const program::Leg& leg = legs->legs.back();
    const int peer = grid.peer(rank, leg.axis, leg.offset);
    return text(collectives.send(rank, peer, Bytes(program::leg_bytes(op, leg))).coverage);
  }
  if (std::holds_alternative<program::HostSync>(op.shape)) return "";
  cost::Interference beside;
  if (costs.device().cpu) beside.busy_cores = grid.ranks();  // the usual company: every rank at its compute stream
  return text(costs.kernel(role, op, beside).coverage);
}

void add_outcome(const engine::Outcome& outcome, const plan::Scenario& scenario, result::Result& out) {
  out.step_time_ps = outcome.step_time.ps();
  out.breakdown_ps = outcome.breakdown_ps;
  const double step = outcome.step_time.seconds();
  if (step > 0) {
    const auto& t = scenario.training;
    const auto per_sample = scenario.model.is_transformer() ? t.seq_len : 1;
    out.tokens_per_s = static_cast<double>(t.global_batch) * static_cast<double>(per_sample) / step;
    out.tokens_per_s_per_gpu = out.tokens_per_s / static_cast<double>(out.ranks);
  }
  double busy = 0;
  for (const double s : outcome.coverage_busy_s) busy += s;
  for (std::size_t i = 0; i < out.coverage.size() && busy > 0; ++i) out.coverage[i] = outcome.coverage_busy_s[i] / busy;
  const double total = outcome.busy_s > 0 ? outcome.busy_s : 1;
  out.interval_low_s = step * (outcome.busy_s > 0 ? outcome.busy_low_s / total : 1);
  out.interval_high_s = step * (outcome.busy_s > 0 ? outcome.busy_high_s / total : 1);
  out.ops = outcome.ops;
  out.events = outcome.events;
  out.records = outcome.records;
}

std::string device_file(const plan::Scenario& scenario, const cluster::Cluster& cluster, const Options& options) {
  const std::string& name = scenario.calibrations.empty() && !options.calibrations.empty()
                                ? options.calibrations.front()
                            : scenario.calibrations.empty() ? cluster.device_name()
                                                            : scenario.calibrations.front();
  return cost::find_device_file(name, options.data_root);
}

// Our own Performer's launches are those that were measured; other frameworks' are documented in their profiles.
Time launch_cost(const plan::Scenario& scenario, const cost::Device& device) {
  const bool measured = device.launch > Time() && scenario.framework.name == "rehearse";
  return measured ? device.launch : scenario.framework.launch_cost;
}

// A calibration of one GPU measured no collectives.
std::string collectives_file(const std::string& device, const cluster::Cluster& cluster, const Options& options) {
  if (cluster.device_name() == "local" || !collective::takes_collectives_of_topology(device)) return device;
  return cost::find_device_file(cluster.device_name(), options.data_root);
}

// Cores of a host that leaves their number open: those of the calibration named, 0 (this machine's) if none is.
int open_cores(const plan::Scenario& scenario, const Options& options) {
  for (const auto* list : {&scenario.calibrations, &options.calibrations}) {
    if (list->empty()) continue;
    const std::string file = cost::find_device_file(list->front(), options.data_root);
    return cost::is_calibration_path(file) ? cost::read_calibration(file).host.cores : 0;
  }
  return 0;
}

}  // namespace

result::Result simulate_scenario(const plan::Scenario& scenario, const Options& options) {
  const auto began = std::chrono::steady_clock::now();
  const plan::RankGrid grid = scenario.grid();
  const auto cluster = cluster::build_cluster(scenario.cluster.topology, grid.ranks(), scenario.cluster.overrides,
                                              static_cast<int>(scenario.cluster.threads_per_rank), options.data_root,
                                              open_cores(scenario, options));
  std::vector<std::string> files{device_file(scenario, *cluster, options)};
  for (const auto* list : {&scenario.calibrations, &options.calibrations})
    for (const std::string& name : *list) {
      const std::string file = cost::find_device_file(name, options.data_root);
      if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
    }
  const cluster::HostSharing sharing = cluster->host_sharing();
  const int on_host = std::min(grid.ranks(), cluster->devices_per_node());
  const auto costs = cost::load_costs(files, {on_host, std::max(1, sharing.threads_per_rank)});
  const auto collectives = collective::make_model(*cluster, collectives_file(files.front(), *cluster, options));

  const Program program = lower::lower(scenario);
  const auto violations = check(program, grid);
  if (!violations.empty())
    throw InternalError(fmt::format("the lowered program breaks {} rule(s); first: {}: {}", violations.size(),
                                    violations.front().rule, violations.front().message));

  result::Result out;
  describe_scenario(scenario, *cluster, costs->device(), out);
  out.ranks = grid.ranks();
  out.steps = options.steps;
  plan_memory(program, scenario, costs->device(), out);
  out.model_flops = model::model_flops(scenario.model, scenario.training.global_batch, scenario.training.seq_len);
  out.hardware_flops = account::hardware_flops(program, grid);
  out.flop_formula = model::flop_formula();

  engine::Options engine_options;
  engine_options.steps = options.steps;
  if (!costs->device().cpu) engine_options.launch_cost = launch_cost(scenario, costs->device());
  engine_options.progress = options.progress;
  if (options.record) {
    for (const int rank : grid.members(0, {Axis::pipeline})) {
      engine_options.recorded_ranks.push_back(rank);
      out.role_of_rank[rank] = grid.coordinate(rank, Axis::pipeline);
    }
    account::name_ops(
        program, grid,
        [&](const Role& role, const program::Op& op) {
          return coverage_of(program, role, op, grid, *costs, *collectives);
        },
        out);
  }
  const engine::Outcome outcome = engine::simulate(program, grid, *cluster, *collectives, *costs, engine_options);
  add_outcome(outcome, scenario, out);
  out.ranks_simulated = grid.ranks();

  out.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  out.peak_rss_bytes = usage.ru_maxrss * 1024;
  return out;
}

}  // namespace rehearse::run
