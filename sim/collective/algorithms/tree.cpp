// NCCL's double binary tree over nodes with chains inside (Sanders, Speck, Traeff 2009; src/graph/trees.cc): half of
// the bytes in each tree, which are mirrored for an even number of nodes and shifted for an odd one. Reduction up, then
// broadcast down, chunk after chunk.
//
// One deviation from NCCL's model: the correction by size is interpolated between NCCL's powers of two (NCCL takes the
// lower one), so that time grows with size.
#include <algorithm>
#include <cmath>

#include "sim/collective/algorithms/algorithm.h"
#include "sim/collective/nccl_tables.h"
#include "sim/collective/steps_builder.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

constexpr nccl::PerProtocol kTreeBase = {6.8, 14.0, 8.4};
constexpr nccl::PerProtocol kTreeNvlink = {nccl::kNvlinkHopUs, 1.25, 4.0};
// Highest bandwidth of a channel, by generation and nodes.
constexpr std::array<nccl::BySpan, 3> kTreeLl128 = {{{20, 20, 20}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}}};
constexpr std::array<nccl::BySpan, 3> kTreeMax = {{{24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}}};
constexpr std::array<std::array<double, 23>, kProtocols> kTreeCorrection = {{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9},
}};

double tree_correction(Protocol protocol, double bytes) {
  const auto& table = kTreeCorrection[static_cast<std::size_t>(protocol)];
  const double x = std::log2(std::max(bytes / 64, 1.0));
  const auto i = static_cast<std::size_t>(x);
  if (i + 1 >= table.size()) return i + 1 == table.size() ? table.back() : 1.0;
  return std::lerp(table[i], table[i + 1], x - static_cast<double>(i));
}

// NCCL's binary tree over n nodes (src/graph/trees.cc ncclGetBtree): the parent clears the lowest set bit and sets the
// next one, or only clears it where that is beyond n. Parent of node i, -1 for the root 0.
int tree_parent(int i, int n) {
  if (i == 0) return -1;
  int bit = 1;
  while ((i & bit) == 0) bit <<= 1;
  const int up = (i ^ bit) | (bit << 1);
  return up >= n ? i ^ bit : up;
}

// Of the two complementary trees (ncclGetDtree).
int dtree_parent(int i, int n, bool second) {
  if (!second) return tree_parent(i, n);
  if (n % 2 == 0) {
    const int up = tree_parent(n - 1 - i, n);
    return up < 0 ? -1 : n - 1 - up;
  }
  const int up = tree_parent((i - 1 + n) % n, n);
  return up < 0 ? -1 : (up + 1) % n;
}

// Parents of all ranks: chains inside nodes from member c on, whose heads form the tree over nodes.
std::vector<int> rank_parents(const Group& group, std::size_t c, bool second) {
  const auto nodes = static_cast<int>(group.nodes());
  std::vector<int> parent(group.members.size(), -1);
  for (int k = 0; k < nodes; ++k) {
    const auto node = static_cast<std::size_t>(k);
    const std::size_t size = group.size_of(node), begin = group.begins[node];
    for (std::size_t i = 1; i < size; ++i)
      parent[begin + (c + i) % size] = static_cast<int>(begin + (c + i - 1) % size);
    if (const int up = dtree_parent(k, nodes, second); up >= 0) {
      const auto above = static_cast<std::size_t>(up);
      parent[begin + c % size] = static_cast<int>(group.begins[above] + c % group.size_of(above));
    }
  }
  return parent;
}

// Reduction up and broadcast down one tree, chunk after chunk.
void one_tree(StepsBuilder& b, const Group& group, const std::vector<int>& parent, std::int64_t chunks,
              std::int64_t message) {
  const std::size_t n = parent.size();
  const Ids up = b.agents(n), down = b.agents(n);
  std::vector<Ids> from_children(n), to_children(n);
  Ids up_edge(n, -1), down_edge(n, -1);
  std::int64_t deepest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t depth = 0;
    for (int at = parent[i]; at >= 0; at = parent[static_cast<std::size_t>(at)]) ++depth;
    deepest = std::max(deepest, depth);
    if (parent[i] < 0) continue;
    const auto p = static_cast<std::size_t>(parent[i]);
    up_edge[i] = b.edge(group.members[i], group.members[p], message, up[p]);
    down_edge[i] = b.edge(group.members[p], group.members[i], message, down[i]);
    from_children[p].push_back(up_edge[i]);
    to_children[p].push_back(down_edge[i]);
  }
  for (std::size_t i = 0; i < n; ++i) {
    const bool root = parent[i] < 0;
    b.stage(up[i], from_children[i], root ? to_children[i] : Ids{up_edge[i]}, chunks);
    if (!root) b.stage(down[i], {down_edge[i]}, to_children[i], chunks);
  }
  b.deepen(2 * deepest, static_cast<double>(2 * deepest - 1) / static_cast<double>(chunks));
}

class Tree final : public AlgorithmModel {
 public:
  std::string_view refusal(const nccl::Machine& machine, const nccl::Placement&, CollectiveKind kind,
                           std::optional<Protocol> protocol) const override {
    if (!protocol) return kNeedsNccl;
    if (protocol == Protocol::ll128 && !machine.ll128) return kDevicesDiffer;
    return kind == CollectiveKind::all_reduce ? "" : kAllReduceOnly;
  }

  nccl::Estimate estimate(const nccl::Machine& machine, const nccl::Placement& place, nccl::Channels channels,
                          CollectiveKind, Protocol protocol, double bytes) const override {
    const auto p = static_cast<std::size_t>(protocol);
    const std::size_t g = nccl::generation_index(machine), j = nccl::span_index(place);
    double bus = std::min(0.92 * channels.count * channels.gbps, channels.count * kTreeMax[g][j]);
    if (protocol == Protocol::ll) bus = std::min(bus / 3.8, nccl::ll_max(machine, place));
    if (protocol == Protocol::ll128)
      bus = std::min(bus * (place.nodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0), channels.count * kTreeLl128[g][j]);
    nccl::Estimate e;
    e.gbps = bus / 2 * tree_correction(protocol, bytes);
    const double inter = nccl::kTreeNet[p] + machine.net_latency_us * (protocol == Protocol::simple ? 2 : 1);
    e.latency_us = kTreeBase[p] + 2 * ((place.per_node - 1) * (kTreeNvlink[p] + machine.nvlink_latency_us) +
                                       std::floor(std::log2(place.nodes)) * inter);
    return nccl::with_time(e, bytes);
  }

  EdgeBytes edge_bytes(const Group& group, CollectiveKind kind, std::int64_t bytes) const override {
    if (group.place.nodes == 1) return {wire_bytes(kind, group.place.ranks, bytes), 0};
    return {2 * bytes, double_tree_bytes(group.place.nodes, bytes)};
  }

  bool has_messages(CollectiveKind kind) const override { return kind == CollectiveKind::all_reduce; }

  void add_messages(StepsBuilder& b, const cluster::Cluster&, const Group& group, CollectiveKind, std::int64_t bytes,
                    std::int64_t chunk) const override {
    const std::size_t channels = group.channels();
    const std::int64_t half = divided_up(bytes, 2 * static_cast<std::int64_t>(channels));
    const std::int64_t chunks = std::max<std::int64_t>(1, divided_up(half, chunk));
    for (std::size_t c = 0; c < channels; ++c)
      for (const bool second : {false, true})
        one_tree(b, group, rank_parents(group, c, second), chunks, divided_up(half, chunks));
  }
};

}  // namespace

const AlgorithmModel& algorithms::tree() {
  static const Tree model;
  return model;
}

}  // namespace rehearse::collective
