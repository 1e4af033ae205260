// Writes a topology file of kind: composed from what was discovered. Every number says where it is from.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "formats/discovered.h"
#include "sim/base/harmless_text.h"

namespace rehearse::formats {
namespace {

std::string rate(double gbps) {
  return fmt::format("{:.10g}GB/s", gbps);
}

// For between single quotes.
std::string yaml_quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? "''" : std::string(1, c == '\n' ? ' ' : c);
  return out;
}

// A name as one YAML text, quoted where it would read as something else.
std::string word(const std::string& name) {
  static const std::set<std::string> others = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/'; };
  const bool text = !name.empty() && std::isalpha(static_cast<unsigned char>(name.front())) &&
                    std::all_of(name.begin(), name.end(), plain) && !others.contains(lower);
  return text ? name : "'" + yaml_quoted(name) + "'";
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return "[" + text + "]";
}

// NCCL's hops of the LL protocol (src/graph/tuning.cc, v2.28.9-1), spread over the two links of a hop through a switch.
const char* latency_of(const DiscoveredLink& link) {
  if (link.kind == "host") return "1us";
  if (link.kind == "pcie") return "500ns";
  return link.b == "nvswitch" ? "300ns" : "600ns";
}

double slowest(const std::vector<DiscoveredNic>& nics) {
  double least = nics.front().gbps;
  for (const DiscoveredNic& nic : nics) least = std::min(least, nic.gbps);
  return least;
}

std::string nic_block(const DiscoveredNode& node, const std::string& indent) {
  double latency = 2.7;
  for (const DiscoveredNic& nic : node.nics) latency = std::max(latency, 2.7 + nic.latency_us);
  return fmt::format("{}nic: {{count: {}, bandwidth: {}, latency: {:.6g}us}}\n", indent, node.nics.size(),
                     rate(slowest(node.nics)), latency);
}

std::string node_block(const DiscoveredNode& node, const std::string& indent) {
  std::string text = fmt::format("{}devices: {}\n{}inside: links\n", indent, node.devices, indent);
  std::string switches;
  const auto kind = [&](const char* name, const std::vector<std::string>& names) {
    if (!names.empty()) switches += fmt::format("{}{}: {}", switches.empty() ? "" : ", ", name, list(names));
  };
  kind("nvswitch", node.nvswitches);
  kind("pcie", node.pcie_switches);
  kind("host", node.hosts);
  if (!switches.empty()) text += fmt::format("{}switches: {{{}}}\n", indent, switches);
  text += indent + "links:\n";
  for (const DiscoveredLink& link : node.links) {
    const std::string line = fmt::format("{}  - {{between: [{}, {}], kind: {}, bandwidth: {}, latency: {}}}", indent,
                                         link.a, link.b, link.kind, rate(link.gbps), latency_of(link));
    text += line + (link.why.empty() ? "" : "  # " + link.why) + "\n";
  }
  return text;
}

// Nodes that are alike follow one another as one kind.
std::string nodes_block(const std::vector<DiscoveredNode>& nodes, int hosts) {
  std::vector<std::pair<const DiscoveredNode*, int>> kinds;
  for (const DiscoveredNode& node : nodes) {
    const auto alike = [&](const DiscoveredNode& other) {
      return std::tie(node.links, node.devices, node.nics) == std::tie(other.links, other.devices, other.nics);
    };
    if (!kinds.empty() && alike(*kinds.back().first))
      ++kinds.back().second;
    else
      kinds.emplace_back(&node, 1);
  }
  if (hosts > static_cast<int>(nodes.size())) kinds.back().second += hosts - static_cast<int>(nodes.size());
  std::string text;
  if (kinds.size() == 1) {
    const DiscoveredNode& node = *kinds.front().first;
    text = "node:\n" + node_block(node, "  ");
    return node.nics.empty() ? text : text + "\n" + nic_block(node, "");
  }
  text = "nodes:\n";
  for (const auto& [node, count] : kinds) {
    std::string block = node_block(*node, "    ");
    text += fmt::format("  - count: {}\n{}{}", count, block, node->nics.empty() ? "" : nic_block(*node, "    "));
  }
  return text;
}

// Host names in the order people would give them: numbers by value.
bool natural_less(const std::string& a, const std::string& b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (std::isdigit(static_cast<unsigned char>(a[i])) && std::isdigit(static_cast<unsigned char>(b[j]))) {
      const std::size_t i0 = std::min(a.find_first_not_of('0', i), a.size()),
                        j0 = std::min(b.find_first_not_of('0', j), b.size());
      i = std::min(a.find_first_not_of("0123456789", i), a.size());
      j = std::min(b.find_first_not_of("0123456789", j), b.size());
      const std::string_view x = std::string_view(a).substr(std::min(i0, i), i - std::min(i0, i)),
                             y = std::string_view(b).substr(std::min(j0, j), j - std::min(j0, j));
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
    }
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;  // "a01" and "a1" are two hosts
}

struct Hosts {
  std::vector<std::string> names;
  std::map<int, std::vector<std::string>> attached;  // leaf -> node0/nic0
  double slowest = 0;
  int most_nics = 0;
};

// The place of a port's NIC in its node; -1: the node has none of that name.
int nic_of(const DiscoveredPort& port, const DiscoveredNode* node, int in_order) {
  if (node == nullptr) return in_order;
  for (std::size_t k = 0; k < node->nics.size(); ++k)
    if (!node->nics[k].guid.empty() && node->nics[k].guid == port.guid) return static_cast<int>(k);
  for (std::size_t k = 0; k < node->nics.size(); ++k)
    if (node->nics[k].name == port.hca) return static_cast<int>(k);
  return -1;
}

Hosts hosts_of(const DiscoveredFabric& fabric, const std::vector<DiscoveredNode>& nodes, Report& report) {
  Hosts hosts;
  for (const DiscoveredPort& port : fabric.ports) hosts.names.push_back(port.host);
  std::sort(hosts.names.begin(), hosts.names.end(), natural_less);
  hosts.names.erase(std::unique(hosts.names.begin(), hosts.names.end()), hosts.names.end());
  std::vector<const DiscoveredPort*> ports;
  for (const DiscoveredPort& port : fabric.ports) ports.push_back(&port);
  std::stable_sort(ports.begin(), ports.end(), [](const DiscoveredPort* a, const DiscoveredPort* b) {
    return a->host != b->host ? natural_less(a->host, b->host) : natural_less(a->hca, b->hca);
  });
  std::map<std::string, int> in_order;
  for (const DiscoveredPort* port : ports) {
    const auto host =
        std::lower_bound(hosts.names.begin(), hosts.names.end(), port->host, natural_less) - hosts.names.begin();
    const DiscoveredNode* node =
        nodes.empty() ? nullptr : &nodes[std::min(static_cast<std::size_t>(host), nodes.size() - 1)];
    const int nic = nic_of(*port, node, in_order[port->host]++);
    if (nic < 0) {
      report.ignored.push_back(fmt::format("{} of {}: no NIC of its node", port->hca, port->host));
      continue;
    }
    hosts.attached[port->leaf].push_back(fmt::format("node{}/nic{}", host, nic));
    hosts.slowest = hosts.slowest == 0 ? port->gbps : std::min(hosts.slowest, port->gbps);
    hosts.most_nics = std::max(hosts.most_nics, nic + 1);
  }
  return hosts;
}

std::string fabric_block(const DiscoveredFabric& fabric, const Hosts& hosts) {
  std::string text = fmt::format("fabric:\n  kind: links\n  nodes: {}\n  switches:\n", hosts.names.size());
  for (const std::string& name : fabric.switches) text += fmt::format("    - {}\n", word(name));
  if (!fabric.cables.empty()) text += "  links:\n";
  const auto name = [&](int number) { return word(fabric.switches[static_cast<std::size_t>(number)]); };
  for (const DiscoveredCable& cable : fabric.cables)
    text += fmt::format("    - {{between: [{}, {}], count: {}, bandwidth: {}, latency: 300ns}}\n", name(cable.a),
                        name(cable.b), cable.count, rate(cable.gbps));
  text += "  attach:\n";
  for (const auto& [leaf, nics] : hosts.attached) text += fmt::format("    {}: {}\n", name(leaf), list(nics));
  text += "\n# Nodes are the hosts in this order:\n";
  for (std::size_t h = 0; h < hosts.names.size(); ++h) text += fmt::format("#   node{} {}\n", h, hosts.names[h]);
  return text;
}

// A node of a fabric whose hosts nobody described: a device at each adapter, and nothing between them.
DiscoveredNode bare_node(const Hosts& hosts, Report& report) {
  DiscoveredNode node;
  node.device = "h100-sxm";
  node.devices = hosts.most_nics;
  for (int k = 0; k < hosts.most_nics; ++k) {
    node.nics.push_back({fmt::format("nic{}", k), "", hosts.slowest, 0});
    node.links.push_back({fmt::format("gpu{}", k), fmt::format("nic{}", k), "pcie", 48, "not in the file"});
  }
  report.assumed.push_back(
      fmt::format("nodes: {} {} devices each, one at each adapter, with nothing between them; give an NCCL XML or "
                  "nvidia-smi topo -m of a node too",
                  node.devices, node.device));
  return node;
}

// What other programs call things is printed and stands in comments: a line end in it would begin a key.
void keep_to_a_line(Report& report, std::vector<DiscoveredNode>& nodes) {
  for (auto* lines : {&report.used, &report.ignored, &report.assumed})
    for (std::string& line : *lines) line = escaped_controls(line);
  for (DiscoveredNode& node : nodes)
    for (DiscoveredLink& link : node.links) link.why = escaped_controls(link.why);
}

// What a node of a topology file has at most (docs/topologies.md).
void check_size(const std::vector<DiscoveredNode>& nodes) {
  constexpr std::size_t kMostInNode = 256;
  Diagnostics problems;
  for (const DiscoveredNode& node : nodes)
    if (node.nics.size() > kMostInNode || static_cast<std::size_t>(node.devices) > kMostInNode)
      problems.add({node.source, 0, 0, "",
                    fmt::format("{} GPUs and {} NICs, a node of a topology file has at most {} of each", node.devices,
                                node.nics.size(), kMostInNode),
                    ""});
  problems.throw_if_any();
}

}  // namespace

std::string write_topology(const std::string& name, const std::vector<DiscoveredNode>& nodes,
                           const DiscoveredFabric* fabric, Report& report) {
  Hosts hosts;
  std::vector<DiscoveredNode> all = nodes;
  if (fabric != nullptr) {
    hosts = hosts_of(*fabric, nodes, report);
    if (hosts.attached.empty())
      throw InputError(Diagnostic{fabric->source, 0, 0, "", "none of its adapters is a NIC of the node described", ""});
    if (all.empty()) all.push_back(bare_node(hosts, report));
  }
  check_size(all);
  keep_to_a_line(report, all);
  std::string sources;
  for (const DiscoveredNode& node : all)
    if (!node.source.empty()) sources += (sources.empty() ? "" : ", ") + escaped_controls(node.source);
  if (fabric != nullptr) sources += (sources.empty() ? "" : ", ") + escaped_controls(fabric->source);
  std::string text = fmt::format(
      "# Made by rehearse discover from {}.\n# Rates are effective, of one direction, as NCCL counts them "
      "(src/graph/topo.h, v2.28.9-1); latencies are its hops, not measured.\n",
      sources);
  for (const std::string& line : report.assumed) text += "# assumed: " + line + "\n";
  text += fmt::format("topology: 1\nkind: composed\nname: '{}'\ndevice: {}\n\n", yaml_quoted(name),
                      word(all.front().device));
  text += nodes_block(all, static_cast<int>(hosts.names.size()));
  if (fabric != nullptr) text += "\n" + fabric_block(*fabric, hosts) + "\nrouting: {policy: static}\n";
  const bool nics = std::all_of(all.begin(), all.end(), [](const DiscoveredNode& n) { return !n.nics.empty(); });
  if (fabric == nullptr && all.size() > 1 && nics) {
    report.assumed.push_back("fabric: one switch that does not block joins the nodes; none of the files says");
    text += fmt::format("\nfabric: {{kind: switch, nodes: {}}}  # assumed\n", all.size());
  }
  return escaped_controls(text, "\n");
}

}  // namespace rehearse::formats
