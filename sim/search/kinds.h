// Kinds of plans by how they split a model, from simple to complicated, and what a search found of those simpler than
// its best plan's: why they were not chosen (reports/advice.h says it in words).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/plan/scenario.h"

namespace rehearse::search {

// The simpler the less: whole replicas 0 (one device among them), sharded ones (ZeRO) 1, over tensor, context or expert
// groups 2, in stages 3, in stages of split layers 4.
int complexity(const plan::Plan& plan);
std::string_view complexity_name(int complexity);

struct KindEvidence {
  int kind = 0;
  std::int64_t plans = 0, too_large = 0;  // that no rule forbids; of these
  std::optional<std::size_t> smallest;    // of those too large the one that needs least
  std::optional<std::size_t> best;        // simulated; none where nothing fits, or where a limit ended the search
};

}  // namespace rehearse::search
