// Reads topology files (schema version 1; topologies/dgx-a100.yaml and local.yaml show the keys of two kinds, the
// others are in read_links.cpp and read_composed.h) and builds the cluster. Bandwidths are given as the nominal rate of
// one direction and the share of it that payload reaches, so that an override of the rate keeps the share.
#include "sim/cluster/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "sim/base/document.h"
#include "sim/base/host.h"
#include "sim/cluster/build_composed.h"
#include "sim/cluster/faults.h"
#include "sim/cluster/machines.h"
#include "sim/cluster/read_composed.h"
#include "sim/cluster/read_links.h"
#include "sim/cluster/read_port.h"

namespace rehearse::cluster {
namespace {

constexpr int kMaxDevices = 1 << 20;
// Keys of the topology file that the scenario has under the same name (sim/plan/scenario.cpp hands them on as
// overrides).
constexpr const char* kScenarioKeys[] = {"nodes", "placement", "jobs", "faults", "background", "gpudirect"};

std::string topology_path(const std::string& topology, const std::string& data_root) {
  if (topology.find('/') != std::string::npos || topology.ends_with(".yaml") || topology.ends_with(".yml"))
    return topology;
  const std::vector<std::string> names = topology_names(data_root);
  if (std::find(names.begin(), names.end(), topology) != names.end())
    return data_root + "/topologies/" + topology + ".yaml";
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  const std::string near = nearest(topology, names);
  Diagnostic unknown;
  unknown.path = "cluster.topology";
  unknown.message = fmt::format("unknown topology '{}'; known are {} and paths of files", topology, list);
  if (!near.empty()) unknown.hint = fmt::format("did you mean '{}'?", near);
  throw InputError(std::move(unknown));
}

FatTreeNumbers read_fat_tree(const Node& root) {
  FatTreeNumbers n;
  const Node node = root.get("node");
  n.devices_per_node = integer(node, "devices", 1, 256);
  node.finish();
  const Node nvlink = root.get("nvlink");
  const Port nvlink_port = read_port(nvlink);
  n.nvlink = nvlink_port.effective;
  n.nvlink_latency = nvlink_port.latency;
  nvlink.finish();
  const Node nic = root.get("nic");
  n.nics_per_node = integer(nic, "count", 1, 256);
  const Port nic_port = read_port(nic);
  n.nic = nic_port.effective;
  n.nic_latency = nic_port.latency;
  nic.finish();
  if (n.devices_per_node > 0 && n.nics_per_node > 0 && n.devices_per_node % n.nics_per_node != 0)
    nic.get("count").error(
        fmt::format("{} NICs do not divide {} devices of a node evenly", n.nics_per_node, n.devices_per_node));
  const Node fabric = root.get("fabric");
  n.nodes_per_unit = integer(fabric, "nodes_per_unit", 1, 4096);
  n.units = integer(fabric, "units", 1, 4096);
  n.oversubscription = fabric.number("oversubscription", 1.0, 1.0, 1000.0);
  n.hop_latency = read_latency(fabric, "hop_latency");
  n.sharp = fabric.boolean("sharp", false);
  fabric.finish();
  return n;
}

LocalHostNumbers read_local(const Node& root, int open_cores) {
  LocalHostNumbers n;
  const Node host = root.get("host");
  const bool automatic = host.text("cores", "auto") == "auto";
  n.cores = automatic ? open_cores : integer(host, "cores", 1, 4096);
  host.finish();
  const Node loopback = root.get("loopback");
  const Port port = read_port(loopback);
  n.loopback = port.effective;
  n.loopback_latency = port.latency;
  loopback.finish();
  return n;
}

std::vector<int> first_devices(const FatTreeNumbers& tree) {
  std::vector<int> first{0};
  for (int n = 0; n < tree.units * tree.nodes_per_unit; ++n) first.push_back(first.back() + tree.devices_per_node);
  return first;
}

// Whole nodes, as far as any rank or flow needs them.
int devices_made(const Conditions& conditions, int ranks, int per_node) {
  int last = conditions.placement.empty() ? ranks - 1 : 0;
  for (const int device : conditions.placement) last = std::max(last, device);
  last = std::max(last, conditions.other_jobs);
  for (const BackgroundFlow& flow : conditions.background) last = std::max({last, flow.from, flow.to});
  return (last / per_node + 1) * per_node;
}

void refuse_missing(const Node& root, const Conditions& conditions) {
  for (std::size_t i = 0; i < conditions.faults.size(); ++i)
    if (conditions.faults[i].missing || conditions.faults[i].latency > Time())
      root.get("faults").at(i).error("a fat_tree keeps no links to leave out or to lengthen, only shares of them",
                                     "share or bandwidth; or a topology of kind: composed, as hgx-h200");
}

// gpudirect: false, of nodes of which it is known how devices reach their host.
void divert_through_hosts(const Node& root, bool composes, ComposedFile& file) {
  const auto refuse = [&] {
    root.get("gpudirect")
        .error("the topology's nodes have no PCIe links by which devices and NICs reach their host",
               "a topology of kind: composed with 'pcie', such as aws-p4d, hgx-h200 or ethernet-a100");
  };
  if (!composes) return refuse();
  for (NodeGroup& group : file.groups) {
    group.graph.through_host = true;
    const std::vector<int> nics = group.graph.of_kind(VertexKind::nic);
    if (nics.empty()) continue;
    const NodeWays ways(group.graph);
    for (int d = 0; d < group.devices; ++d)
      for (int k = 0; k < static_cast<int>(nics.size()); ++k)
        if (!ways.to_nic(d, k).exists) return refuse();
  }
}

// What the nodes are, where they are of several kinds: "DGX H100 SuperPOD: 4 nodes of h100-sxm, 4 of a100-sxm-80g".
std::string name_of_mixed(std::string name, const ComposedFile& file, const std::string& device) {
  for (std::size_t g = 0; g < file.groups.size(); ++g) {
    const NodeGroup& group = file.groups[g];
    name += fmt::format("{}{}{} of {}", g == 0 ? ": " : ", ", group.count, g == 0 ? " nodes" : "",
                        group.graph.device.empty() ? device : group.graph.device);
  }
  return name;
}

// An override's problem is reported by its key in the scenario, not as one of the topology file's.
void throw_if_any(const Diagnostics& found) {
  Diagnostics moved;
  for (Diagnostic d : found.list()) {
    if (d.file == "--set") {
      d.file.clear();
      const bool own_key = std::any_of(std::begin(kScenarioKeys), std::end(kScenarioKeys),
                                       [&](const char* key) { return d.path.starts_with(key); });
      d.path = own_key ? "cluster." + d.path : d.path.empty() ? "cluster.overrides" : "cluster.overrides." + d.path;
    }
    moved.add(std::move(d));
  }
  moved.throw_if_any();
}

[[noreturn]] void refuse_devices(const std::string& path, int devices, const std::string& why,
                                 const std::string& hint) {
  Diagnostic refused;
  refused.path = "cluster.gpus";
  refused.message = fmt::format("{} devices: {} ({})", devices, why, path);
  refused.hint = hint;
  throw InputError(std::move(refused));
}

}  // namespace

std::vector<std::string> topology_names(const std::string& data_root) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(data_root + "/topologies", error))
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::unique_ptr<Cluster> build_cluster(const std::string& topology, int devices, const Overrides& overrides,
                                       int threads_per_rank, const std::string& data_root, int open_cores, int job) {
  if (open_cores == 0) open_cores = usable_cores();
  const std::string path = topology_path(topology, data_root);
  Diagnostics diagnostics;
  Document document = Document::from_file(path, diagnostics);
  for (const auto& [key, value] : overrides) document.set(key + "=" + value);
  const Node root = document.root();
  root.integer("topology", {}, 1, 1);
  const int kind = root.choice("kind", {"fat_tree", "local", "links", "composed"});
  const std::string name = root.text("name");
  const std::string device = root.text("device");
  FatTreeNumbers tree;
  LocalHostNumbers local;
  LinksNumbers links;
  ComposedFile composed;
  Conditions conditions;
  const bool accelerators = kind == 0 || kind == 3;
  const bool mixed = kind == 0 ? root.has("nodes") : kind == 3 && names_topologies(root);
  const bool composes = kind == 3 || mixed;
  std::vector<Document> named;  // by entries of `nodes`
  const OpenTopology open = [&](const Node& at, const std::string& topology_name) -> std::optional<Node> {
    try {
      named.push_back(Document::from_file(topology_path(topology_name, data_root), diagnostics));
      return named.back().root();
    } catch (const InputError& error) {
      for (const Diagnostic& d : error.diagnostics()) at.error(d.message, d.hint);
      return std::nullopt;
    }
  };
  std::vector<int> first_device{0, 0};
  if (kind == 0 && !mixed) tree = read_fat_tree(root);
  if (accelerators) tree.host = read_host_memory(root);
  if (kind == 1) local = read_local(root, open_cores);
  if (kind == 2) links = read_links(root, open_cores);
  if (composes) {
    composed = read_composed(root, open);
    composed.host = tree.host;
  }
  if (accelerators && !root.boolean("gpudirect", true) && diagnostics.empty())
    divert_through_hosts(root, composes, composed);
  if (diagnostics.empty() && accelerators) {
    first_device = composes ? first_devices(composed) : first_devices(tree);
    conditions = read_conditions(root, devices, first_device, job);
    if (!composes) refuse_missing(root, conditions);
  }
  for (const char* key : kScenarioKeys)  // known, read or not
    if (const Node node = root.get(key); node && !accelerators)
      node.error("only clusters of accelerators have it (kind: fat_tree or composed)");
  root.finish();
  throw_if_any(diagnostics);

  if (devices < 1 || devices > kMaxDevices)
    refuse_devices(path, devices, fmt::format("a cluster has 1 to {}", kMaxDevices), "");
  const int ranks = job > 0 ? static_cast<int>(conditions.placement.size()) : devices;
  if (kind == 1) {
    local.name = name;
    local.device = device;
    local.threads_per_rank = threads_per_rank > 0 ? threads_per_rank : std::max(1, local.cores / devices);
    return std::make_unique<LocalHost>(std::move(local), devices);
  }
  if (kind == 2) {
    if (devices > static_cast<int>(links.hosts.size()))
      refuse_devices(path, devices, fmt::format("'{}' has {} hosts of one each", name, links.hosts.size()), "");
    links.name = name;
    links.device = device;
    const int sharing = links.shared_host ? devices : 1;
    links.threads_per_rank = threads_per_rank > 0 ? threads_per_rank : std::max(1, links.cores / sharing);
    return std::make_unique<Links>(std::move(links), devices);
  }
  if (composes) {
    if (devices > first_device.back())
      refuse_devices(path, devices, fmt::format("'{}' holds at most {}", name, first_device.back()), "a larger fabric");
    Diagnostics unfit;
    try {
      const std::string whole_name = mixed ? name_of_mixed(name, composed, device) : name;
      return build_composed(std::move(composed), conditions, whole_name, device, ranks);
    } catch (const InputError& error) {
      for (const Diagnostic& d : error.diagnostics()) unfit.add(d);
    }
    throw_if_any(unfit);
  }
  const std::int64_t limit = std::int64_t{tree.units} * tree.nodes_per_unit * tree.devices_per_node;
  if (devices > limit)
    refuse_devices(path, devices,
                   fmt::format("'{}' holds at most {} ({} units of {} nodes of {})", name, limit, tree.units,
                               tree.nodes_per_unit, tree.devices_per_node),
                   "a larger fabric: override fabric.units");
  tree.name = name;
  tree.device = device;
  if (conditions.none()) return std::make_unique<FatTree>(std::move(tree), devices);
  const int all = devices_made(conditions, ranks, tree.devices_per_node);
  auto adjusted = make_adjusted(std::make_unique<FatTree>(std::move(tree), all), conditions, ranks);
  Diagnostics unused;
  report_unused(conditions.faults, unused);
  throw_if_any(unused);
  return adjusted;
}

}  // namespace rehearse::cluster
