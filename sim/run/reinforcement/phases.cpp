// See phases.h.
#include "sim/run/reinforcement/phases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "sim/lower/lower.h"
#include "sim/plan/schedule/schedule.h"
#include "sim/run/reinforcement/rollout.h"

namespace rehearse::run {

plan::Scenario with_assignments(const plan::Scenario& scenario, const std::vector<std::string>& own,
                                std::vector<std::string> more, const Options& options) {
  std::vector<std::string> all = own;
  all.emplace_back("reinforcement=null");
  for (std::string& each : more) all.push_back(std::move(each));
  return plan::read_scenario(scenario.file, all, options.data_root, scenario.purpose);
}

void make_forward_only(plan::Scenario& scenario, std::int64_t cached) {
  plan::Plan& p = scenario.plan;
  p.forward_only = true, p.cached_tokens = cached;
  p.recompute = plan::Recompute::none, p.offload_activations = p.offload_optimizer = false;
  p.offload_layers = 0;
  if (p.zero == 1 || p.zero == 2) p.zero = 0;
}

plan::Scenario replica_scenario(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                std::int64_t replicas, std::int64_t sequences, std::int64_t tokens, bool graph,
                                const Options& options) {
  const std::int64_t tensor = scenario.reinforcement.generation.tensor;
  std::vector<std::string> more{
      "framework=rehearse",
      "noise=null",
      "cluster.placement=null",
      "cluster.faults=null",
      "cluster.background=null",
      fmt::format("cluster.gpus={}", replicas * tensor),
      fmt::format("plan={{tensor: {}, micro_batch: {}{}}}", tensor, sequences, graph ? ", cuda_graphs: step" : ""),
      fmt::format("training.seq_len={}", tokens),
      fmt::format("training.global_batch={}", replicas * sequences)};
  if (scenario.training.narrow()) more.insert(more.end(), {"training.precision=bf16", "training.fp8_params=false"});
  if (scenario.model.mtp_depth > 0) more.emplace_back("model.mtp_depth=0");  // predicts while training alone
  if (scenario.model.attention == model::AttentionKind::unfused) more.emplace_back("model.attention=flash");
  return with_assignments(scenario, assignments, std::move(more), options);
}

// Of the schedules' least numbers of micro-batches dualpipe_v's, 2 x pipeline, is the largest.
std::int64_t whole_rows(const plan::Scenario& scenario, std::int64_t rows, std::int64_t micro_batch) {
  const plan::Plan& p = scenario.plan;
  const std::int64_t unit = p.data * micro_batch * (p.chunks > 1 ? p.pipeline : 1);
  std::int64_t whole = (rows + unit - 1) / unit * unit;
  const plan::PipelineSchedule& schedule = plan::schedule_of(p.schedule, p.pipeline);
  const auto micro_batches = [&] { return whole / (p.data * micro_batch); };
  while (p.pipeline > 1 && micro_batches() < 2 * p.pipeline && !schedule.problems(p, micro_batches()).empty())
    whole += unit;
  return whole;
}

std::int64_t replicas(const plan::Scenario& scenario) {
  const plan::Reinforcement& r = scenario.reinforcement;
  return (r.colocated() ? scenario.cluster.gpus : r.generation.gpus) / r.generation.tensor;
}

std::int64_t decoded_at_once(const plan::Scenario& scenario) {
  const plan::Reinforcement& r = scenario.reinforcement;
  const std::int64_t n = replicas(scenario);
  return std::min(r.generation.sequences, (r.sequences() + n - 1) / n);
}

namespace {

// Behind the prompt and all of the longest response but the token that is read: no position is beyond it.
std::int64_t most_cached(const plan::Scenario& scenario, std::int64_t longest) {
  return scenario.reinforcement.prompt_tokens + longest - 1;
}

}  // namespace

std::int64_t prefilled_at_once(const plan::Scenario& scenario) {
  return std::clamp<std::int64_t>(kPrefillTokens / scenario.reinforcement.prompt_tokens, 1, decoded_at_once(scenario));
}

// Layers with a sliding window read no more once the tokens cached fill it, a step's own aside.
std::vector<std::int64_t> decode_contexts(const plan::Scenario& scenario, std::int64_t longest, bool cpu) {
  const std::int64_t prompt = scenario.reinforcement.prompt_tokens, full = scenario.model.sliding_window - 1,
                     most = most_cached(scenario, longest);
  std::set<std::int64_t> contexts{prompt, most};
  if (full > prompt && full < most) contexts.insert(full);
  if (cpu) contexts.insert(1);  // a decode step, and next to nothing of a cache: sequences that have ended
  return {contexts.begin(), contexts.end()};
}

std::vector<plan::Scenario> generating_on_cpu(const plan::Scenario& scenario,
                                              const std::vector<std::string>& assignments, const Options& options) {
  const plan::Reinforcement& r = scenario.reinforcement;
  std::vector<plan::Scenario> all;
  const auto add = [&](std::int64_t sequences, std::int64_t tokens, std::int64_t cached) {
    all.push_back(replica_scenario(scenario, assignments, replicas(scenario), sequences, tokens, false, options));
    make_forward_only(all.back(), cached);
  };
  add(prefilled_at_once(scenario), r.prompt_tokens, 0);
  const auto lengths = response_lengths(r, r.longest_response(scenario.training.seq_len), scenario.training.seed);
  for (const std::int64_t cached : decode_contexts(scenario, *std::max_element(lengths.begin(), lengths.end()), true))
    add(decoded_at_once(scenario), 1, cached);
  return all;
}

namespace {

// What was left to choose is chosen; the file still leaves it.
std::vector<std::string> chosen_layers(const plan::Scenario& scenario) {
  if (scenario.plan.layers_per_stage.empty()) return {};
  return {fmt::format("plan.layers_per_stage=[{}]", fmt::join(scenario.plan.layers_per_stage, ", "))};
}

}  // namespace

plan::Scenario scoring_scenario(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                const Options& options) {
  const plan::Reinforcement& r = scenario.reinforcement;
  const std::int64_t rows = r.scoring_micro_batch > 0 ? r.scoring_micro_batch : scenario.plan.micro_batch;
  std::vector<std::string> more = chosen_layers(scenario);
  more.push_back(fmt::format("training.global_batch={}", whole_rows(scenario, r.sequences(), rows)));
  more.push_back(fmt::format("plan.micro_batch={}", rows));
  plan::Scenario scoring = with_assignments(scenario, assignments, std::move(more), options);
  make_forward_only(scoring, 0);
  return scoring;
}

PerformedPhases performed_phases(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                 const Options& options) {
  const plan::Reinforcement& r = scenario.reinforcement;
  PerformedPhases phases;
  phases.response_lengths = response_lengths(r, r.longest_response(scenario.training.seq_len), scenario.training.seed);
  const auto lower_to = [](PerformedPhase& phase, plan::Scenario&& of) {
    phase.scenario = std::move(of);
    phase.program = lower::lower(phase.scenario);
  };
  plan::Scenario prefill =
      replica_scenario(scenario, assignments, 1, prefilled_at_once(scenario), r.prompt_tokens, false, options);
  make_forward_only(prefill, 0);
  lower_to(phases.prefill, std::move(prefill));
  plan::Scenario decode = replica_scenario(scenario, assignments, 1, decoded_at_once(scenario), 1, false, options);
  // Behind as many tokens as there ever are: layers have their windows.
  const auto longest = std::max_element(phases.response_lengths.begin(), phases.response_lengths.end());
  make_forward_only(decode, most_cached(scenario, *longest));
  lower_to(phases.decode, std::move(decode));
  lower_to(phases.scoring, scoring_scenario(scenario, assignments, options));
  lower_to(phases.update, with_assignments(scenario, assignments, chosen_layers(scenario), options));
  return phases;
}

}  // namespace rehearse::run
