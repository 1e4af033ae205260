// Reads topology files (schema version 1; topologies/dgx-a100.yaml and local.yaml show the keys of two kinds, the third
// is in read_links.cpp) and builds
// the cluster. Bandwidths are given as the nominal rate of one direction and the share of it that payload reaches, so
// that an override of the rate keeps the share.
#include "sim/cluster/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "sim/base/document.h"
#include "sim/base/host.h"
#include "sim/cluster/machines.h"
#include "sim/cluster/read_links.h"
#include "sim/cluster/read_port.h"

namespace rehearse::cluster {
namespace {

constexpr int kMaxDevices = 1 << 20;
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

int integer(const Node& node, const char* key, std::int64_t min, std::int64_t max,
            std::optional<std::int64_t> fallback = {}) {
  return static_cast<int>(node.integer(key, fallback, min, max));
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

// An override's problem is reported by its key in the scenario, not as one of the topology file's.
void throw_if_any(const Diagnostics& found) {
  Diagnostics moved;
  for (Diagnostic d : found.list()) {
    if (d.file == "--set") {
      d.file.clear();
      d.path = d.path.empty() ? "cluster.overrides" : "cluster.overrides." + d.path;
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
                                       int threads_per_rank, const std::string& data_root, int open_cores) {
  if (open_cores == 0) open_cores = usable_cores();
  const std::string path = topology_path(topology, data_root);
  Diagnostics diagnostics;
  Document document = Document::from_file(path, diagnostics);
  for (const auto& [key, value] : overrides) document.set(key + "=" + value);
  const Node root = document.root();
  root.integer("topology", {}, 1, 1);
  const int kind = root.choice("kind", {"fat_tree", "local", "links"});
  const std::string name = root.text("name");
  const std::string device = root.text("device");
  FatTreeNumbers tree;
  LocalHostNumbers local;
  LinksNumbers links;
  if (kind == 0) tree = read_fat_tree(root);
  if (kind == 1) local = read_local(root, open_cores);
  if (kind == 2) links = read_links(root, open_cores);
  root.finish();
  throw_if_any(diagnostics);

  if (devices < 1 || devices > kMaxDevices)
    refuse_devices(path, devices, fmt::format("a cluster has 1 to {}", kMaxDevices), "");
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
    const int ranks = links.shared_host ? devices : 1;
    links.threads_per_rank = threads_per_rank > 0 ? threads_per_rank : std::max(1, links.cores / ranks);
    return std::make_unique<Links>(std::move(links), devices);
  }
  const std::int64_t limit = std::int64_t{tree.units} * tree.nodes_per_unit * tree.devices_per_node;
  if (devices > limit)
    refuse_devices(path, devices,
                   fmt::format("'{}' holds at most {} ({} units of {} nodes of {})", name, limit, tree.units,
                               tree.nodes_per_unit, tree.devices_per_node),
                   "a larger fabric: override fabric.units");
  tree.name = name;
  tree.device = device;
  return std::make_unique<FatTree>(std::move(tree), devices);
}

}  // namespace rehearse::cluster
