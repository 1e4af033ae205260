#include "execute/rank/routing_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/half.h"
#include "sim/plan/documents.h"

namespace rehearse::execute {
namespace {

float number_at(kernels::In values, std::int64_t i) {
  if (!is_half(values.type)) return static_cast<const float*>(values.data)[i];
  float number = 0;
  to_float(values.type, static_cast<const std::uint16_t*>(values.data) + i, 1, &number);
  return number;
}

}  // namespace

PositionsOf routed_positions(const plan::Scenario& scenario, const plan::RankGrid& grid, int rank) {
  const int context = grid.coordinate(rank, Axis::context), tensor = grid.coordinate(rank, Axis::tensor);
  return [p = scenario.plan, t = scenario.training, context, tensor](std::int64_t example) {
    std::vector<plan::TokenRun> held = plan::held_tokens(p, t, example, context);
    if (!p.sequence_parallel || p.tensor == 1) return held;
    const std::int64_t own = t.seq_len / p.context / p.tensor;
    return plan::part_of(held, tensor * own, own);
  };
}

std::unique_ptr<RoutingLog> RoutingLog::of(const plan::Scenario& scenario, const plan::RankGrid& grid, int rank) {
  const plan::Plan& p = scenario.plan;
  model::RoutedChoices place;
  place.data = grid.position(rank, {Axis::expert, Axis::data, Axis::replica});
  place.context = grid.coordinate(rank, Axis::context);
  place.tensor = grid.coordinate(rank, Axis::tensor);
  if (place.tensor > 0 && !p.sequence_parallel) return nullptr;
  place.sequences = p.micro_batch;
  return std::unique_ptr<RoutingLog>(
      new RoutingLog(scenario, std::move(place), routed_positions(scenario, grid, rank)));
}

void RoutingLog::add(const program::Router& gate, std::int64_t step, std::int64_t first_sequence, kernels::In chosen) {
  REHEARSE_CHECK(gate.layer >= 0 && chosen.type == DType::i32, "a gate of layer {} chooses {}", gate.layer,
                 name_of(chosen.type));
  const std::int64_t micro_batch = first_sequence / micro_batch_ % micro_batches_;
  const auto [known, added] = tokens_.try_emplace({step, micro_batch, gate.layer}, place_);
  model::RoutedChoices& t = known->second;
  if (added)
    for (const plan::TokenRun& run : positions_(step * global_batch_ + first_sequence))
      t.positions.insert(t.positions.end(), {run.first, run.count});
  t.step = step + 1, t.micro_batch = micro_batch, t.layer = gate.layer, t.first_sequence = first_sequence;
  t.rows.assign(static_cast<std::size_t>(gate.experts), 0);
  const auto* ids = static_cast<const std::int32_t*>(chosen.data);
  t.chosen.assign(ids, ids + gate.tokens * gate.top_k);
  for (const std::int32_t expert : t.chosen) ++t.rows.at(static_cast<std::size_t>(expert));
}

std::vector<model::RoutedChoices> RoutingLog::all() const {
  std::vector<model::RoutedChoices> out;
  for (const auto& [key, tokens] : tokens_) out.push_back(tokens);
  return out;
}

void RoutingReplay::choose(const program::Router& gate, std::int64_t step, std::int64_t first_sequence,
                           std::int32_t* chosen) const {
  std::int32_t* to = chosen;
  for (const plan::TokenRun& run : positions_(step * global_batch_ + first_sequence))
    for (std::int64_t p = run.first; p < run.first + run.count; ++p)
      for (std::int64_t s = first_sequence; s < first_sequence + sequences_; ++s)
        to = std::copy_n(choices_->of(step_ > 0 ? step_ : step + 1, gate.layer, s, p), gate.top_k, to);
  REHEARSE_CHECK(to - chosen == gate.tokens * gate.top_k, "a gate of {} tokens, {} choices", gate.tokens, to - chosen);
}

void RoutingReplay::gate(const program::Router& gate, std::int64_t step, std::int64_t first_sequence,
                         kernels::In logits, float* weights, std::int32_t* chosen) const {
  choose(gate, step, first_sequence, chosen);
  std::vector<float> scores(static_cast<std::size_t>(gate.top_k));
  for (std::int64_t t = 0; t < gate.tokens; ++t, chosen += gate.top_k, weights += gate.top_k) {
    for (std::size_t k = 0; k < scores.size(); ++k) scores[k] = number_at(logits, t * gate.experts + chosen[k]);
    // Others may have higher scores, by any factor: of a softmax what is common to all drops out.
    const float top = *std::max_element(scores.begin(), scores.end());
    for (float& score : scores) score = gate.sigmoid ? 1 / (1 + std::exp(-score)) : std::exp(score - top);
    const float sum = std::accumulate(scores.begin(), scores.end(), 0.0F);
    for (std::size_t k = 0; k < scores.size(); ++k) weights[k] = scores[k] / sum;
  }
}

std::shared_ptr<const model::RecordedChoices> recorded_choices(const plan::Scenario& scenario, std::int64_t first,
                                                               std::int64_t end) {
  const model::Model& m = scenario.model;
  if (m.routing != model::Routing::recorded) return nullptr;
  auto choices =
      model::RecordedChoices::read(m.routing_file, m.routing_step,
                                   {m.dense_layers, m.blocks() - m.dense_layers, scenario.training.global_batch,
                                    scenario.training.seq_len, m.experts, m.experts_per_token});
  if (choices == nullptr || m.routing_step > 0) return choices;
  for (std::int64_t step = first + 1; step <= end; ++step)
    if (!choices->has(step))
      throw InputError(Diagnostic{m.routing_file, 1, 1, "",
                                  fmt::format("the record has steps {} to {}, and step {} is to be performed",
                                              choices->first_step(), choices->last_step(), step),
                                  "fewer --steps, or model.routing_step: one of them for every step"});
  return choices;
}

}  // namespace rehearse::execute
