#include "execute/rank/routing_log.h"

#include "sim/base/check.h"

namespace rehearse::execute {

std::unique_ptr<RoutingLog> RoutingLog::of(const plan::Scenario& scenario, const plan::RankGrid& grid, int rank) {
  const plan::Plan& p = scenario.plan;
  model::RoutedTokens place;
  place.data = grid.position(rank, {Axis::expert, Axis::data, Axis::replica});
  place.context = grid.coordinate(rank, Axis::context);
  place.tensor = grid.coordinate(rank, Axis::tensor);
  if (place.tensor > 0 && !p.sequence_parallel) return nullptr;
  return std::unique_ptr<RoutingLog>(
      new RoutingLog(scenario.training.micro_batches(p), p.micro_batch, std::move(place)));
}

void RoutingLog::add(const program::Router& gate, std::int64_t step, std::int64_t first_sequence, kernels::In chosen) {
  REHEARSE_CHECK(gate.layer >= 0 && chosen.type == DType::i32, "a gate of layer {} chooses {}", gate.layer,
                 name_of(chosen.type));
  auto& rows = rows_[{step, first_sequence / micro_batch_ % micro_batches_, gate.layer}];
  rows.assign(static_cast<std::size_t>(gate.experts), 0);
  const auto* ids = static_cast<const std::int32_t*>(chosen.data);
  for (std::int64_t i = 0; i < gate.tokens * gate.top_k; ++i) ++rows.at(static_cast<std::size_t>(ids[i]));
}

std::vector<model::RoutedTokens> RoutingLog::all() const {
  std::vector<model::RoutedTokens> out;
  for (const auto& [key, rows] : rows_) {
    model::RoutedTokens& t = out.emplace_back(place_);
    std::tie(t.step, t.micro_batch, t.layer) = key;
    ++t.step;
    t.rows = rows;
  }
  return out;
}

}  // namespace rehearse::execute
