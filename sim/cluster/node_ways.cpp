// Cheapest ways through a node, which NIC is whose, and rings through a mesh; see node_graph.h for the rules.
#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "sim/base/check.h"
#include "sim/cluster/node_graph.h"

namespace rehearse::cluster {
namespace {

constexpr int kNvlink = 1, kForward = 10, kPcie = 100, kBridge = 1'000, kSocket = 10'000, kNone = 1 << 30;
constexpr std::size_t kMostInRing = 9;

int cost_of(ResourceKind kind) {
  return kind == ResourceKind::nvlink ? kNvlink : kind == ResourceKind::host ? kSocket : kPcie;
}

struct Reached {
  int cost = kNone;
  std::int64_t width = 0;  // the narrowest link so far
  int over = -1;           // directed link by which it was reached
};

// What it costs to go on from `v`, having come over `over`; kNone: it passes nothing on.
int cost_to_pass(const NodeGraph& graph, int v, int over) {
  const VertexKind kind = graph.vertices[static_cast<std::size_t>(v)].kind;
  if (over < 0 || kind == VertexKind::nvswitch || kind == VertexKind::pcie_switch) return 0;
  if (kind == VertexKind::host) return kBridge;
  const bool came_over_nvlink = graph.links[static_cast<std::size_t>(over / 2)].kind == ResourceKind::nvlink;
  return kind == VertexKind::device && came_over_nvlink ? kForward : kNone;
}

using Adjacency = std::vector<std::vector<int>>;  // directed links out of each vertex

// Dijkstra; of ways of equal cost the widest, then the one whose last links come first.
std::vector<Reached> reach(const NodeGraph& graph, const Adjacency& out, int from) {
  std::vector<Reached> reached(graph.vertices.size());
  reached[static_cast<std::size_t>(from)] = {0, INT64_MAX, -1};
  using Entry = std::tuple<int, std::int64_t, int>;  // cost, -width, vertex
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  open.emplace(0, -INT64_MAX, from);
  while (!open.empty()) {
    const auto [cost, minus_width, v] = open.top();
    open.pop();
    const Reached here = reached[static_cast<std::size_t>(v)];
    if (cost != here.cost || -minus_width != here.width) continue;
    const int pass = cost_to_pass(graph, v, here.over);
    if (pass == kNone) continue;
    for (const int directed : out[static_cast<std::size_t>(v)]) {
      const NodeLink& link = graph.links[static_cast<std::size_t>(directed / 2)];
      const int to = directed % 2 == 0 ? link.b : link.a;
      const std::int64_t capacity = link.bandwidth.per_s() > 0 ? link.bandwidth.per_s() : INT64_MAX;
      const Reached next{cost + pass + cost_of(link.kind), std::min(here.width, capacity), directed};
      Reached& known = reached[static_cast<std::size_t>(to)];
      if (std::tuple(next.cost, -next.width) >= std::tuple(known.cost, -known.width)) continue;
      known = next;
      open.emplace(next.cost, -next.width, to);
    }
  }
  return reached;
}

NodeWay way_to(const NodeGraph& graph, const std::vector<Reached>& reached, int from, int to) {
  NodeWay way;
  const Reached& end = reached[static_cast<std::size_t>(to)];
  if (end.cost == kNone) return way;
  way.exists = true;
  way.cost = end.cost;
  const bool to_nic = graph.vertices[static_cast<std::size_t>(to)].kind == VertexKind::nic;
  for (int v = to; v != from;) {
    const int directed = reached[static_cast<std::size_t>(v)].over;
    const NodeLink& link = graph.links[static_cast<std::size_t>(directed / 2)];
    way.links.push_back(directed);
    if (!to_nic || link.kind != ResourceKind::pcie) way.latency += link.latency;
    v = directed % 2 == 0 ? link.a : link.b;
  }
  std::reverse(way.links.begin(), way.links.end());
  return way;
}

// By way of the host bridge next to `device`; `reached`: from there.
NodeWay staged_way(const NodeGraph& graph, const Adjacency& out, const std::vector<Reached>& reached, int device,
                   int nic) {
  int nearest = -1;
  for (const int host : graph.of_kind(VertexKind::host))
    if (nearest < 0 || reached[static_cast<std::size_t>(host)].cost < reached[static_cast<std::size_t>(nearest)].cost)
      nearest = host;
  if (nearest < 0) return {};
  NodeWay way = way_to(graph, reached, device, nearest);
  const NodeWay on = way_to(graph, reach(graph, out, nearest), nearest, nic);
  way.exists = way.exists && on.exists;
  way.links.insert(way.links.end(), on.links.begin(), on.links.end());
  way.latency += on.latency;
  way.cost += kBridge + on.cost;
  way.staged = true;
  return way;
}

// All cycles through devices 0 .. n-1 that start at 0, each in one of its two directions, in lexicographic order.
void cycles(std::vector<int>& order, std::vector<bool>& used, const std::function<bool(int, int)>& joined,
            const std::function<void(const std::vector<int>&)>& found) {
  const std::size_t n = used.size();
  if (order.size() == n) {
    if ((n < 3 || order[1] < order[n - 1]) && joined(order.back(), 0)) found(order);
    return;
  }
  for (std::size_t next = 1; next < n; ++next) {
    if (used[next] || !joined(order.back(), static_cast<int>(next))) continue;
    used[next] = true;
    order.push_back(static_cast<int>(next));
    cycles(order, used, joined, found);
    order.pop_back();
    used[next] = false;
  }
}

// Bandwidth between pairs of the given devices, in halves of the narrowest between two of them: four devices all joined
// alike are used up only by three rings, each pair on two of them.
std::vector<std::vector<int>> links_between(const NodeGraph& graph, const std::vector<int>& devices) {
  const std::vector<int> vertices = graph.of_kind(VertexKind::device);
  std::vector<int> place(graph.vertices.size(), -1);
  for (std::size_t i = 0; i < devices.size(); ++i)
    place[static_cast<std::size_t>(vertices.at(static_cast<std::size_t>(devices[i])))] = static_cast<int>(i);
  std::int64_t unit = 0;
  std::vector<std::vector<std::int64_t>> rate(devices.size(), std::vector<std::int64_t>(devices.size(), 0));
  for (const NodeLink& link : graph.links) {
    const int a = place[static_cast<std::size_t>(link.a)], b = place[static_cast<std::size_t>(link.b)];
    if (link.kind != ResourceKind::nvlink || a < 0 || b < 0 || link.missing) continue;
    rate[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] += link.bandwidth.per_s();
    rate[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] += link.bandwidth.per_s();
    unit = unit == 0 ? link.bandwidth.per_s() : std::min(unit, link.bandwidth.per_s());
  }
  std::vector<std::vector<int>> count(devices.size(), std::vector<int>(devices.size(), 0));
  for (std::size_t a = 0; a < devices.size() && unit > 0; ++a)
    for (std::size_t b = 0; b < devices.size(); ++b)
      count[a][b] = static_cast<int>(std::min<std::int64_t>(2 * rate[a][b] / unit, 64));
  return count;
}

}  // namespace

NodeWays::NodeWays(const NodeGraph& graph) {
  Adjacency out(graph.vertices.size());
  for (std::size_t l = 0; l < graph.links.size(); ++l) {
    const NodeLink& link = graph.links[l];
    if (link.missing) continue;
    out[static_cast<std::size_t>(link.a)].push_back(static_cast<int>(2 * l));
    out[static_cast<std::size_t>(link.b)].push_back(static_cast<int>(2 * l + 1));
  }
  const std::vector<int> devices = graph.of_kind(VertexKind::device), nics = graph.of_kind(VertexKind::nic);
  devices_ = devices.size();
  nics_ = nics.size();
  for (const int device : devices) {
    const std::vector<Reached> reached = reach(graph, out, device);
    for (const int other : devices) ways_.push_back(way_to(graph, reached, device, other));
    for (const int nic : nics)
      ways_.push_back(graph.through_host ? staged_way(graph, out, reached, device, nic)
                                         : way_to(graph, reached, device, nic));
  }
}

const NodeWay& NodeWays::between(int device, int other) const {
  return ways_.at(static_cast<std::size_t>(device) * (devices_ + nics_) + static_cast<std::size_t>(other));
}

const NodeWay& NodeWays::to_nic(int device, int nic) const {
  return ways_.at(static_cast<std::size_t>(device) * (devices_ + nics_) + devices_ + static_cast<std::size_t>(nic));
}

NodeWay NodeWays::from_nic(int nic, int device) const {
  NodeWay way = to_nic(device, nic);
  std::reverse(way.links.begin(), way.links.end());
  for (int& directed : way.links) directed ^= 1;
  return way;
}

std::vector<int> own_nics(const NodeGraph& graph, const NodeWays& ways, const std::vector<bool>& allowed) {
  const std::size_t devices = graph.of_kind(VertexKind::device).size();
  std::vector<int> own(devices, -1), taken(allowed.size(), 0);
  for (std::size_t d = 0; d < devices; ++d) {
    auto best = std::pair(kNone, 0);
    for (std::size_t k = 0; k < allowed.size(); ++k) {
      const NodeWay& way = ways.to_nic(static_cast<int>(d), static_cast<int>(k));
      if (!allowed[k] || !way.exists || std::pair(way.cost, taken[k]) >= best) continue;
      best = {way.cost, taken[k]};
      own[d] = static_cast<int>(k);
    }
    if (own[d] >= 0) ++taken[static_cast<std::size_t>(own[d])];
  }
  return own;
}

std::vector<MeshRing> mesh_rings(const NodeGraph& graph, const std::vector<int>& devices) {
  std::vector<MeshRing> rings;
  if (devices.size() < 2 || devices.size() > kMostInRing) return rings;
  std::vector<std::vector<int>> left = links_between(graph, devices);
  const auto joined = [&left](int a, int b) {
    return left[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] > 0;
  };
  for (;;) {
    std::vector<int> best;
    auto best_left = std::pair(0, 0);
    std::vector<int> order{0};
    std::vector<bool> used(devices.size(), false);
    used[0] = true;
    cycles(order, used, joined, [&](const std::vector<int>& cycle) {
      auto here = std::pair(kNone, 0);
      for (std::size_t i = 0; i < cycle.size(); ++i) {
        const int links =
            left[static_cast<std::size_t>(cycle[i])][static_cast<std::size_t>(cycle[(i + 1) % cycle.size()])];
        here = {std::min(here.first, links), here.second + links};
      }
      if (here > best_left) best_left = here, best = cycle;
    });
    if (best.empty()) return rings;
    for (std::size_t i = 0; i < best.size() && (devices.size() > 2 || i == 0); ++i) {
      const auto a = static_cast<std::size_t>(best[i]), b = static_cast<std::size_t>(best[(i + 1) % best.size()]);
      --left[a][b], --left[b][a];
    }
    for (int& place : best) place = devices[static_cast<std::size_t>(place)];
    const auto same = std::find_if(rings.begin(), rings.end(), [&](const MeshRing& r) { return r.order == best; });
    if (same != rings.end())
      ++same->parts;
    else
      rings.push_back({best, 1});
  }
}

}  // namespace rehearse::cluster
