// The generators of a node; the ways through it are in node_ways.cpp.
#include "sim/cluster/node_graph.h"

#include <fmt/format.h>

#include <utility>

namespace rehearse::cluster {
namespace {

Time half(Time time) {
  return Time::from_ps(time.ps() / 2);
}

void add_nvlinks(const NodeNumbers& n, NodeGraph& graph) {
  if (n.inside == Inside::nvswitch) {
    const int center = graph.add("nvswitch", VertexKind::nvswitch);
    for (int d = 0; d < n.devices; ++d)
      graph.join(d, center, ResourceKind::nvlink, n.nvlink.bandwidth, half(n.nvlink.latency));
  }
  for (const auto& [a, b, count] : n.mesh)
    graph.join(a, b, ResourceKind::nvlink, Bandwidth(n.nvlink.bandwidth.per_s() * count), n.nvlink.latency);
}

// Switches or, where there are none, host bridges: what devices and NICs hang on.
std::vector<int> add_pcie(const NodeNumbers& n, NodeGraph& graph) {
  const Time hop = half(n.pcie.latency);
  std::vector<int> switches, hosts;
  for (int s = 0; s < n.pcie_switches; ++s)
    switches.push_back(graph.add(fmt::format("pcie{}", s), VertexKind::pcie_switch));
  for (int h = 0; h < n.sockets; ++h) hosts.push_back(graph.add(fmt::format("host{}", h), VertexKind::host));
  for (int s = 0; s < n.pcie_switches; ++s)
    graph.join(switches[static_cast<std::size_t>(s)],
               hosts[static_cast<std::size_t>(s) * hosts.size() / switches.size()], ResourceKind::pcie,
               n.pcie.bandwidth, hop);
  for (std::size_t a = 0; a < hosts.size(); ++a)
    for (std::size_t b = a + 1; b < hosts.size(); ++b)
      graph.join(hosts[a], hosts[b], ResourceKind::host, n.socket.bandwidth, n.socket.latency);
  return switches.empty() ? hosts : switches;
}

}  // namespace

int NodeGraph::add(std::string name, VertexKind kind) {
  vertices.push_back({std::move(name), kind});
  return static_cast<int>(vertices.size()) - 1;
}

void NodeGraph::join(int a, int b, ResourceKind kind, Bandwidth bandwidth, Time latency) {
  links.push_back({a, b, kind, bandwidth, latency});
}

std::vector<int> NodeGraph::of_kind(VertexKind kind) const {
  std::vector<int> found;
  for (std::size_t v = 0; v < vertices.size(); ++v)
    if (vertices[v].kind == kind) found.push_back(static_cast<int>(v));
  return found;
}

NodeGraph make_node(const NodeNumbers& n) {
  NodeGraph graph;
  graph.inside = n.inside;
  graph.nic = n.nic.bandwidth;
  graph.nic_latency = n.nic.latency;
  for (int d = 0; d < n.devices; ++d) graph.add(fmt::format("gpu{}", d), VertexKind::device);
  add_nvlinks(n, graph);
  const bool pcie = n.pcie.bandwidth.per_s() > 0;
  const std::vector<int> points = pcie ? add_pcie(n, graph) : std::vector<int>{};
  const auto point_of = [&](int index, int count) {
    return points[static_cast<std::size_t>(index) * points.size() / static_cast<std::size_t>(count)];
  };
  const Time hop = half(n.pcie.latency);
  if (pcie)
    for (int d = 0; d < n.devices; ++d)
      graph.join(d, point_of(d, n.devices), ResourceKind::pcie, n.pcie.bandwidth, hop);
  for (int k = 0; k < n.nics; ++k) {
    const int nic = graph.add(fmt::format("nic{}", k), VertexKind::nic);
    if (pcie) {
      graph.join(nic, point_of(k, n.nics), ResourceKind::pcie, n.pcie.bandwidth, hop);
      continue;
    }
    for (int d = 0; d < n.devices; ++d)
      if (d * n.nics / n.devices == k || k * n.devices / n.nics == d)
        graph.join(d, nic, ResourceKind::pcie, Bandwidth(), Time());
  }
  return graph;
}

Bandwidth rate_to_host(const NodeGraph& graph, const std::vector<int>& devices) {
  const std::vector<int> vertices = graph.of_kind(VertexKind::device);
  std::vector<std::vector<std::size_t>> ways;
  std::vector<int> users(graph.links.size(), 0);
  for (const int place : devices) {
    const int device = vertices.at(static_cast<std::size_t>(place));
    std::vector<std::vector<std::size_t>> to(graph.vertices.size());  // links on the way to each vertex
    std::vector<bool> reached(graph.vertices.size(), false);
    std::vector<int> queue{device};
    reached[static_cast<std::size_t>(device)] = true;
    int host = -1;
    for (std::size_t q = 0; q < queue.size() && host < 0; ++q) {
      const int at = queue[q];
      if (graph.vertices[static_cast<std::size_t>(at)].kind == VertexKind::host) host = at;
      for (std::size_t l = 0; l < graph.links.size() && host < 0; ++l) {
        const NodeLink& link = graph.links[l];
        if (link.kind != ResourceKind::pcie || link.missing || (link.a != at && link.b != at)) continue;
        const int next = link.a == at ? link.b : link.a;
        if (reached[static_cast<std::size_t>(next)]) continue;
        reached[static_cast<std::size_t>(next)] = true;
        to[static_cast<std::size_t>(next)] = to[static_cast<std::size_t>(at)];
        to[static_cast<std::size_t>(next)].push_back(l);
        queue.push_back(next);
      }
    }
    if (host < 0) return {};
    ways.push_back(to[static_cast<std::size_t>(host)]);
    for (const std::size_t l : ways.back()) ++users[l];
  }
  std::int64_t least = 0;
  for (const auto& way : ways)
    for (const std::size_t l : way) {
      const std::int64_t rate = graph.links[l].bandwidth.per_s() / users[l];
      if (rate > 0 && (least == 0 || rate < least)) least = rate;
    }
  return Bandwidth(least);
}

}  // namespace rehearse::cluster
