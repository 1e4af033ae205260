// What every kind of topology file says of a port or link: a nominal bandwidth, the share of it that payload reaches,
// and a latency.
#pragma once

#include <optional>

#include "sim/base/document.h"

namespace rehearse::cluster {

struct Port {
  Bandwidth effective;
  Time latency;
};

Time read_latency(const Node& node, const char* key, std::optional<Time> fallback = {});
// The latency is required unless one is given for where it is left out.
Port read_port(const Node& node, std::optional<Time> latency = {});

}  // namespace rehearse::cluster
