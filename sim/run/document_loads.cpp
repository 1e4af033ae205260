// See document_loads.h.
#include "sim/run/document_loads.h"

#include <algorithm>
#include <map>
#include <optional>

#include "sim/base/interrupt.h"
#include "sim/base/window.h"
#include "sim/plan/documents.h"

namespace rehearse::run {
namespace {

// Of the ranks whose sequences begin with the `replica`-th of the data-parallel replicas; of the queries of one place
// in the context group, or of all.
std::vector<engine::Factor> loads_of(const plan::Scenario& s, int steps, std::int64_t document, std::int64_t replica,
                                     std::optional<int> context) {
  const plan::Training& t = s.training;
  const std::int64_t micro_batches = t.micro_batches(s.plan), batch = s.plan.micro_batch;
  const std::vector<plan::TokenRun> whole{{0, t.seq_len}};
  const std::int64_t tokens = context ? t.seq_len / s.plan.context : t.seq_len;
  // Where windows are of some layers alone all are taken as seeing the whole document.
  const std::int64_t window = s.model.full_attention_every == 0 ? s.model.sliding_window : 0;
  const double equal = static_cast<double>(batch * tokens) * static_cast<double>(window_pairs(document, window)) /
                       static_cast<double>(document);
  std::vector<engine::Factor> loads;
  for (std::int64_t step = 0; step < steps; ++step)
    for (std::int64_t m = 0; m < micro_batches; ++m) {
      const std::int64_t first = step * t.global_batch + (replica * micro_batches + m) * batch;
      std::int64_t pairs = 0;
      for (std::int64_t b = 0; b < batch; ++b)
        pairs += plan::document_pairs(t, first + b, context ? plan::held_tokens(s.plan, t, first + b, *context) : whole,
                                      window);
      loads.push_back(engine::factor_of(static_cast<double>(pairs) / equal));
    }
  return loads;
}

}  // namespace

std::optional<engine::AttentionLoads> document_loads(const plan::Scenario& s, int steps) {
  if (!s.training.packs()) return std::nullopt;
  const plan::RankGrid grid = s.grid();
  engine::AttentionLoads loads;
  loads.steps = std::max(1, steps);
  loads.micro_batches = static_cast<std::int32_t>(s.training.micro_batches(s.plan));
  const std::int64_t document = plan::equal_document_length(s.training);
  const bool own_queries = s.plan.context > 1 && s.plan.context_kind != plan::ContextKind::all_to_all;
  std::map<std::pair<int, int>, std::int32_t> row_of_part;           // by replica and place in the context group
  std::map<std::vector<engine::Factor>, std::int32_t> row_of_loads;  // that are the same
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const int replica = grid.position(rank, {Axis::expert, Axis::data, Axis::replica});
    const int context = own_queries ? grid.coordinate(rank, Axis::context) : 0;
    const auto [known, is_new] = row_of_part.try_emplace({replica, context}, 0);
    if (is_new) {
      check_interrupt();
      std::vector<engine::Factor> row =
          loads_of(s, loads.steps, document, replica, own_queries ? std::optional(context) : std::nullopt);
      const auto [same, unseen] = row_of_loads.try_emplace(row, static_cast<std::int32_t>(loads.rows.size()));
      if (unseen) loads.rows.push_back(std::move(row));
      known->second = same->second;
    }
    loads.row_of.push_back(known->second);
  }
  return loads;
}

}  // namespace rehearse::run
