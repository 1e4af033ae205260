// The table of routing as it was before it had what each token chose (sim/model/recorded_choices.h).
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "sim/model/recorded_routing.h"

namespace rehearse {

inline std::string older_routing_table(const std::vector<model::RoutedTokens>& all) {
  std::string out = "step,micro_batch,layer,data,context,tensor,rows\n";
  for (const model::RoutedTokens& t : all)
    out += fmt::format("{},{},{},{},{},{},{}\n", t.step, t.micro_batch, t.layer, t.data, t.context, t.tensor,
                       fmt::join(t.rows, " "));
  return out;
}

}  // namespace rehearse
