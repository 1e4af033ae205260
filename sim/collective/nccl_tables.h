// Constants of NCCL's model (nccl_tuning.h) that the formulas of several algorithms take; a table that one algorithm
// alone takes stands in its file (algorithms/).
#pragma once

#include <array>
#include <cstddef>

#include "sim/collective/nccl_tuning.h"

namespace rehearse::collective::nccl {

// Microseconds; LL, LL128, Simple.
inline constexpr PerProtocol kRingBase = {6.6, 14.0, 8.4};
inline constexpr PerProtocol kRingNvlink = {kNvlinkHopUs, 1.9, 3.4};
inline constexpr PerProtocol kRingNet = {kNetHopUs, 4.0, 14.0};
inline constexpr PerProtocol kTreeNet = {5.0, 8.5, 14.0};

// Index of tables by generation, and of those by the number of nodes: one, two, more.
inline std::size_t generation_index(const Machine& machine) {
  return static_cast<std::size_t>(machine.generation);
}
inline std::size_t span_index(const Placement& place) {
  return place.nodes == 1 ? 0 : place.nodes == 2 ? 1 : 2;
}
using BySpan = std::array<double, 3>;

// Highest bandwidth by LL: of one node by generation; of two nodes and more by CPU vendor.
inline double ll_max(const Machine& machine, const Placement& place) {
  constexpr std::array<double, 3> kNode = {87.7, 141.0, 282.0};
  constexpr std::array<std::array<double, 2>, 2> kNodes = {{{39.0, 20.4}, {22.5, 19.0}}};
  if (place.nodes == 1) return kNode[generation_index(machine)];
  return kNodes[static_cast<std::size_t>(machine.cpu)][place.nodes == 2 ? 0 : 1];
}

// With its latency and bandwidth, the time.
inline Estimate with_time(Estimate e, double bytes) {
  e.time_us = e.latency_us + bytes / (1000 * e.gbps);
  return e;
}

}  // namespace rehearse::collective::nccl
