// What every kind of topology file says of a port or link: a nominal bandwidth, the share of it that payload reaches,
// and a latency.
#pragma once

#include "sim/base/document.h"

namespace rehearse::cluster {

struct Port {
  Bandwidth effective;
  Time latency;
};

Time read_latency(const Node& node, const char* key);
Port read_port(const Node& node);

}  // namespace rehearse::cluster
