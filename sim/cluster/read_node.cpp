// Reads what a node is: `node` with the blocks nvlink, pcie, host and nic beside it, or `nodes`, a list of kinds of
// node that may replace blocks.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "sim/cluster/read_composed.h"
#include "sim/cluster/read_port.h"

namespace rehearse::cluster {
namespace {

constexpr int kMostInNode = 256;

// The blocks that stand next to `node`; one that is not there leaves what was read before.
struct Blocks {
  Lanes nvlink, pcie, socket, nic;
  int pcie_switches = 0, sockets = 1, nics = 0;

  void read(const Node& from) {
    if (const Node nvlink_node = from.get("nvlink")) nvlink = lanes(nvlink_node);
    if (const Node pcie_node = from.get("pcie")) {
      pcie_switches = integer(pcie_node, "switches", 0, kMostInNode, 0);
      pcie = lanes(pcie_node);
    }
    if (const Node host = from.get("host")) {
      sockets = integer(host, "sockets", 1, 64);
      if (sockets > 1 || host.has("bandwidth")) socket = lanes(host, false);
      host.finish();
    }
    if (const Node nic_node = from.get("nic")) {
      nics = integer(nic_node, "count", 1, kMostInNode);
      nic = lanes(nic_node);
    }
  }

  static Lanes lanes(const Node& node, bool last = true) {
    const Port port = read_port(node);
    if (last) node.finish();
    return {port.effective, port.latency};
  }
};

using Numbers = std::map<std::string, int>;

void add_names(const Node& list, VertexKind kind, NodeGraph& graph, Numbers& numbers) {
  if (list && list.kind() != Node::Kind::sequence) list.error("expected a list of names");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string name = list.at(i).as_text().value_or("");
    if (name.empty())
      list.at(i).error("expected a name");
    else if (!numbers.try_emplace(name, static_cast<int>(graph.vertices.size())).second)
      list.at(i).error(fmt::format("'{}' is there already", name));
    else
      graph.add(name, kind);
  }
}

int link_end_of(const Node& end, const Numbers& numbers) {
  const std::string name = end.as_text().value_or("");
  if (const auto found = numbers.find(name); found != numbers.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, number] : numbers) names.push_back(known);
  const std::string near = nearest(name, names);
  end.error(fmt::format("'{}' is no device, switch or NIC of the node", name),
            near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  return -1;
}

void read_node_link(const Node& node, const Numbers& numbers, NodeGraph& graph) {
  constexpr ResourceKind kKinds[] = {ResourceKind::nvlink, ResourceKind::pcie, ResourceKind::host};
  const Node between = node.get("between");
  const int kind = node.choice("kind", {"nvlink", "pcie", "host"});
  const Port port = read_port(node, Time());
  node.finish();
  if (between.size() != 2) {
    (between ? between : node)
        .error("expected 'between', the two that the link joins", "e.g. between: [gpu0, nvswitch]");
    return;
  }
  const int a = link_end_of(between.at(0), numbers), b = link_end_of(between.at(1), numbers);
  if (a == b && a >= 0) between.error("a link joins two, found one twice");
  if (a >= 0 && b >= 0 && a != b) graph.join(a, b, kKinds[kind], port.effective, port.latency);
}

Inside inside_of(const NodeGraph& graph) {
  const auto is = [&graph](int v, VertexKind kind) { return graph.vertices[static_cast<std::size_t>(v)].kind == kind; };
  bool pcie = false, mesh = false, nvswitch = false;
  for (const NodeLink& link : graph.links) {
    const bool device = is(link.a, VertexKind::device) || is(link.b, VertexKind::device);
    const bool two = is(link.a, VertexKind::device) && is(link.b, VertexKind::device);
    nvswitch |=
        link.kind == ResourceKind::nvlink && (is(link.a, VertexKind::nvswitch) || is(link.b, VertexKind::nvswitch));
    mesh |= link.kind == ResourceKind::nvlink && two;
    pcie |= link.kind == ResourceKind::pcie && device;
  }
  return nvswitch ? Inside::nvswitch : mesh ? Inside::nvlink_mesh : pcie ? Inside::pcie : Inside::none;
}

NodeGraph read_written(const Node& node, int devices, const Blocks& blocks) {
  NodeGraph graph;
  Numbers numbers;
  for (int d = 0; d < devices; ++d)
    numbers[fmt::format("gpu{}", d)] = graph.add(fmt::format("gpu{}", d), VertexKind::device);
  const Node switches = node.get("switches");
  add_names(switches.get("nvswitch"), VertexKind::nvswitch, graph, numbers);
  add_names(switches.get("pcie"), VertexKind::pcie_switch, graph, numbers);
  add_names(switches.get("host"), VertexKind::host, graph, numbers);
  if (switches) switches.finish();
  for (int k = 0; k < blocks.nics; ++k)
    numbers[fmt::format("nic{}", k)] = graph.add(fmt::format("nic{}", k), VertexKind::nic);
  const Node links = node.get("links");
  if (links.kind() != Node::Kind::sequence) (links ? links : node).error("expected 'links', a list");
  for (std::size_t l = 0; l < links.size(); ++l) read_node_link(links.at(l), numbers, graph);
  graph.inside = inside_of(graph);
  graph.nic = blocks.nic.bandwidth;
  graph.nic_latency = blocks.nic.latency;
  return graph;
}

void read_mesh(const Node& mesh, NodeNumbers& n) {
  if (mesh.kind() != Node::Kind::sequence) mesh.error("expected a list of [device, device, links between them]");
  for (std::size_t i = 0; i < mesh.size(); ++i) {
    const Node entry = mesh.at(i);
    std::array<int, 3> pair{};
    bool good = entry.size() == 3;
    for (std::size_t j = 0; good && j < 3; ++j) {
      const auto value = entry.at(j).as_integer();
      good = value && *value >= (j == 2 ? 1 : 0) && *value < (j == 2 ? 65 : n.devices);
      if (good) pair[j] = static_cast<int>(*value);
    }
    good = good && pair[0] != pair[1];
    for (const auto& known : n.mesh)
      if (good && std::minmax(known[0], known[1]) == std::minmax(pair[0], pair[1])) {
        entry.error(fmt::format("devices {} and {} are joined already", pair[0], pair[1]));
        return;
      }
    if (good)
      n.mesh.push_back(pair);
    else
      entry.error(
          fmt::format("expected [device, device, links] with two devices of 0 to {} and 1 to 64 links", n.devices - 1));
  }
}

void check(const Node& node, const NodeNumbers& n) {
  const bool nvlink = n.inside == Inside::nvswitch || n.inside == Inside::nvlink_mesh;
  if (nvlink && n.nvlink.bandwidth.per_s() == 0) node.error("needs the block 'nvlink' beside it");
  if (n.inside == Inside::pcie && n.pcie.bandwidth.per_s() == 0)
    node.error("inside: pcie needs the block 'pcie' beside it");
  if (n.inside == Inside::none && n.devices > 1)
    node.error(fmt::format("{} devices with nothing between them", n.devices), "inside: nvswitch, mesh or pcie");
  if (n.sockets > 1 && n.pcie.bandwidth.per_s() == 0)
    node.error("'host' joins PCIe switches; it needs the block 'pcie'");
  const auto divides = [](int a, int b) { return a > 0 && b > 0 && (a % b == 0 || b % a == 0); };
  if (n.nics > 0 && !divides(n.devices, n.nics))
    node.error(fmt::format("{} NICs and {} devices: one number has to divide the other", n.nics, n.devices),
               "inside: links takes any");
  if (n.pcie_switches > 0 && n.sockets > n.pcie_switches)
    node.error(fmt::format("{} sockets, but {} PCIe switches below them", n.sockets, n.pcie_switches));
}

// `switched`: of a fat_tree file, which has no word for it.
NodeGroup read_group(const Node& node, const Blocks& blocks, bool switched = false) {
  constexpr Inside kInside[] = {Inside::nvswitch, Inside::nvlink_mesh, Inside::pcie, Inside::none, Inside::none};
  NodeGroup group;
  NodeNumbers n;
  n.devices = group.devices = std::max(1, integer(node, "devices", 1, kMostInNode));
  const int inside =
      node.choice("inside", {"nvswitch", "mesh", "pcie", "none", "links"}, switched ? std::optional(0) : std::nullopt);
  n.inside = kInside[inside];
  n.nvlink = blocks.nvlink, n.pcie = blocks.pcie, n.socket = blocks.socket, n.nic = blocks.nic;
  n.pcie_switches = blocks.pcie_switches, n.sockets = blocks.sockets;
  n.nics = group.nics = blocks.nics;
  if (inside == 1) read_mesh(node.get("mesh"), n);
  if (inside == 4) {
    group.graph = read_written(node, n.devices, blocks);
    return group;
  }
  check(node, n);
  group.graph = make_node(n);
  return group;
}

// Every device must be reachable: by another device of its node, or over a NIC.
void check_ways(const Node& node, const NodeGroup& group) {
  const NodeWays ways(group.graph);
  for (int d = 0; d < group.devices; ++d) {
    bool nic = group.nics == 0;
    for (int k = 0; k < group.nics && !nic; ++k) nic = ways.to_nic(d, k).exists;
    if (!nic) node.error(fmt::format("no way from gpu{} to a NIC of its node", d));
    for (int e = d + 1; e < group.devices; ++e) {
      if (ways.between(d, e).exists || (nic && group.nics > 0)) continue;
      node.error(fmt::format("no way from gpu{} to gpu{}", d, e));
      return;
    }
  }
}

// A value in it that is an override.
std::optional<Node> override_in(const Node& node) {
  if (node.file() == "--set") return node;
  if (node.kind() != Node::Kind::mapping) return std::nullopt;
  for (const std::string& key : node.keys())
    if (std::optional<Node> found = override_in(node.get(key))) return found;
  return std::nullopt;
}

// An entry {topology, count} of a mixed cluster: the node of that topology, with what the entry says otherwise.
std::optional<NodeGroup> read_named(const Node& entry, const OpenTopology& open) {
  const Node name = entry.get("topology");
  const std::string text = name.as_text().value_or("");
  if (text.empty()) name.error("expected the name of a topology or a path");
  const std::optional<Node> of = text.empty() || !open ? std::nullopt : open(name, text);
  if (!of) return std::nullopt;
  const std::string kind = of->get("kind").as_text().value_or("");
  if (kind != "fat_tree" && kind != "composed") {
    name.error(fmt::format("'{}' is of kind: {}, which has no nodes of accelerators", text, kind),
               "topologies of kind fat_tree or composed have");
    return std::nullopt;
  }
  if (of->has("nodes")) {
    name.error(
        fmt::format("the nodes of '{}' are of {} kinds; expected a topology of one", text, of->get("nodes").size()),
        "write its kinds of nodes out here");
    return std::nullopt;
  }
  Blocks own;
  own.read(*of);
  own.read(entry);
  const Node node = of->get("node");
  NodeGroup group = read_group(node, own, kind == "fat_tree");
  check_ways(entry, group);
  group.graph.device = entry.text("device", of->text("device"));
  group.graph.host = read_host_memory(entry.has("host_memory") ? entry : *of);
  return group;
}

}  // namespace

bool names_topologies(const Node& root) {
  const Node list = root.get("nodes");
  for (std::size_t i = 0; list.kind() == Node::Kind::sequence && i < list.size(); ++i)
    if (list.at(i).has("topology")) return true;
  return false;
}

std::vector<NodeGroup> read_nodes(const Node& root, const OpenTopology& open) {
  std::vector<NodeGroup> groups;
  Blocks blocks;
  blocks.read(root);
  const Node list = root.get("nodes");
  if (list.file() == "--set") (void)root.get("node");  // the file's own, in whose place the list is
  if (names_topologies(root))
    for (const char* key : {"device", "nvlink", "pcie", "host", "host_memory", "node"})
      if (const std::optional<Node> own = override_in(root.get(key)))
        own->error(fmt::format("{} is of a cluster of one kind of nodes; here each entry of nodes names its own", key),
                   fmt::format("{} in an entry of cluster.nodes", key));
  if (!list) {
    const Node node = root.get("node");
    if (!node) root.error("expected 'node', what each node is, or 'nodes', a list of kinds of node");
    groups.push_back(read_group(node, blocks));
    check_ways(node, groups.back());
    if (node) node.finish();
    return groups;
  }
  if (list.kind() != Node::Kind::sequence || list.size() == 0) list.error("expected a list of kinds of node");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Node node = list.at(i);
    NodeGroup group;
    if (node.has("topology")) {
      group = read_named(node, open).value_or(NodeGroup());
    } else {
      Blocks own = blocks;
      own.read(node);
      group = read_group(node, own);
      check_ways(node, group);
      group.graph.device = node.text("device", "");
      if (node.has("host_memory")) group.graph.host = read_host_memory(node);
    }
    group.count = integer(node, "count", 1, 1 << 20);
    node.finish();
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace rehearse::cluster
