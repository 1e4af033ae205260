// See balance.h.
#include "sim/account/balance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "sim/plan/schedule/schedule.h"
#include "sim/program/work.h"

namespace rehearse::account {
namespace {

using program::Phase;

bool is_compute(const program::Op& op) {
  if (program::is_transfer(op) || std::holds_alternative<program::HostSync>(op.shape)) return false;
  return op.phase == Phase::forward || op.phase == Phase::recompute || op.phase == Phase::backward;
}

// Of the stage's layers, each stage's chunks together, of both copies.
std::vector<std::int64_t> layers_of_stages(const plan::Plan& plan) {
  std::vector<std::int64_t> layers(static_cast<std::size_t>(plan.pipeline));
  const plan::PipelineSchedule& schedule = plan::schedule_of(plan.schedule, plan.pipeline);
  for (std::size_t part = 0; part < plan.layers_per_stage.size(); ++part)
    layers[static_cast<std::size_t>(schedule.stage_of(static_cast<int>(part), static_cast<int>(plan.pipeline)))] +=
        plan.layers_per_stage[part];
  if (!schedule.bidirectional()) return layers;
  const std::vector<std::int64_t> down = layers;
  for (std::size_t stage = 0; stage < layers.size(); ++stage) layers[stage] += down[layers.size() - 1 - stage];
  return layers;
}

// The rules of feasibility.cpp for another number of stages.
bool goes_with(const plan::Scenario& s, std::int64_t pipeline) {
  const std::int64_t parts = s.plan.tensor * s.plan.context * pipeline;
  if (s.cluster.gpus % parts != 0) return false;
  const std::int64_t at_once = s.cluster.gpus / parts * s.plan.micro_batch;
  if (s.training.global_batch % at_once != 0) return false;
  return s.plan.chunks == 1 || s.training.global_batch / at_once % pipeline == 0;
}

// The nearest below and above `own` of those that hold.
template <class Holds>
std::vector<std::int64_t> nearest(std::int64_t own, std::int64_t most, Holds&& holds) {
  std::vector<std::int64_t> found;
  for (std::int64_t n = own - 1; n > 1 && found.empty(); --n)
    if (holds(n)) found.push_back(n);
  for (std::int64_t n = own + 1; n <= most; ++n)
    if (holds(n)) {
      found.push_back(n);
      break;
    }
  return found;
}

std::string either(const std::vector<std::int64_t>& numbers) {
  return fmt::format("{}", fmt::join(numbers, " or "));
}

// "plan.pipeline 32 divides the layers, or with other GPUs or another batch 48 or 96."
std::string advice(const plan::Scenario& s) {
  const Divisors d = dividing(s);
  std::vector<std::string> ways;
  if (!d.pipelines.empty()) ways.push_back("plan.pipeline " + either(d.pipelines));
  if (!d.chunks.empty()) ways.push_back("plan.chunks " + either(d.chunks));
  if (!d.other_pipelines.empty())
    ways.push_back(fmt::format("{}{}, with other GPUs or another batch", d.pipelines.empty() ? "plan.pipeline " : "",
                               either(d.other_pipelines)));
  return ways.empty() ? "" : fmt::format(" The layers divide by: {}.", fmt::join(ways, "; "));
}

std::string what_else(const plan::Scenario& s, std::size_t stage) {
  const plan::PipelineSchedule& schedule = plan::schedule_of(s.plan.schedule, s.plan.pipeline);
  const auto stage_of = [&](std::int64_t part) {
    return static_cast<std::size_t>(schedule.stage_of(static_cast<int>(part), static_cast<int>(s.plan.pipeline)));
  };
  const std::size_t end = stage_of(s.plan.pipeline * s.plan.chunks - 1);
  const bool twice = schedule.bidirectional(), first = stage == 0 || (twice && stage == end),
             last = stage == end || (twice && stage == 0);
  if (!s.model.is_transformer() || (!first && !last)) return "";
  if (first && last) return ", with the embedding and the head (logits)";
  return last ? ", with the head (logits)" : ", with the embedding";
}

}  // namespace

double flops_of(const program::Role& role, const program::Op& op) {
  return program::work_of(role, op).flops;
}

bool Balance::even_layers() const {
  return std::adjacent_find(layers.begin(), layers.end(), std::not_equal_to<>()) == layers.end();
}

Balance balance_of(const plan::Scenario& scenario, const program::Program& program, const WorkOf& work_of) {
  Balance out;
  out.layers = layers_of_stages(scenario.plan);
  out.work.resize(out.layers.size());
  for (const program::Role& role : program.roles) {
    std::vector<double> of_body(role.bodies.size(), 0);
    for (std::size_t b = 0; b < role.bodies.size(); ++b)
      for (const program::Op& op : role.bodies[b].ops)
        if (is_compute(op)) of_body[b] += work_of(role, op);
    double work = 0;
    for (const program::Slot& slot : role.slots) work += of_body[static_cast<std::size_t>(slot.body)];
    double& of_stage = out.work.at(static_cast<std::size_t>(role.pipeline));
    of_stage = std::max(of_stage, work);  // whose ranks wait for the one with most rows for its experts
  }
  const auto most = std::max_element(out.work.begin(), out.work.end());
  out.largest = static_cast<std::size_t>(most - out.work.begin());
  const double sum = std::accumulate(out.work.begin(), out.work.end(), 0.0);
  if (sum > 0) out.largest_over_mean = *most * static_cast<double>(out.work.size()) / sum;
  return out;
}

Divisors dividing(const plan::Scenario& s) {
  Divisors out;
  const std::int64_t units = plan::unit_count(s.model), chunks = s.plan.chunks;
  const auto divides = [&](std::int64_t n) { return units % (n * chunks) == 0; };
  out.pipelines = nearest(s.plan.pipeline, units, [&](std::int64_t n) { return divides(n) && goes_with(s, n); });
  out.other_pipelines = nearest(s.plan.pipeline, units, divides);
  std::erase_if(out.other_pipelines, [&](std::int64_t n) { return goes_with(s, n); });
  if (chunks > 1 && plan::schedule_of(s.plan.schedule).takes_chunks())
    out.chunks = nearest(chunks, units, [&](std::int64_t n) { return units % (n * s.plan.pipeline) == 0; });
  return out;
}

std::vector<result::Note> balance_notes(const plan::Scenario& scenario, const program::Program& program,
                                        const WorkOf& work_of, std::string_view by) {
  if (scenario.plan.pipeline == 1) return {};
  const Balance b = balance_of(scenario, program, work_of);
  const bool even = b.even_layers();
  if (b.largest_over_mean < (even ? kUnevenWork : kUnevenLayers)) return {};
  const auto [least, most] = std::minmax_element(b.layers.begin(), b.layers.end());
  const std::int64_t units = plan::unit_count(scenario.model);
  const bool divides = units % scenario.plan.pipeline == 0;
  std::string text =
      even ? fmt::format("Stages are uneven, though each holds {} of the {} layers.", *most, units)
           : fmt::format("Stages are uneven: they hold from {} to {} of the {} layers.", *least, *most, units);
  text += fmt::format(
      " Stage {} ({} layer{}{}) computes {:.2f} times as long as the mean stage, {}, and the others wait for it: "
      "{:.1f}% of the ranks' time or more.",
      b.largest, b.layers[b.largest], b.layers[b.largest] == 1 ? "" : "s", what_else(scenario, b.largest),
      b.largest_over_mean, by, 100 * (1 - 1 / b.largest_over_mean));
  if (even && b.layers[b.largest] > 1)
    text += " plan.layers_per_stage may give it fewer.";
  else if (even)
    text += " With fewer stages that is less.";
  else if (divides)
    text += fmt::format(" plan.layers_per_stage: auto gives each {}.", units / scenario.plan.pipeline);
  else
    text += advice(scenario);
  return {{"uneven_stages", text}};
}

}  // namespace rehearse::account
