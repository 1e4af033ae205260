// See sections.h.
#include <fmt/format.h>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

// What a vision transformer's units do not know.
void check_vision(const Sections& sections, const Scenario& s) {
  if (!s.model.is_vision()) return;
  if (s.plan.context > 1)
    sections.plan.get("context").error(
        fmt::format("context = {}: contexts are split with a causal mask in mind, which a vision transformer has not",
                    s.plan.context),
        "context: 1");
  if (s.plan.sequence_parallel && s.plan.tensor > 1)
    sections.plan.get("sequence_parallel")
        .error("the class token stands before the patches, and the head reads its row alone",
               "sequence_parallel: false");
}

}  // namespace rehearse::plan::detail
