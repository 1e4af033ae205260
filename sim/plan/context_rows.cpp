// See context_rows.h.
#include "sim/plan/context_rows.h"

#include <algorithm>

namespace rehearse::plan {

std::vector<TokenRun> context_tokens(const Plan& plan, std::int64_t seq, int coordinate) {
  if (plan.context == 1) return {{0, seq}};
  if (plan.context_kind == ContextKind::all_to_all) return {{coordinate * (seq / plan.context), seq / plan.context}};
  const std::int64_t chunk = seq / (2 * plan.context);
  return {{coordinate * chunk, chunk}, {(2 * plan.context - 1 - coordinate) * chunk, chunk}};
}

std::vector<TokenRun> part_of(const std::vector<TokenRun>& runs, std::int64_t first, std::int64_t count) {
  std::vector<TokenRun> part;
  std::int64_t at = 0;  // held tokens before the run
  for (const TokenRun& run : runs) {
    const std::int64_t begin = std::max(first, at), end = std::min(first + count, at + run.count);
    if (begin < end) part.push_back({run.first + begin - at, end - begin});
    at += run.count;
  }
  return part;
}

}  // namespace rehearse::plan
