// Which tokens of a sequence a rank of a context group holds. ring and all_gather: two chunks, the coordinate-th from
// the front and from the back, so that causal attention is as much work on every rank (Brandon et al. 2023, arXiv
// 2311.09431; Dubey et al. 2024, arXiv 2407.21783). all_to_all: one run of tokens, since attention is split by heads
// (Jacobs et al. 2023, arXiv 2309.14509).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/plan/plan.h"

namespace rehearse::plan {

// Tokens [first, first + count) of a sequence.
struct TokenRun {
  std::int64_t first = 0, count = 0;
};

// In the order in which the rank holds them. `seq` tokens divide as feasibility.cpp asks.
std::vector<TokenRun> context_tokens(const Plan& plan, std::int64_t seq, int coordinate);
// Of them, held tokens [first, first + count).
std::vector<TokenRun> part_of(const std::vector<TokenRun>& runs, std::int64_t first, std::int64_t count);

}  // namespace rehearse::plan
