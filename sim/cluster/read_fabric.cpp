// Reads what joins the nodes: `fabric` and `routing`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "sim/cluster/read_composed.h"
#include "sim/cluster/read_port.h"

namespace rehearse::cluster {
namespace {

// Cables that go up for `down` that come from below, a whole number that the switches above divide.
int uplinks(const Node& node, const char* key, int down, int above, const char* what) {
  const double oversubscription = node.number(key, 1.0, 1.0, 1000.0);
  const double exact = down / oversubscription;
  const int up = static_cast<int>(std::lround(exact));
  if (up < 1 || std::abs(up - exact) > 1e-6 * exact)
    node.error(fmt::format("{} of {}: {} cables below over {} are {:.4g} uplinks, expected a whole number", key, what,
                           down, oversubscription, exact));
  else if (above > 0 && up % above != 0)
    node.error(fmt::format("{} uplinks of {} do not divide evenly over {} switches above", up, what, above));
  return std::max(1, up);
}

void read_tree(const Node& node, int nics, FabricNumbers& n) {
  n.kind = FabricKind::tree;
  n.rails = node.boolean("rails", true);
  n.levels = integer(node, "levels", 2, 3, 2);
  n.nodes_per_unit = std::max(1, integer(node, "nodes_per_unit", 1, 4096));
  n.units = std::max(1, integer(node, "units", 1, 65536));
  const int below = n.rails ? n.nodes_per_unit : n.nodes_per_unit * std::max(1, nics);
  const int spines = integer(node, "spines", 0, 65536, 0);
  n.uplinks = uplinks(node, "oversubscription", below, spines, "a leaf");
  n.spines = spines > 0 ? spines : n.uplinks;
  if (n.levels == 3) {
    n.units_per_pod = std::max(1, integer(node, "units_per_pod", 1, 65536));
    const int leaves = n.units_per_pod * (n.rails ? std::max(1, nics) : 1);
    const int cores = integer(node, "cores", 0, 65536, 0);
    n.core_uplinks =
        uplinks(node, "core_oversubscription", leaves * n.uplinks / std::max(1, n.spines), cores, "a spine");
    n.cores = cores > 0 ? cores : n.core_uplinks;
  }
  n.hop = read_latency(node, "hop_latency");
  if (const Node cable = node.get("cable")) {
    n.cable = read_port(cable, Time()).effective;
    cable.finish();
  }
}

void read_torus(const Node& node, FabricNumbers& n) {
  n.kind = FabricKind::torus;
  n.wraps = node.boolean("wrap", true);
  const Node dims = node.get("dims");
  std::int64_t count = 1;
  for (std::size_t i = 0; i < dims.size() && dims.kind() == Node::Kind::sequence; ++i) {
    const auto size = dims.at(i).as_integer();
    if (!size || *size < 1 || *size > 4096) {
      dims.at(i).error("expected a size, 1 to 4096");
      continue;
    }
    n.dims.push_back(static_cast<int>(*size));
    count *= *size;
  }
  if (n.dims.size() < 2 || n.dims.size() > 3) (dims ? dims : node).error("expected 'dims', two or three sizes");
  if (count > 1 << 20) dims.error("more than 1048576 routers");
  if (n.dims.size() < 2 || count > 1 << 20) n.dims = {1, 1};
  const Node link = node.get("link");
  if (!link) node.error("expected 'link', bandwidth and latency between neighbours");
  if (!link) return;
  const Port port = read_port(link);
  link.finish();
  n.link = port.effective, n.hop = port.latency;
}

void read_dragonfly(const Node& node, FabricNumbers& n) {
  n.kind = FabricKind::dragonfly;
  n.groups = std::max(1, integer(node, "groups", 1, 4096));
  n.routers = std::max(1, integer(node, "routers", 1, 1024));
  n.nodes_per_router = std::max(1, integer(node, "nodes_per_router", 1, 1024));
  n.global_links = std::max(1, integer(node, "global_links", 1, 1024));
  if (n.routers * n.global_links < n.groups - 1)
    node.error(fmt::format("{} routers of {} global links do not reach the {} other groups", n.routers, n.global_links,
                           n.groups - 1));
  n.hop = read_latency(node, "hop_latency");
  const auto rate = [&node](const char* key) {
    const Node link = node.get(key);
    if (!link) {
      node.error(fmt::format("expected '{}', a mapping with 'bandwidth'", key));
      return Bandwidth();
    }
    const Port port = read_port(link, Time());
    link.finish();
    return port.effective;
  };
  n.link = rate("local"), n.global = rate("global");
}

using Numbers = std::map<std::string, int>;

void read_switches(const Node& list, Fabric& fabric, Numbers& numbers) {
  if (list.kind() != Node::Kind::sequence) list.error("expected 'switches', a list of names");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string name = list.at(i).as_text().value_or("");
    if (name.empty())
      list.at(i).error("expected a name");
    else if (!numbers.try_emplace(name, static_cast<int>(fabric.switches.size())).second)
      list.at(i).error(fmt::format("'{}' is there already", name));
    else
      fabric.add(name);
  }
}

int switch_of(const Node& at, const std::string& name, const Numbers& numbers) {
  if (const auto found = numbers.find(name); found != numbers.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, number] : numbers) names.push_back(known);
  const std::string near = nearest(name, names);
  at.error(fmt::format("'{}' is no switch", name), near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  return -1;
}

void read_links(const Node& links, Fabric& fabric, const Numbers& numbers) {
  if (links && links.kind() != Node::Kind::sequence) links.error("expected a list of links");
  std::map<std::pair<int, int>, int> cables;
  for (std::size_t l = 0; l < links.size() && links.kind() == Node::Kind::sequence; ++l) {
    const Node node = links.at(l), between = node.get("between");
    const int count = integer(node, "count", 1, 1024, 1);
    const Port port = read_port(node, Time());
    node.finish();
    if (between.size() != 2) {
      (between ? between : node).error("expected 'between', the two switches that the link joins");
      continue;
    }
    const int a = switch_of(between.at(0), between.at(0).as_text().value_or(""), numbers);
    const int b = switch_of(between.at(1), between.at(1).as_text().value_or(""), numbers);
    if (a == b && a >= 0) between.error("a link joins two switches, found one twice");
    if (a < 0 || b < 0 || a == b) continue;
    for (int c = 0; c < count; ++c) fabric.join(a, b, port.effective, port.latency, cables[std::minmax(a, b)]++);
  }
}

// "node3/nic0"
std::optional<std::pair<int, int>> nic_of(const std::string& name) {
  int node = 0, nic = 0, end = 0;
  if (std::sscanf(name.c_str(), "node%7d/nic%4d%n", &node, &nic, &end) != 2 || end != static_cast<int>(name.size()))
    return {};
  if (node < 0 || nic < 0) return {};
  return std::pair(node, nic);
}

void read_attached(const Node& attach, ComposedFile& file, const Numbers& numbers) {
  if (attach.kind() != Node::Kind::mapping) attach.error("expected 'attach', a mapping of switches to lists of NICs");
  std::map<std::pair<int, int>, std::string> seen;
  for (const std::string& name : attach.keys()) {
    const Node list = attach.get(name);
    const int leaf = switch_of(list, name, numbers);
    if (list.kind() != Node::Kind::sequence)
      list.error("expected a list of NICs, for example [node0/nic0, node1/nic0]");
    for (std::size_t i = 0; i < list.size() && list.kind() == Node::Kind::sequence; ++i) {
      const std::string text = list.at(i).as_text().value_or("");
      const auto nic = nic_of(text);
      if (!nic)
        list.at(i).error(fmt::format("'{}' is no NIC, expected a name as node0/nic0", text));
      else if (!seen.try_emplace(*nic, name).second)
        list.at(i).error(fmt::format("{} hangs on '{}' already", text, seen[*nic]));
      else if (leaf >= 0)
        file.attached.push_back({nic->first, nic->second, leaf});
    }
  }
}

void read_written(const Node& node, ComposedFile& file) {
  file.fabric.kind = FabricKind::links;
  file.fabric.nodes = std::max(1, integer(node, "nodes", 1, 1 << 20));
  Numbers numbers;
  read_switches(node.get("switches"), file.written, numbers);
  read_links(node.get("links"), file.written, numbers);
  read_attached(node.get("attach"), file, numbers);
}

}  // namespace

void read_fabric(const Node& root, ComposedFile& file) {
  FabricNumbers& n = file.fabric;
  const bool of_tree = root.get("kind").as_text() == "fat_tree";
  int nics = 0;
  for (const NodeGroup& group : file.groups) nics = std::max(nics, group.nics);
  const Node node = root.get("fabric");
  if (!node) {
    n.nodes = 1;
  } else {
    switch (node.choice("kind", {"fat_tree", "switch", "rail_only", "torus", "dragonfly", "links"},
                        of_tree ? std::optional(0) : std::nullopt)) {
      case 0:
        read_tree(node, nics, n);
        break;
      case 3:
        read_torus(node, n);
        break;
      case 4:
        read_dragonfly(node, n);
        break;
      case 5:
        read_written(node, file);
        break;
      case 1:
        n.kind = FabricKind::single;
        n.nodes = integer(node, "nodes", 1, 1 << 20);
        break;
      default:
        n.kind = FabricKind::rail_only;
        n.nodes = integer(node, "nodes", 1, 1 << 20);
    }
    n.sharp = node.boolean("sharp", false);
    n.nvls_tree_chunk = node.bytes("nvls_tree_chunk", Bytes(0));
    node.finish();
    if (nics == 0 && !names_topologies(root))
      root.error("a fabric joins NICs, and there are none", "add the block 'nic'");
  }
  if (of_tree) file.routing = Routing::adaptive;
  if (const Node nic = root.get("nic"); n.cable.per_s() == 0 && nic && (of_tree || names_topologies(root)))
    n.cable = read_port(nic).effective;
  if (n.cable.per_s() == 0 && !file.groups.empty()) n.cable = file.groups.front().graph.nic;
  if (const Node routing = root.get("routing")) {
    constexpr Routing kRouting[] = {Routing::fixed, Routing::ecmp, Routing::adaptive};
    file.routing = kRouting[routing.choice("policy", {"static", "ecmp", "adaptive"})];
    file.seed = static_cast<std::uint64_t>(routing.integer("seed", 1, 0, INT64_MAX));
    routing.finish();
  }
}

ComposedFile read_composed(const Node& root, const OpenTopology& open) {
  ComposedFile file;
  file.groups = read_nodes(root, open);
  read_fabric(root, file);
  std::int64_t nodes = 0;
  for (const NodeGroup& group : file.groups) nodes += group.count;
  if (names_topologies(root) && nodes > file.fabric.limit())
    root.get("nodes").error(fmt::format("the nodes add up to {}, the fabric of '{}' holds at most {}", nodes,
                                        root.get("name").as_text().value_or(""), file.fabric.limit()),
                            "a larger fabric: fabric.units or fabric.nodes");
  return file;
}

}  // namespace rehearse::cluster
