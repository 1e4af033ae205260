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

// A dimension of a torus that a group fills: nodes round it, and how far routers of neighbours differ in number.
struct TorusDimension {
  int size = 1, stride = 1;
};

// A group's members, node by node.
struct Group {
  std::vector<int> members;         // sorted, node by node
  std::vector<std::size_t> begins;  // first member of each node, then members.size()
  int root = 0;
  nccl::Placement place;
  std::vector<TorusDimension> torus;  // with place.torus; longer than one node
  std::vector<int> routers;           // with place.torus: each member's

  std::size_t nodes() const { return begins.size() - 1; }
  std::size_t size_of(std::size_t node) const { return begins[node + 1] - begins[node]; }
  // The device of a node's member i, counted round and round.
  int member(std::size_t node, std::size_t i) const { return members[begins[node] + i % size_of(node)]; }
  // Rings (see above).
  std::size_t channels() const { return place.nodes == 1 ? 1 : static_cast<std::size_t>(place.per_node); }
};
Group group_of(const cluster::Cluster& cluster, const std::vector<int>& members);

// What bytes along a route cross, added to `uses`; and what of these is of one resource added up, sorted.
void append_route(std::vector<Use>& uses, const cluster::Route& route, std::int64_t bytes);
Activity merged(std::vector<Use> uses);

// a / b and a * b / c, rounded up; a * b may exceed 64 bits.
std::int64_t divided_up(std::int64_t a, std::int64_t b);
std::int64_t scaled_up(std::int64_t a, std::int64_t b, std::int64_t c);

// Bytes that one member's share of the wire carries, per byte of the collective: 2(n-1)/n for all_reduce, (n-1)/n for
// all_gather, reduce_scatter and all_to_all, 1 for broadcast (nccl-tests, doc/PERFORMANCE.md).
double wire_factor(program::CollectiveKind kind, int ranks);
// factor * bytes, rounded up; exact.
std::int64_t wire_bytes(program::CollectiveKind kind, int ranks, std::int64_t bytes);

// Bytes over one edge between neighbours of a ring, all channels together: within a node, and between nodes.
struct EdgeBytes {
  std::int64_t intra = 0, inter = 0;
};
// Of two trees over n nodes with n - 1 edges each, half of the bytes up and down: 2(n-1)/n in and out of a node on
// average.
std::int64_t double_tree_bytes(int nodes, std::int64_t bytes);
// The structure of rings with these bytes, one activity a channel; the kind says which edges have none.
std::vector<Activity> ring_activities(const cluster::Cluster& cluster, const Group& group, program::CollectiveKind kind,
                                      EdgeBytes bytes);
// From each to each, a part of the bytes.
Activity exchange_activity(const cluster::Cluster& cluster, const Group& group, std::int64_t bytes);
// The same of unequal parts, by the order of `members` (CollectiveModel::exchange).
Activity uneven_exchange_activity(const cluster::Cluster& cluster, const Group& group, const std::vector<int>& members,
                                  const Exchange& what);
Activity send_activity(const cluster::Cluster& cluster, int from, int to, std::int64_t bytes);

// The longest time any resource needs for all that the activities put on it: of the devices' own ports and NICs, and of
// the links between switches.
struct Bottleneck {
  Time ports, links;
};
Bottleneck bottleneck(const cluster::Cluster& cluster, const std::vector<Activity>& activities);

}  // namespace rehearse::collective
