// A result as folded and unfolded simulations must agree on it.
#pragma once

#include <string>

#include "sim/result/result.h"

namespace rehearse {

// result.json without what the engine took and without the scenario's name and file.
inline std::string without_engine(result::Result r) {
  r.ops = r.events = r.ranks_simulated = r.peak_rss_bytes = 0, r.wall_s = 0;
  r.scenario_name = r.scenario_file = "";
  return to_json(r);
}

}  // namespace rehearse
