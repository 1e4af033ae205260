// See fit.h. The candidates stand in the order of what they usually cost in step time, a judgement: another schedule
// and sharding of optimizer states and gradients cost least, then keeping less of the forward pass, then smaller or
// more divided matrices, then full recomputation (a third more FLOPs: Chen et al. 2016, arXiv 1604.06174), then sharded
// parameters that are gathered again for every use.
#include "sim/run/fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/account/stage_memory.h"
#include "sim/base/diagnostics.h"
#include "sim/lower/lower.h"
#include "sim/run/prepared.h"

namespace rehearse::run {
namespace {

std::vector<std::string> candidates(const plan::Plan& p) {
  std::vector<std::string> list;
  const auto add = [&](bool sensible, std::string assignment) {
    if (sensible) list.push_back("plan." + std::move(assignment));
  };
  add(p.pipeline > 1 && p.schedule != plan::Schedule::one_f_one_b, "schedule=1f1b");
  add(p.data > 1 && p.zero < 1, "zero=1");
  add(p.data > 1 && p.zero < 2, "zero=2");
  add(p.tensor > 1 && !p.sequence_parallel, "sequence_parallel=true");
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

// The peak under one more assignment; nullopt if that is no plan that can be.
std::optional<std::int64_t> peak_with(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                      const std::string& data_root, const cost::Device& device) {
  try {
    const plan::Scenario changed = plan::read_scenario(scenario.file, assignments, data_root, scenario.purpose);
    return largest_peak(stages_on(device, changed, lower::lower(changed)));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<result::StageMemory> stages_on(const cost::Device& device, const plan::Scenario& scenario,
                                           const program::Program& program, const program::Arenas* arenas) {
  plan::FrameworkProfile framework = scenario.framework;
  if (framework.measured_host && device.reserve > Bytes()) framework.memory_reserve = device.reserve;
  return account::stage_memory(program, scenario.grid(), framework, device.cpu, arenas);
}

std::int64_t largest_peak(const std::vector<result::StageMemory>& stages) {
  std::int64_t peak = 0;
  for (const result::StageMemory& stage : stages) peak = std::max(peak, stage.peak);
  return peak;
}

std::int64_t headroom_on(const cost::Device& device, const plan::Scenario& scenario) {
  return std::min(scenario.cluster.headroom.of(device.memory), device.memory).count();
}

std::optional<Change> change_that_fits(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                       const Options& options) {
  const Prepared prepared(scenario, options);
  const cost::Device& device = prepared.costs().device();
  std::optional<Change> nearest;
  for (const std::string& candidate : candidates(scenario.plan)) {
    std::vector<std::string> with = assignments;
    with.push_back(candidate);
    const std::optional<std::int64_t> peak = peak_with(scenario, with, options.data_root, device);
    if (!peak) continue;
    if (*peak <= device.memory.count() - headroom_on(device, scenario)) return Change{candidate, *peak, true};
    if (!nearest || *peak < nearest->peak_bytes) nearest = Change{candidate, *peak, false};
  }
  return nearest;
}

}  // namespace rehearse::run
