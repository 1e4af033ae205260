// See composed.h. Resources lie node by node (two for each link that can be a limit), then out and in of each NIC, then
// the fabric's links. Nothing is stored for a pair of devices of different nodes.
#include "sim/cluster/composed.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "sim/base/check.h"

namespace rehearse::cluster {

Composed::Composed(ComposedParts parts)
    : parts_(std::move(parts)), routes_(std::move(parts_.fabric), parts_.routing, parts_.seed) {
  for (const NodeGraph& type : parts_.types) ways_.emplace_back(type);
  make_resources();
  place_ranks();
}

void Composed::make_resources() {
  for (const NodeGraph& type : parts_.types) {
    std::vector<ResourceId> of_link;
    ResourceId next = 0;
    for (const NodeLink& link : type.links) {
      const bool limits = !link.missing && link.bandwidth.per_s() > 0;
      of_link.push_back(limits ? next : -1);
      next += limits ? 2 : 0;
    }
    of_link_.push_back(std::move(of_link));
  }
  int nics = 0;
  for (std::size_t n = 0; n < parts_.type_of.size(); ++n) {
    const auto t = static_cast<std::size_t>(parts_.type_of[n]);
    const NodeGraph& type = parts_.types[t];
    NodeOfCluster node{parts_.type_of[n], nics, static_cast<ResourceId>(resources_.size()), -1, {}};
    for (const NodeLink& link : type.links) {
      if (link.missing || link.bandwidth.per_s() == 0) continue;
      const std::string& a = type.vertices[static_cast<std::size_t>(link.a)].name;
      const std::string& b = type.vertices[static_cast<std::size_t>(link.b)].name;
      resources_.push_back({fmt::format("node{}/{}->{}", n, a, b), link.kind, link.bandwidth});
      resources_.push_back({fmt::format("node{}/{}->{}", n, b, a), link.kind, link.bandwidth});
    }
    // Each byte is written there and read.
    if (const Bandwidth memory = type.host.value_or(parts_.host).bandwidth; type.through_host && memory.per_s() > 0) {
      node.host_memory = static_cast<ResourceId>(resources_.size());
      resources_.push_back({fmt::format("node{}/host-memory", n), ResourceKind::host, Bandwidth(memory.per_s() / 2)});
    }
    const std::size_t count = type.of_kind(VertexKind::nic).size();
    std::vector<bool> joined;
    for (std::size_t k = 0; k < count; ++k)
      joined.push_back(parts_.leaf_of.at(static_cast<std::size_t>(nics) + k) >= 0);
    node.own_nic = own_nics(type, ways_[t], joined);
    most_devices_ = std::max(most_devices_, static_cast<int>(node.own_nic.size()));
    nics += static_cast<int>(count);
    nodes_.push_back(std::move(node));
  }
  first_nic_ = static_cast<ResourceId>(resources_.size());
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const int last = n + 1 < nodes_.size() ? nodes_[n + 1].first_nic : nics;
    for (int k = 0; k < last - nodes_[n].first_nic; ++k)
      for (const char* way : {"out", "in"})
        resources_.push_back({fmt::format("node{}/nic{}-{}", n, k, way), ResourceKind::nic,
                              parts_.types[static_cast<std::size_t>(nodes_[n].type)].nic});
  }
  first_link_ = static_cast<ResourceId>(resources_.size());
  const Fabric& fabric = routes_.fabric();
  for (std::size_t l = 0; l < fabric.links.size(); ++l)
    for (const int directed : {static_cast<int>(2 * l), static_cast<int>(2 * l + 1)})
      resources_.push_back({fabric.link_name(directed), ResourceKind::link, fabric.links[l].bandwidth});
  std::vector<int> order(static_cast<std::size_t>(nics));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return parts_.leaf_of[static_cast<std::size_t>(a)] < parts_.leaf_of[static_cast<std::size_t>(b)];
  });
  terminal_.resize(order.size());
  for (std::size_t t = 0; t < order.size(); ++t) terminal_[static_cast<std::size_t>(order[t])] = static_cast<int>(t);
}

int Composed::kind_at(int node) {
  const NodeGraph& type = parts_.types[static_cast<std::size_t>(nodes_[static_cast<std::size_t>(node)].type)];
  const std::string& device = type.device.empty() ? parts_.device : type.device;
  const auto known = std::find(kinds_.begin(), kinds_.end(), device);
  const auto kind = static_cast<int>(known - kinds_.begin());
  if (known == kinds_.end()) kinds_.push_back(device);
  return kind;
}

void Composed::place_ranks() {
  std::vector<std::pair<int, int>> place;  // node and place of each physical device
  for (std::size_t n = 0; n < nodes_.size(); ++n)
    for (std::size_t d = 0; d < nodes_[n].own_nic.size(); ++d)
      place.emplace_back(static_cast<int>(n), static_cast<int>(d));
  std::map<int, UsedNode> used;
  for (std::size_t r = 0; r < parts_.placement.size(); ++r) {
    const int physical = parts_.placement[r];
    REHEARSE_CHECK(physical >= 0 && physical < static_cast<int>(place.size()), "rank {} on device {} of {}", r,
                   physical, place.size());
    const auto [node, at] = place[static_cast<std::size_t>(physical)];
    ranks_.push_back({node, at, physical, kind_at(node)});
    used[node].node = node;
    used[node].ranks.push_back(static_cast<int>(r));
  }
  for (auto& [node, ranks] : used) {
    for (const int r : ranks.ranks) ranks_[static_cast<std::size_t>(r)].node = static_cast<int>(ranks_on_.size());
    ranks_on_.push_back(std::move(ranks));
  }
}

Composed::Place Composed::place_of(const Rank& r) const {
  const int node = ranks_on_[static_cast<std::size_t>(r.node)].node;
  return {node, nodes_[static_cast<std::size_t>(node)].own_nic[static_cast<std::size_t>(r.place)]};
}

bool Composed::gpudirect() const {
  return std::none_of(parts_.types.begin(), parts_.types.end(),
                      [](const NodeGraph& type) { return type.through_host; });
}

// What the links on the way through the host leave a device while all of the node's send to their NICs.
Bandwidth Composed::staged_rate(const UsedNode& used, const NodeGraph& type) const {
  const NodeOfCluster& node = nodes_[static_cast<std::size_t>(used.node)];
  std::map<int, int> users;  // by directed link
  for (const int r : used.ranks) {
    const int place = rank(r).place, nic = node.own_nic[static_cast<std::size_t>(place)];
    if (nic < 0) continue;
    for (const int directed : ways_[static_cast<std::size_t>(node.type)].to_nic(place, nic).links) ++users[directed];
  }
  std::int64_t least = 0;
  for (const auto& [directed, count] : users) {
    const std::int64_t rate = type.links[static_cast<std::size_t>(directed / 2)].bandwidth.per_s() / count;
    if (rate > 0 && (least == 0 || rate < least)) least = rate;
  }
  return Bandwidth(least);
}

NodeView Composed::node_view(int node) const {
  const UsedNode& used = ranks_on_.at(static_cast<std::size_t>(node));
  const NodeGraph& type = parts_.types[static_cast<std::size_t>(nodes_[static_cast<std::size_t>(used.node)].type)];
  NodeView view;
  view.inside = type.inside;
  view.devices = static_cast<int>(used.ranks.size());
  view.nics = static_cast<int>(type.of_kind(VertexKind::nic).size());
  if (view.nics > 0) view.nic = type.nic, view.net_hop = type.nic_latency;
  if (type.through_host)
    if (const Bandwidth rate = staged_rate(used, type); rate.per_s() > 0) view.nic = std::min(view.nic, rate);
  view.host = type.host.value_or(parts_.host);
  std::vector<int> places;
  for (const int r : used.ranks) places.push_back(rank(r).place);
  view.to_host = rate_to_host(type, places);
  const ResourceKind kind = type.inside == Inside::pcie ? ResourceKind::pcie : ResourceKind::nvlink;
  for (const int vertex : type.of_kind(VertexKind::device)) {
    std::int64_t sum = 0;
    for (const NodeLink& link : type.links)
      if (link.kind == kind && !link.missing && (link.a == vertex || link.b == vertex)) sum += link.bandwidth.per_s();
    if (view.port.per_s() == 0 || sum < view.port.per_s()) view.port = Bandwidth(sum);
  }
  if (type.of_kind(VertexKind::device).size() > 1) {
    const NodeWays& ways = ways_[static_cast<std::size_t>(nodes_[static_cast<std::size_t>(used.node)].type)];
    view.hop = ways.between(0, 1).latency;
  }
  return view;
}

std::vector<NodeRing> Composed::rings(const std::vector<int>& members) const {
  if (members.empty()) return {};
  const UsedNode& used = ranks_on_[static_cast<std::size_t>(rank(members.front()).node)];
  const int t = nodes_[static_cast<std::size_t>(used.node)].type;
  const NodeGraph& type = parts_.types[static_cast<std::size_t>(t)];
  if (type.inside != Inside::nvlink_mesh) return {};
  std::vector<int> places;
  for (const int m : members) places.push_back(rank(m).place);
  std::vector<int> key = places;
  key.push_back(t);
  const std::lock_guard lock(mutex_);
  auto found = rings_.find(key);
  if (found == rings_.end()) found = rings_.emplace(std::move(key), mesh_rings(type, places)).first;
  std::vector<NodeRing> rings;
  for (const MeshRing& ring : found->second) {
    NodeRing named{{}, ring.parts};
    for (const int place : ring.order)
      named.order.push_back(
          members[static_cast<std::size_t>(std::find(places.begin(), places.end(), place) - places.begin())]);
    rings.push_back(std::move(named));
  }
  return rings;
}

int Composed::leaf(int node, int nic) const {
  if (nic < 0) return -1;
  return parts_.leaf_of[static_cast<std::size_t>(nodes_[static_cast<std::size_t>(node)].first_nic + nic)];
}

Composed::Ends Composed::ends_of(const Rank& a, const Rank& b) const {
  const Place from = place_of(a), to = place_of(b);
  Ends ends{from.node, from.own_nic, to.node, to.own_nic};
  const auto joined = [&] {
    return routes_.distance(leaf(ends.node_a, ends.nic_a), leaf(ends.node_b, ends.nic_b)) >= 0;
  };
  if (joined()) return ends;
  // Of one end's NICs, nearest to the device, one that the fabric joins with the other end's own.
  const auto detour = [&](int& nic, int node, int place) {
    const auto t = static_cast<std::size_t>(nodes_[static_cast<std::size_t>(node)].type);
    const int own = nic;
    auto best = std::pair(INT32_MAX, -1);
    for (std::size_t k = 0; k < parts_.types[t].of_kind(VertexKind::nic).size(); ++k) {
      nic = static_cast<int>(k);
      const NodeWay& way = ways_[t].to_nic(place, nic);
      if (way.exists && joined()) best = std::min(best, std::pair(way.cost, nic));
    }
    nic = best.second >= 0 ? best.second : own;
    return best.second >= 0;
  };
  if (detour(ends.nic_a, ends.node_a, a.place) || detour(ends.nic_b, ends.node_b, b.place)) return ends;
  throw InputError(
      Diagnostic{"", 0, 0, "cluster.topology",
                 fmt::format("no way from node{}/gpu{} to node{}/gpu{}", from.node, a.place, to.node, b.place), ""});
}

void Composed::append(const NodeWay& way, int node, Route& route) const {
  const NodeOfCluster& n = nodes_[static_cast<std::size_t>(node)];
  const std::vector<ResourceId>& of_link = of_link_[static_cast<std::size_t>(n.type)];
  for (const int directed : way.links) {
    const ResourceId id = of_link[static_cast<std::size_t>(directed / 2)];
    if (id >= 0) route.resources.push_back(n.first_resource + id + directed % 2);
  }
  if (way.staged && n.host_memory >= 0) route.resources.push_back(n.host_memory);
  route.latency += way.latency;
}

void Composed::append_fabric(const Ends& ends, const Flow& flow, Route& route) const {
  const int out = nodes_[static_cast<std::size_t>(ends.node_a)].first_nic + ends.nic_a;
  const int in = nodes_[static_cast<std::size_t>(ends.node_b)].first_nic + ends.nic_b;
  const FabricWay way = routes_.way(leaf(ends.node_a, ends.nic_a), leaf(ends.node_b, ends.nic_b), flow);
  route.resources.push_back(first_nic_ + 2 * out);
  const std::size_t before = route.resources.size();
  for (const int directed : way.links) route.resources.push_back(first_link_ + directed);
  if (std::any_of(way.shares.begin(), way.shares.end(), [](std::int32_t s) { return s < Route::kWhole; })) {
    route.shares.assign(before, static_cast<std::int32_t>(Route::kWhole));
    route.shares.insert(route.shares.end(), way.shares.begin(), way.shares.end());
  }
  route.resources.push_back(first_nic_ + 2 * in + 1);
  const auto delay = [&](int nic) {
    return parts_.nic_delay.empty() ? Time() : parts_.nic_delay[static_cast<std::size_t>(nic)];
  };
  const auto latency = [&](int node) {
    return parts_.types[static_cast<std::size_t>(nodes_[static_cast<std::size_t>(node)].type)].nic_latency;
  };
  route.latency += std::max(latency(ends.node_a), latency(ends.node_b)) + way.latency + delay(out) + delay(in);
}

Route Composed::route(int from, int to, int channel) const {
  REHEARSE_CHECK(from != to && from >= 0 && to >= 0 && from < devices() && to < devices(), "route from {} to {} of {}",
                 from, to, devices());
  const Rank &a = rank(from), &b = rank(to);
  Route route;
  if (a.node == b.node) {
    const int node = ranks_on_[static_cast<std::size_t>(a.node)].node;
    const auto t = static_cast<std::size_t>(nodes_[static_cast<std::size_t>(node)].type);
    const NodeWay& inside = ways_[t].between(a.place, b.place);
    if (inside.exists) {
      append(inside, node, route);
      return route;
    }
  }
  const Ends ends = ends_of(a, b);
  const auto type = [&](int node) { return static_cast<std::size_t>(nodes_[static_cast<std::size_t>(node)].type); };
  const int receiving = nodes_[static_cast<std::size_t>(ends.node_b)].first_nic + ends.nic_b;
  route.crosses_nodes = true;
  append(ways_[type(ends.node_a)].to_nic(a.place, ends.nic_a), ends.node_a, route);
  append_fabric(ends, {a.physical, b.physical, channel, terminal_[static_cast<std::size_t>(receiving)]}, route);
  append(ways_[type(ends.node_b)].from_nic(ends.nic_b, b.place), ends.node_b, route);
  if (!route.shares.empty()) route.shares.resize(route.resources.size(), static_cast<std::int32_t>(Route::kWhole));
  return route;
}

// Nodes that hang on the same parts of the fabric reach the same others, so parts are compared, not nodes.
std::pair<std::string, std::string> Composed::unreachable() const {
  const Fabric& fabric = routes_.fabric();
  std::vector<int> part(fabric.switches.size());
  std::iota(part.begin(), part.end(), 0);
  const auto root = [&part](int s) {
    while (part[static_cast<std::size_t>(s)] != s)
      s = part[static_cast<std::size_t>(s)] = part[static_cast<std::size_t>(part[static_cast<std::size_t>(s)])];
    return s;
  };
  for (const FabricLink& link : fabric.links)
    if (!link.missing) part[static_cast<std::size_t>(root(link.a))] = root(link.b);
  std::map<std::set<int>, int> kinds;  // the parts a node hangs on, and such a node
  for (const UsedNode& used : ranks_on_) {
    const std::size_t node = static_cast<std::size_t>(used.node);
    const int last = node + 1 < nodes_.size() ? nodes_[node + 1].first_nic : static_cast<int>(parts_.leaf_of.size());
    std::set<int> parts;
    for (int nic = nodes_[node].first_nic; nic < last; ++nic)
      if (const int s = parts_.leaf_of[static_cast<std::size_t>(nic)]; s >= 0) parts.insert(root(s));
    const auto [known, fresh] = kinds.try_emplace(parts, used.node);
    if (!fresh && parts.empty()) return {fmt::format("node{}", known->second), fmt::format("node{}", used.node)};
  }
  for (auto a = kinds.begin(); a != kinds.end(); ++a)
    for (auto b = std::next(a); b != kinds.end(); ++b)
      if (std::none_of(a->first.begin(), a->first.end(), [&](int p) { return b->first.contains(p); }))
        return {fmt::format("node{}", std::min(a->second, b->second)),
                fmt::format("node{}", std::max(a->second, b->second))};
  return {};
}

}  // namespace rehearse::cluster
