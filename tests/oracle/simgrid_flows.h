// Completion times of flows in SimGrid 3.32 (Casanova et al. 2014, "Versatile, scalable, and accurate simulation of
// distributed applications and platforms"), its fluid max-min network with everything that is not sharing turned off:
// no latencies, no TCP window, no cross traffic of acknowledgements, no corrections of rates or sizes.
#pragma once

#include <cstdint>
#include <vector>

namespace rehearse::oracle {

struct Flow {
  std::int64_t start_ps = 0, bytes = 0;
  std::vector<std::int32_t> links;  // it crosses, each once
};

// What a link carries from then on.
struct Change {
  std::int64_t at_ps = 0;
  std::int32_t link = 0;
  std::int64_t bytes_per_s = 0;
};

// When each flow ends, in seconds. Runs in a process of its own, since SimGrid's engine can be made once a process.
std::vector<double> simgrid_ends(const std::vector<std::int64_t>& bytes_per_s, const std::vector<Flow>& flows,
                                 const std::vector<Change>& changes = {});

}  // namespace rehearse::oracle
