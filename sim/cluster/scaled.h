// A cluster whose links are faster or slower than they are, for what-ifs: `inside` a node (NVLink, PCIe, loopback) and
// on the `network` (NICs and the links behind them). Everything else, latencies too, is the original's.
#pragma once

#include <memory>

#include "sim/cluster/cluster.h"

namespace rehearse::cluster {

struct LinkScale {
  double inside = 1, network = 1;
};

// `original` must outlive it.
std::unique_ptr<Cluster> scaled(const Cluster& original, const LinkScale& scale);

}  // namespace rehearse::cluster
