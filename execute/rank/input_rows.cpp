// See input_rows.h.
#include "execute/rank/input_rows.h"

#include <algorithm>

#include "sim/plan/context_rows.h"

namespace rehearse::execute {

void load_examples(const Run& run, int rank, const program::Input& input, const std::vector<std::int64_t>& numbers,
                   void* out) {
  const plan::Plan& plan = run.scenario.plan;
  if (plan.context == 1) return run.data.load(input.kind, numbers, input.elements, out);
  // Tokens and targets are int32 [seq, examples]; other inputs are of models without context parallelism.
  std::vector<std::int32_t> whole(static_cast<std::size_t>(input.elements * plan.context));
  run.data.load(input.kind, numbers, input.elements * plan.context, whole.data());
  const auto examples = static_cast<std::int64_t>(numbers.size());
  auto* to = static_cast<std::int32_t*>(out);
  for (const plan::TokenRun& tokens :
       plan::context_tokens(plan, run.scenario.training.seq_len, run.grid.coordinate(rank, Axis::context)))
    to = std::copy_n(whole.data() + tokens.first * examples, tokens.count * examples, to);
}

}  // namespace rehearse::execute
