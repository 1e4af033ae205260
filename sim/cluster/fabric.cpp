// The generators of fabrics; see fabric.h. Only the units, pods and rails that the nodes need are made.
#include "sim/cluster/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "sim/base/check.h"

namespace rehearse::cluster {
namespace {

Bandwidth times(Bandwidth rate, int count) {
  __extension__ using Wide = __int128;
  return Bandwidth(static_cast<std::int64_t>(std::min(static_cast<Wide>(rate.per_s()) * count, Wide{INT64_MAX / 4})));
}

// Cable by cable, or as one link of their sum.
struct Cables {
  Fabric& fabric;
  Bandwidth cable;
  Time hop;
  bool as_one;
  // `count` cables from `low` to the `upper` switches in turn.
  void up(int low, const std::vector<int>& upper, int count) const {
    if (as_one) return fabric.join(low, upper.front(), times(cable, count), hop);
    const int each = count / static_cast<int>(upper.size());
    for (const int high : upper)
      for (int c = 0; c < each; ++c) fabric.join(low, high, cable, hop, c);
  }
};

struct Tree {
  const FabricNumbers& n;
  int nics;
  bool adaptive;
  Fabric fabric{};
  std::vector<int> leaves{};  // unit by unit

  std::vector<int> upper(const std::string& prefix, int count) {
    std::vector<int> made;
    for (int s = 0; s < (adaptive ? 1 : count); ++s)
      made.push_back(fabric.add(adaptive ? prefix : prefix + std::to_string(s)));
    return made;
  }

  void make(int nodes) {
    const int units = (nodes + n.nodes_per_unit - 1) / n.nodes_per_unit, per_unit = n.rails ? nics : 1;
    for (int u = 0; u < units; ++u)
      for (int k = 0; k < per_unit; ++k)
        leaves.push_back(fabric.add(n.rails ? fmt::format("unit{}/leaf{}", u, k) : fmt::format("leaf{}", u)));
    const Cables cables{fabric, n.cable, n.hop, adaptive};
    if (n.levels == 2) {
      const std::vector<int> spines = upper("spine", n.spines);
      for (const int leaf : leaves) cables.up(leaf, spines, n.uplinks);
      return;
    }
    // Plane s: spine s of every pod, and the cores above them.
    const int pods = (units + n.units_per_pod - 1) / n.units_per_pod;
    std::vector<std::vector<int>> cores;
    for (int s = 0; s < (adaptive ? 1 : n.spines); ++s)
      cores.push_back(upper(adaptive ? "core" : fmt::format("plane{}/core", s), n.cores));
    for (int p = 0; p < pods; ++p) {
      const std::vector<int> spines = upper(fmt::format("pod{}/spine", p), n.spines);
      const std::size_t first = static_cast<std::size_t>(p * n.units_per_pod * per_unit);
      const std::size_t last = std::min(leaves.size(), first + static_cast<std::size_t>(n.units_per_pod * per_unit));
      for (std::size_t l = first; l < last; ++l) cables.up(leaves[l], spines, n.uplinks);
      for (std::size_t s = 0; s < spines.size(); ++s)
        cables.up(spines[s], cores[s], adaptive ? n.core_uplinks * n.spines : n.core_uplinks);
    }
  }
};

// x fastest; of each node the link on in each dimension.
Fabric make_torus(const FabricNumbers& n) {
  Fabric fabric;
  fabric.torus = n.dims;
  fabric.wraps = n.wraps;
  int count = 1;
  for (const int d : n.dims) count *= d;
  for (int r = 0; r < count; ++r) {
    std::string name = "router";
    for (std::size_t d = 0, rest = static_cast<std::size_t>(r); d < n.dims.size(); ++d) {
      const auto size = static_cast<std::size_t>(n.dims[d]);
      name += (d == 0 ? "" : ".") + std::to_string(rest % size);
      rest /= size;
    }
    fabric.add(std::move(name));
  }
  for (std::size_t d = 0, stride = 1; d < n.dims.size(); stride *= static_cast<std::size_t>(n.dims[d]), ++d)
    for (int r = 0; r < count; ++r) {
      const int size = n.dims[d], at = r / static_cast<int>(stride) % size;
      const bool last = at == size - 1;
      if (size < 2 || (last && (!n.wraps || size == 2))) continue;  // a ring of two has one link
      fabric.join(r, last ? r - at * static_cast<int>(stride) : r + static_cast<int>(stride), n.link, n.hop);
    }
  return fabric;
}

// Links between groups are dealt out in turn: the i-th link of group g, which its router i / global_links holds, leads
// to the (i mod (groups - 1) + 1)-th group after it, and is made by the one of the two that comes first.
Fabric make_dragonfly(const FabricNumbers& n) {
  Fabric fabric;
  for (int g = 0; g < n.groups; ++g)
    for (int r = 0; r < n.routers; ++r) fabric.add(fmt::format("group{}/router{}", g, r));
  for (int g = 0; g < n.groups; ++g)
    for (int a = 0; a < n.routers; ++a)
      for (int b = a + 1; b < n.routers; ++b) fabric.join(g * n.routers + a, g * n.routers + b, n.link, n.hop);
  if (n.groups < 2) return fabric;
  const int rounds = n.routers * n.global_links / (n.groups - 1);  // links between each pair of groups
  for (int g = 0; g < n.groups; ++g)
    for (int round = 0; round < rounds; ++round)
      for (int on = 1; on < n.groups; ++on) {
        const int other = (g + on) % n.groups;
        if (other < g) continue;
        const int here = (round * (n.groups - 1) + on - 1) / n.global_links;
        const int there = (round * (n.groups - 1) + n.groups - on - 1) / n.global_links;
        fabric.join(g * n.routers + here, other * n.routers + there, n.global, n.hop);
      }
  return fabric;
}

}  // namespace

int Fabric::add(std::string name) {
  switches.push_back(std::move(name));
  return static_cast<int>(switches.size()) - 1;
}

void Fabric::join(int a, int b, Bandwidth bandwidth, Time latency, int cable) {
  links.push_back({a, b, bandwidth, latency, false, cable});
}

std::string Fabric::link_name(int directed) const {
  const FabricLink& link = links[static_cast<std::size_t>(directed / 2)];
  const auto [from, to] = directed % 2 == 0 ? std::pair(link.a, link.b) : std::pair(link.b, link.a);
  std::string name = switches[static_cast<std::size_t>(from)] + "->" + switches[static_cast<std::size_t>(to)];
  return link.cable > 0 ? fmt::format("{}#{}", name, link.cable + 1) : name;
}

int FabricNumbers::limit() const {
  if (kind == FabricKind::tree) return units * nodes_per_unit;
  if (kind == FabricKind::dragonfly) return groups * routers * nodes_per_router;
  if (kind != FabricKind::torus) return nodes;
  int count = 1;
  for (const int d : dims) count *= d;
  return count;
}

MadeFabric make_fabric(const FabricNumbers& n, int nodes, int nics, const std::vector<NicPlace>& places,
                       bool adaptive) {
  MadeFabric made;
  const auto hang = [&](auto&& leaf) {
    for (const NicPlace& p : places) made.leaf_of.push_back(leaf(p));
  };
  switch (n.kind) {
    case FabricKind::none:
    case FabricKind::links:  // written out: read_fabric.cpp
      hang([](const NicPlace&) { return -1; });
      break;
    case FabricKind::single:
      made.fabric.add("switch");
      hang([](const NicPlace&) { return 0; });
      break;
    case FabricKind::rail_only:
      for (int k = 0; k < nics; ++k) made.fabric.add(fmt::format("rail{}", k));
      hang([](const NicPlace& p) { return p.nic; });
      break;
    case FabricKind::tree: {
      Tree tree{n, nics, adaptive};
      tree.make(nodes);
      hang([&](const NicPlace& p) {
        const int unit = p.node / n.nodes_per_unit;
        return tree.leaves.at(static_cast<std::size_t>(n.rails ? unit * nics + p.nic : unit));
      });
      made.fabric = std::move(tree.fabric);
      break;
    }
    case FabricKind::torus:
      made.fabric = make_torus(n);
      hang([](const NicPlace& p) { return p.node; });
      break;
    case FabricKind::dragonfly:
      made.fabric = make_dragonfly(n);
      hang([&](const NicPlace& p) { return p.node / n.nodes_per_router; });
      break;
  }
  REHEARSE_CHECK(made.leaf_of.size() == places.size(), "{} NICs on the fabric, {} places", made.leaf_of.size(),
                 places.size());
  return made;
}

}  // namespace rehearse::cluster
