// What every kind of topology file says of a port or link: a nominal bandwidth, the share of it that payload reaches,
// and a latency.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/base/document.h"
#include "sim/cluster/cluster.h"

namespace rehearse::cluster {

// A whole number of [min, max] that fits an int; without a fallback the key is required.
inline int integer(const Node& node, const char* key, std::int64_t min, std::int64_t max,
                   std::optional<std::int64_t> fallback = {}) {
  return static_cast<int>(node.integer(key, fallback, min, max));
}

struct Port {
  Bandwidth effective;
  Time latency;
};

Time read_latency(const Node& node, const char* key, std::optional<Time> fallback = {});
// The latency is required unless one is given for where it is left out.
Port read_port(const Node& node, std::optional<Time> latency = {});

// The block `host_memory` of a topology of accelerators.
HostMemory read_host_memory(const Node& root);

}  // namespace rehearse::cluster
