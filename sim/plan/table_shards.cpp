// See table_shards.h.
#include "sim/plan/table_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "sim/base/check.h"

namespace rehearse::plan {

bool shards_tables(const Scenario& s) {
  return s.plan.embedding_tables == EmbeddingTables::sharded && s.plan.data > 1 &&
         model::tables_of(s.model.layer_list) != nullptr;
}

namespace {

// Each rank takes tables up to `most` rows, but leaves one for each rank behind it; empty: they are not taken up.
std::vector<std::size_t> taken_up_to(const std::vector<std::int64_t>& rows, std::size_t ranks, std::int64_t most) {
  std::vector<std::size_t> first;
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    first.push_back(next);
    std::int64_t taken = 0;
    const std::size_t left = ranks - rank - 1;
    while (next + left < rows.size() && taken + rows[next] <= most) taken += rows[next++];
    if (next == first.back()) return {};
  }
  first.push_back(next);
  return next == rows.size() ? first : std::vector<std::size_t>();
}

}  // namespace

std::vector<std::size_t> first_tables(const std::vector<std::int64_t>& rows, std::size_t ranks) {
  REHEARSE_CHECK(ranks > 0 && ranks <= rows.size(), "{} tables for {} ranks", rows.size(), ranks);
  std::int64_t low = *std::max_element(rows.begin(), rows.end()),
               high = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (taken_up_to(rows, ranks, middle).empty())
      low = middle + 1;
    else
      high = middle;
  }
  return taken_up_to(rows, ranks, high);
}

namespace detail {
namespace {

void check_sharded(const Node& key, const Scenario& s, std::size_t tables) {
  if (s.plan.data > static_cast<std::int64_t>(tables))
    key.error(
        fmt::format("sharded: {} data-parallel ranks share {} tables, each whole on one rank", s.plan.data, tables),
        fmt::format("at most {} data-parallel ranks, or replicated", tables));
  if (s.plan.replicas > 1)
    key.error("sharded: each table is on one data-parallel rank, not on one of each group of plan.zero_group",
              "leave plan.zero_group out");
  if (s.plan.recompute != Recompute::none)
    key.error("sharded: vectors that other ranks have sent are kept for backward and not sent again",
              "plan.recompute: none");
}

void check_sparse(const Node& training, const Scenario& s) {
  const Node key = training.get("sparse_optimizer");
  const auto refuse = [&](const std::string& why, const std::string& instead) { key.error(why, instead); };
  if (s.training.micro_batches(s.plan) > 1)
    refuse(fmt::format("rows are updated in backward, and a step has {} micro-batches, whose gradients belong together",
                       s.training.micro_batches(s.plan)),
           "a plan.micro_batch of global_batch / data, or none");
  if (s.plan.data > 1 && !shards_tables(s))
    refuse("rows are updated in backward, before ranks that have the same tables could add up their gradients",
           "plan.embedding_tables: sharded, or none");
  if (s.training.clip > 0)
    refuse("rows are updated in backward, before the norm of all gradients is known", "training.clip: 0, or none");
  if (s.training.precision == Precision::fp16)
    refuse("rows are updated in backward, before it is known whether a scaled gradient overflowed",
           "precision: bf16 or fp32, or none");
}

}  // namespace

void check_tables(const Node& plan, const Node& training, const Scenario& s) {
  const model::Layer* const tables = model::tables_of(s.model.layer_list);
  if (tables == nullptr) {
    if (s.plan.embedding_tables == EmbeddingTables::sharded)
      plan.get("embedding_tables")
          .error("this model has no tables of sparse features", "a layer tables, or leave it out");
    if (s.training.sparse_optimizer != SparseOptimizer::none)
      training.get("sparse_optimizer")
          .error("this model has no tables of sparse features", "a layer tables, or leave it out");
    return;
  }
  if (s.plan.embedding_tables == EmbeddingTables::sharded)
    check_sharded(plan.get("embedding_tables"), s, tables->rows.size());
  if (s.training.sparse_optimizer != SparseOptimizer::none) check_sparse(training, s);
}

}  // namespace detail
}  // namespace rehearse::plan
