// cluster.nodes: a mixed cluster, nodes of several kinds behind one fabric. Each entry names the topology whose node it
// is of, and how many there are; what else it says of the node the topology's reader judges, to whom the list goes as
// an override, `nodes`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

constexpr std::int64_t kMostNodes = 1 << 20;

std::string entry_text(const Node& entry) {
  std::string text;
  for (const std::string& key : entry.keys()) {
    const Node value = entry.get(key);
    const std::string said =
        key == "topology" ? quoted_text(beside(value, value.as_text().value_or(""))) : flow_text(value);
    text += (text.empty() ? "" : ", ") + key + ": " + said;
  }
  return "{" + text + "}";
}

void not_counted(const Node& gpus, const std::string& topology, const std::string& data_root) {
  std::vector<std::string> known;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(data_root + "/topologies", error))
    if (entry.path().extension() == ".yaml") known.push_back(entry.path().stem().string());
  std::sort(known.begin(), known.end());
  const std::string near = nearest(topology, known);
  gpus.error(
      topology.empty()
          ? "gpus is the sum of the nodes' devices, and an entry of cluster.nodes names no topology"
          : fmt::format("gpus is the sum of the nodes' devices, and topology '{}' of cluster.nodes has no file that "
                        "says how many a node has",
                        topology),
      near.empty() || near == topology ? "give gpus" : fmt::format("did you mean '{}'?", near));
}

}  // namespace

void read_cluster_nodes(const Node& list, ClusterRequest& request) {
  if (!list || list.kind() == Node::Kind::null) return;
  constexpr const char* kExample = "e.g. '[{topology: dgx-h100, count: 4}, {topology: dgx-a100, count: 4}]'";
  if (list.kind() != Node::Kind::sequence) return list.error("expected a list of kinds of nodes", kExample);
  std::string text;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Node entry = list.at(i);
    if (entry.kind() != Node::Kind::mapping) {
      entry.error("expected a mapping", kExample);
      continue;
    }
    const Node topology = entry.get("topology");
    NodesOfKind nodes{topology ? beside(topology, entry.text("topology")) : "",
                      entry.integer("count", {}, 1, kMostNodes)};
    if (!topology) nodes.topology.clear();
    request.nodes.push_back(std::move(nodes));
    text += (text.empty() ? "" : ", ") + entry_text(entry);
  }
  if (!text.empty()) request.overrides.emplace_back("nodes", "[" + text + "]");
}

std::vector<std::int64_t> devices_of_nodes(const ClusterRequest& cluster, const std::string& data_root) {
  std::vector<std::int64_t> devices;
  for (const NodesOfKind& nodes : cluster.nodes) {
    ClusterRequest one;
    one.topology = nodes.topology;
    devices.push_back(nodes.topology.empty() ? 0 : devices_of_node(one, data_root).value_or(0));
  }
  return devices;
}

void count_devices(const Node& cluster, const std::string& data_root, ClusterRequest& request) {
  if (request.nodes.empty()) return;
  const std::vector<std::int64_t> each = devices_of_nodes(request, data_root);
  std::int64_t sum = 0;
  std::vector<std::string> terms;
  for (std::size_t i = 0; i < each.size(); ++i) {
    if (each[i] == 0) {  // gpus given: the topology's reader says what is wrong, if anything is
      if (!cluster.has("gpus")) not_counted(cluster.get("gpus"), request.nodes[i].topology, data_root);
      return;
    }
    sum += each[i] * request.nodes[i].count;
    terms.push_back(fmt::format("{} nodes of {}", request.nodes[i].count, each[i]));
  }
  const Node gpus = cluster.get("gpus");
  if (!gpus) {
    request.gpus = sum;
    return;
  }
  const bool fewer = cluster.has("placement") || cluster.has("jobs");
  if (request.gpus == sum || (fewer && request.gpus < sum)) return;
  gpus.error(fmt::format("gpus = {}, but the nodes have {} = {} devices", request.gpus, fmt::join(terms, " + "), sum),
             fewer ? "" : "leave gpus out; with placement or jobs they may be fewer");
}

}  // namespace rehearse::plan::detail
