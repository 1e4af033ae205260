#include "sim/cluster/read_port.h"

#include <fmt/format.h>

#include <cmath>

namespace rehearse::cluster {
namespace {

// A thousand times what any port has; sums over a cluster's links stay below 64 bits.
constexpr Bandwidth kHighestBandwidth(1'000'000'000'000'000);
// Longer ones are mistakes, as bandwidths below kLowestBandwidth are.
constexpr Time kLongestLatency = Time::from_us(1'000'000);

}  // namespace

Time read_latency(const Node& node, const char* key, std::optional<Time> fallback) {
  const Time latency = node.time(key, fallback);
  if (latency > kLongestLatency)
    node.get(key).error(fmt::format("{} is out of range, expected at most 1s", *node.get(key).as_text()));
  return latency;
}

Port read_port(const Node& node, std::optional<Time> latency) {
  const Bandwidth nominal = node.bandwidth("bandwidth");
  const double efficiency = node.number("efficiency", 1.0, 0.01, 1.0);
  Port port;
  port.effective = Bandwidth(std::llround(static_cast<double>(nominal.per_s()) * efficiency));
  port.latency = read_latency(node, "latency", latency);
  node.check_lowest("bandwidth", nominal);
  if (nominal > kHighestBandwidth)
    node.get("bandwidth")
        .error(
            fmt::format("{} is out of range, expected at most 1000TB/s", node.get("bandwidth").as_text().value_or("")));
  return port;
}

HostMemory read_host_memory(const Node& root) {
  HostMemory memory{Bytes(kHostBytes), Bandwidth(kHostBytesPerSecond)};
  const Node node = root.get("host_memory");
  if (!node) return memory;
  memory.size = node.bytes("size", memory.size);
  memory.bandwidth = node.bandwidth("bandwidth", memory.bandwidth);
  node.finish();
  const auto check = [&](const char* key, bool sound, const char* expected) {
    if (node.get(key) && !sound)
      node.get(key).error(
          fmt::format("{} is out of range, expected {}", node.get(key).as_text().value_or(""), expected));
  };
  check("size", memory.size >= Bytes(1'000'000) && memory.size <= Bytes(1'000'000'000'000'000), "1MB to 1000TB");
  check("bandwidth", memory.bandwidth >= kLowestBandwidth && memory.bandwidth <= kHighestBandwidth,
        "1MB/s to 1000TB/s");
  return memory;
}

}  // namespace rehearse::cluster
