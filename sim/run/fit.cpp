// See fit.h. The candidates stand in the order of what they usually cost in step time, a judgement: another schedule
// and sharding of optimizer states and gradients cost least, then keeping less of the forward pass, then smaller or
// more divided matrices, then full recomputation (a third more FLOPs: Chen et al. 2016, arXiv 1604.06174), then sharded
// parameters that are gathered again for every use. Where none of these make it fit, the optimizer's step and
// states are moved to the host (ZeRO-Offload).
#include "sim/run/fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/account/stage_memory.h"
#include "sim/base/diagnostics.h"
#include "sim/lower/lower.h"
#include "sim/run/device_kinds.h"
#include "sim/run/prepared.h"

namespace rehearse::run {
namespace {

constexpr int most_changes = 3;

std::vector<std::string> candidates(const plan::Scenario& scenario) {
  const plan::Plan& p = scenario.plan;
  // Recomputation op by op keeps no more of it.
  const bool latents = scenario.model.latent_attention() && !p.recompute_latent && p.recompute != plan::Recompute::ops;
  std::vector<std::string> list;
  const auto add = [&](bool sensible, std::string assignment) {
    if (sensible) list.push_back("plan." + std::move(assignment));
  };
  add(p.pipeline > 1 && p.schedule != plan::Schedule::one_f_one_b, "schedule=1f1b");
  add(p.data > 1 && p.zero < 1, "zero=1");
  add(p.data > 1 && p.zero < 2, "zero=2");
  add(p.tensor > 1 && !p.sequence_parallel, "sequence_parallel=true");
  add(latents && p.recompute != plan::Recompute::full, "recompute_latent=true");
  add(p.recompute == plan::Recompute::none, "recompute=selective");
  add(p.micro_batch > 1, "micro_batch=1");
  add(true, fmt::format("pipeline={}", p.pipeline * 2));
  add(true, fmt::format("tensor={}", p.tensor * 2));
  add(p.recompute != plan::Recompute::full, "recompute=full");
  add(p.recompute != plan::Recompute::none && p.recompute_layers > 0, "recompute_layers=auto");
  add(p.recompute != plan::Recompute::none && p.recompute_every > 1, "recompute_every=1");
  add(p.data > 1 && p.zero < 3, "zero=3");
  return list;
}

// Reads and lowers the scenario with other assignments, and says what it then needs.
class Trials {
 public:
  Trials(const plan::Scenario& scenario, const std::vector<std::string>& assignments, const Options& options,
         const Machine& machine)
      : scenario_(scenario),
        assignments_(assignments),
        options_(options),
        machine_(machine),
        cluster_(*machine.cluster) {}

  struct Trial {
    plan::Scenario scenario;
    Changes changes;
  };

  // nullopt if that is no plan that can be.
  std::optional<Trial> with(const std::vector<std::string>& changes) const {
    std::vector<std::string> all = assignments_;
    all.insert(all.end(), changes.begin(), changes.end());
    try {
      Trial trial{plan::read_scenario(scenario_.file, all, options_.data_root, scenario_.purpose), {changes}};
      if (std::optional<ChosenLayers> chosen = choose_layers(trial.scenario, machine_))
        trial.scenario = std::move(chosen->scenario);
      const std::vector<result::StageMemory> stages = stages_of(machine_, trial.scenario, lower::lower(trial.scenario));
      const Room room = least_room(machine_, scenario_, stages);
      trial.changes.peak_bytes = room.peak;
      trial.changes.fits = room.fits() && hosts_have_room(stages);
      return trial;
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

 private:
  // For as many ranks of the stage that keeps most there as a node has devices.
  bool hosts_have_room(const std::vector<result::StageMemory>& stages) const {
    std::int64_t most = 0;
    for (const result::StageMemory& stage : stages) most = std::max(most, stage.host);
    std::int64_t room = cluster_.node_view(0).host.size.count();
    for (int node = 1; node < cluster_.nodes(); ++node)
      room = std::min(room, cluster_.node_view(node).host.size.count());
    return most == 0 || room == 0 ||
           most * std::min(cluster_.devices_per_node(), static_cast<int>(scenario_.cluster.gpus)) <= room;
  }

  const plan::Scenario& scenario_;
  const std::vector<std::string>& assignments_;
  const Options& options_;
  const Machine& machine_;
  const cluster::Cluster& cluster_;
};

// `changes` and one more, in place of an earlier one of the same key.
std::vector<std::string> joined(const std::vector<std::string>& changes, const std::string& change) {
  const std::string key = change.substr(0, change.find('=') + 1);
  std::vector<std::string> all;
  for (const std::string& earlier : changes) {
    if (!earlier.starts_with(key)) all.push_back(earlier);
  }
  all.push_back(change);
  return all;
}

// The first candidate on top of `base` with which it fits, else the one that needs least.
std::optional<Trials::Trial> best_on_top(const Trials& trials, const Trials::Trial& base) {
  std::optional<Trials::Trial> nearest;
  for (const std::string& candidate : candidates(base.scenario)) {
    std::optional<Trials::Trial> trial = trials.with(joined(base.changes.assignments, candidate));
    if (!trial) continue;
    if (trial->changes.fits) return trial;
    if (!nearest || trial->changes.peak_bytes < nearest->changes.peak_bytes) nearest = std::move(trial);
  }
  return nearest;
}

// The first of these changes with which it fits once the optimizer is on the host, with ZeRO 2 if need be: gradients go
// there too then, also of one rank alone.
std::optional<Trials::Trial> with_optimizer_on_host(const Trials& trials,
                                                    const std::vector<std::vector<std::string>>& changes) {
  for (const std::vector<std::string>& before : changes) {
    const std::vector<std::string> on_host = joined(before, "plan.offload_optimizer=true");
    for (const auto& all : {on_host, joined(on_host, "plan.zero=2")})
      if (auto trial = trials.with(all); trial && trial->changes.fits) return trial;
  }
  return std::nullopt;
}

}  // namespace

program::OwnMemory own_memory_on(const Machine& machine, const plan::Scenario& scenario) {
  if (!scenario.training.deterministic || scenario.framework.allocator == plan::Allocator::arena) return {};
  return [&machine](const program::Op& op) {
    std::int64_t most = 0;
    for (int kind = 0; kind < machine.kinds(); ++kind) most = std::max(most, machine.costs_of(kind).own_memory(op));
    return most;
  };
}

std::vector<result::StageMemory> stages_on(const Machine& machine, const plan::Scenario& scenario,
                                           const program::Program& program, const program::Arenas* arenas) {
  const cost::Device& device = machine.costs->device();
  plan::FrameworkProfile framework = scenario.framework;
  if (framework.measured_host && device.reserve > Bytes()) framework.memory_reserve = device.reserve;
  return account::stage_memory(program, scenario.grid(), framework, device.cpu, arenas,
                               own_memory_on(machine, scenario));
}

std::int64_t largest_peak(const std::vector<result::StageMemory>& stages) {
  std::int64_t peak = 0;
  for (const result::StageMemory& stage : stages) peak = std::max(peak, stage.peak);
  return peak;
}

std::int64_t headroom_on(const cost::Device& device, const plan::Scenario& scenario) {
  return std::min(scenario.cluster.headroom.of(device.memory), device.memory).count();
}

std::pair<std::int64_t, std::int64_t> fullest_host(const cluster::Cluster& cluster, const plan::RankGrid& grid,
                                                   const std::vector<result::StageMemory>& stages) {
  constexpr std::int64_t kEndless = std::int64_t{1} << 62;  // of a host whose size is not known
  std::pair<std::int64_t, std::int64_t> fullest{0, 0};
  const auto beyond = [](std::int64_t bytes, std::int64_t size) { return bytes - (size > 0 ? size : kEndless); };
  for (int node = 0; node < cluster.nodes(); ++node) {
    std::int64_t bytes = 0;
    for (const int rank : cluster.devices_of(node))
      for (const result::StageMemory& stage : stages)
        if (stage.stage == grid.coordinate(rank, Axis::pipeline)) bytes += stage.host;
    const std::int64_t size = cluster.node_view(node).host.size.count();
    if (bytes > 0 && (fullest.first == 0 || beyond(bytes, size) > beyond(fullest.first, fullest.second)))
      fullest = {bytes, size};
  }
  return fullest;
}

std::optional<Changes> changes_that_fit(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                        const Options& options) {
  const Prepared prepared(scenario, options);
  const Trials trials(scenario, assignments, options, prepared.machine());
  std::optional<Trials::Trial> taken = trials.with({});
  if (!taken) return std::nullopt;
  std::vector<std::vector<std::string>> steps{{}};
  for (int count = 0; count < most_changes; ++count) {
    std::optional<Trials::Trial> next = best_on_top(trials, *taken);
    if (!next || next->changes.peak_bytes >= taken->changes.peak_bytes) break;
    taken = std::move(next);
    steps.push_back(taken->changes.assignments);
    if (taken->changes.fits) break;
  }
  if (!taken->changes.fits && !taken->scenario.plan.offload_optimizer && !prepared.costs().device().cpu)
    if (auto on_host = with_optimizer_on_host(trials, steps)) taken = std::move(on_host);
  if (taken->changes.assignments.empty()) return std::nullopt;
  return taken->changes;
}

}  // namespace rehearse::run
