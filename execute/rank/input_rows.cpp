// See input_rows.h.
#include "execute/rank/input_rows.h"

#include <algorithm>

#include "sim/base/check.h"
#include "sim/plan/documents.h"

namespace rehearse::execute {
namespace {

// Each place's number becomes that of the place `ahead` further on.
void move_up(std::vector<std::int32_t>& whole, std::int64_t examples, const program::Input& input) {
  const std::int32_t past = input.kind == program::InputKind::targets ? program::CrossEntropy::kNoTarget : 0;
  const auto moved = std::min(input.ahead * examples, static_cast<std::int64_t>(whole.size()));
  std::fill(std::copy(whole.begin() + moved, whole.end(), whole.begin()), whole.end(), past);
}

void load_all(const Run& run, int rank, const program::Input& input, const std::vector<std::int64_t>& numbers,
              void* out) {
  const plan::Plan& plan = run.scenario.plan;
  if (plan.context == 1 && input.ahead == 0) return run.data.load(input.kind, numbers, input.elements, out);
  // Tokens and targets are int32 [seq, examples]; other inputs are of models without context parallelism.
  std::vector<std::int32_t> whole(static_cast<std::size_t>(input.elements * plan.context));
  run.data.load(input.kind, numbers, input.elements * plan.context, whole.data());
  const auto examples = static_cast<std::int64_t>(numbers.size());
  move_up(whole, examples, input);
  auto* to = static_cast<std::int32_t*>(out);
  if (plan.context == 1) {
    std::copy(whole.begin(), whole.end(), to);
    return;
  }
  const plan::Training& training = run.scenario.training;
  REHEARSE_CHECK(!plan::rings_by_document(plan, training) || examples == 1, "{} rows of documents", examples);
  for (const plan::TokenRun& tokens :
       plan::held_tokens(plan, training, numbers.front(), run.grid.coordinate(rank, Axis::context)))
    to = std::copy_n(whole.data() + tokens.first * examples, tokens.count * examples, to);
}

}  // namespace

void load_examples(const Run& run, int rank, const program::Input& input, const std::vector<std::int64_t>& numbers,
                   void* out) {
  load_all(run, rank, input, numbers, out);
  const std::int64_t ignored = run.scenario.training.ignored_token;
  if (ignored < 0 || input.kind != program::InputKind::targets) return;
  auto* const targets = static_cast<std::int32_t*>(out);
  std::replace(targets, targets + input.elements, static_cast<std::int32_t>(ignored), program::CrossEntropy::kNoTarget);
}

}  // namespace rehearse::execute
