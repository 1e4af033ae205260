// Which bytes of a collective cross which resources: the activities of a TransferPlan, without their times.
//
// Ring on one node: every member sends to the next, one merged activity (the ports are all that is shared). Rings over
// several nodes: one channel for each member of the smallest node; channel i enters and leaves each node through the
// NIC of its i-th member there, passes through the node's members in between, and carries its share of the bytes.
// Trees, NVLS, CollNet and PAT keep this structure with their own bytes: what crosses a node's NICs and a member's port
// in total is right, which pair exchanges it is not; what goes up to switches that add up and comes down again crosses
// the links between them once each way, as a ring's bytes do. Broadcast is the ring without the edge into the root, the
// group's first member. All-to-all is one activity whose resources advance together; bytes for another node first go
// over NVLink to the member on the receiver's rail where there is one (NCCL's PXN), so they stay on rails.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/collective/nccl_tuning.h"
#include "sim/program/op.h"

namespace rehearse::collective {

// A group's members, node by node.
struct Group {
  std::vector<int> members;         // sorted, node by node
  std::vector<std::size_t> begins;  // first member of each node, then members.size()
  int root = 0;
  nccl::Placement place;
  bool uniform = true;  // the same number on every node
};
Group group_of(const cluster::Cluster& cluster, const std::vector<int>& members);

// Bytes that one member's share of the wire carries, per byte of the collective: 2(n-1)/n for all_reduce, (n-1)/n for
// all_gather, reduce_scatter and all_to_all, 1 for broadcast (nccl-tests, doc/PERFORMANCE.md).
double wire_factor(program::CollectiveKind kind, int ranks);
// factor * bytes, rounded up; exact.
std::int64_t wire_bytes(program::CollectiveKind kind, int ranks, std::int64_t bytes);

std::vector<Activity> collective_activities(const cluster::Cluster& cluster, const Group& group,
                                            program::CollectiveKind kind, nccl::Algorithm algorithm,
                                            std::int64_t bytes);
Activity send_activity(const cluster::Cluster& cluster, int from, int to, std::int64_t bytes);

// The longest time any resource needs for all that the activities put on it: of the devices' own ports and NICs, and of
// the links between switches.
struct Bottleneck {
  Time ports, links;
};
Bottleneck bottleneck(const cluster::Cluster& cluster, const std::vector<Activity>& activities);

}  // namespace rehearse::collective
