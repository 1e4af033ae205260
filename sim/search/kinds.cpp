// See kinds.h.
#include "sim/search/kinds.h"

#include <array>

namespace rehearse::search {

int complexity(const plan::Plan& plan) {
  const bool split = plan.tensor > 1 || plan.context > 1 || plan.expert > 1;
  if (plan.pipeline > 1) return split ? 4 : 3;
  if (split) return 2;
  return plan.zero > 0 ? 1 : 0;
}

std::string_view complexity_name(int complexity) {
  constexpr std::array<std::string_view, 5> kNames = {"whole replicas", "sharded replicas (ZeRO)",
                                                      "layers split over groups of ranks", "pipeline stages",
                                                      "pipeline stages of split layers"};
  return kNames.at(static_cast<std::size_t>(complexity));
}

}  // namespace rehearse::search
