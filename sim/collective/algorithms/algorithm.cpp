// What most algorithms have in common; see algorithm.h.
#include "sim/collective/algorithms/algorithm.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/base/check.h"
#include "sim/collective/steps_builder.h"

namespace rehearse::collective {

using program::CollectiveKind;

bool AlgorithmModel::timed_by_rounds(CollectiveKind) const {
  return false;
}

nccl::Estimate AlgorithmModel::estimate(const nccl::Machine&, const nccl::Placement&, nccl::Channels, CollectiveKind,
                                        Protocol, double) const {
  return {.time_us = -1};
}

std::vector<Round> AlgorithmModel::rounds(const Group&, CollectiveKind, std::int64_t) const {
  REHEARSE_CHECK(false, "rounds of an algorithm that has none");
}

Time AlgorithmModel::detours(CollectiveKind, Time, Time longest) const {
  return longest * 2;
}

EdgeBytes AlgorithmModel::edge_bytes(const Group& group, CollectiveKind kind, std::int64_t bytes) const {
  const std::int64_t ring = wire_bytes(kind, group.place.ranks, bytes);
  return {ring, ring};
}

std::vector<Activity> AlgorithmModel::activities(const cluster::Cluster& cluster, const Group& group,
                                                 CollectiveKind kind, std::int64_t bytes) const {
  return ring_activities(cluster, group, kind, edge_bytes(group, kind, bytes));
}

// For a byte on the wire a ring's reducing step reads the local data and what arrived and writes to the next device's
// buffer (3), a copying step reads and writes (2). Judgement from the kernels' structure, not measured.
std::int64_t AlgorithmModel::memory_bytes(CollectiveKind kind, std::int64_t /*bytes*/, std::int64_t wire) const {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return wire / 2 * 5;
    case CollectiveKind::reduce_scatter:
      return wire * 3;
    default:
      return wire * 2;
  }
}

bool AlgorithmModel::has_messages(CollectiveKind kind) const {
  return timed_by_rounds(kind);
}

void AlgorithmModel::add_messages(StepsBuilder& builder, const cluster::Cluster&, const Group& group,
                                  CollectiveKind kind, std::int64_t bytes, std::int64_t) const {
  builder.in_order(group, rounds(group, kind, bytes));
}

int AlgorithmModel::blocks(const nccl::Placement& place, Protocol protocol, double bytes,
                           const BlockLimits& limits) const {
  return blocks_for(protocol, bytes, 1, place.nodes == 1 ? limits.node : limits.nodes);
}

const AlgorithmModel& model_of(Algorithm algorithm) {
  using Model = const AlgorithmModel& (*)();
  static constexpr std::array<Model, kAlgorithms> kModels = {
#define REHEARSE_ADDRESS(word) &algorithms::word,
      REHEARSE_COLLECTIVE_ALGORITHMS(REHEARSE_ADDRESS)
#undef REHEARSE_ADDRESS
  };
  return kModels[static_cast<std::size_t>(algorithm)]();
}

bool is_half(CollectiveKind kind) {
  return kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter;
}

int blocks_for(Protocol protocol, double bytes, int factor, int limit) {
  if (limit <= 0) return 0;
  constexpr nccl::PerProtocol kThreads = {512, 640, 512};
  constexpr nccl::PerProtocol kThreshold = {8, 8, 64};
  const auto p = static_cast<std::size_t>(protocol);
  const double per_channel = kThreads[p] * kThreshold[p] * factor;
  return static_cast<int>(std::clamp(std::floor(bytes / per_channel), 1.0, static_cast<double>(limit)));
}

}  // namespace rehearse::collective
