// Which data-parallel rank has which tables of sparse features, with plan.embedding_tables: sharded: whole tables, each
// rank some that follow one another, so that the largest share of rows is as small as that allows.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/document.h"
#include "sim/plan/scenario.h"

namespace rehearse::plan {

// Whether several ranks have tables of their own.
bool shards_tables(const Scenario& scenario);
// Of each of `ranks` ranks its first table, and behind them their number. There are as many tables as ranks or more.
std::vector<std::size_t> first_tables(const std::vector<std::int64_t>& rows, std::size_t ranks);

namespace detail {
// What of plan.embedding_tables and training.sparse_optimizer does not go together.
void check_tables(const Node& plan, const Node& training, const Scenario& scenario);
}  // namespace detail

}  // namespace rehearse::plan
