// See build_composed.h. Only the nodes that ranks or other jobs' flows need are made.
#include "sim/cluster/build_composed.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/cluster/composed.h"

namespace rehearse::cluster {
namespace {

std::size_t group_of(const ComposedFile& file, int node) {
  std::size_t g = 0;
  for (int end = file.groups[0].count; g + 1 < file.groups.size() && node >= end; end += file.groups[g].count) ++g;
  return g;
}

int node_limit(const ComposedFile& file) {
  int sum = 0;
  for (const NodeGroup& group : file.groups) sum += group.count;
  const int limit = file.fabric.limit();
  return sum > 0 ? std::min(sum, limit) : limit;
}

// Faults that change the graph: what is missing, and what takes longer.
class GraphFaults {
 public:
  GraphFaults(const std::vector<Fault>& faults, ComposedParts& parts) : faults_(faults), parts_(parts) {}

  void apply(const std::vector<NicPlace>& nics) {
    for (std::size_t n = 0; n < parts_.type_of.size(); ++n) apply_to_node(n);
    for (std::size_t k = 0; k < nics.size(); ++k) {
      const std::string name = fmt::format("node{}/nic{}", nics[k].node, nics[k].nic);
      each({name + "-out", name + "-in"}, [&](const Fault& fault) {
        if (fault.missing) parts_.leaf_of[k] = -1;
        if (parts_.nic_delay.empty()) parts_.nic_delay.resize(nics.size());
        parts_.nic_delay[k] += fault.latency;
      });
    }
    Fabric& fabric = parts_.fabric;
    for (std::size_t l = 0; l < fabric.links.size(); ++l) {
      const int directed = static_cast<int>(2 * l);
      each({fabric.link_name(directed), fabric.link_name(directed + 1)}, [&](const Fault& fault) {
        fabric.links[l].missing |= fault.missing;
        fabric.links[l].latency += fault.latency;
        if (fault.missing) fabric.torus.clear();
      });
    }
  }

 private:
  template <typename Apply>
  void each(const std::array<std::string, 2>& names, Apply&& apply) {
    for (const Fault& fault : faults_) {
      if ((!fault.missing && fault.latency == Time()) ||
          !(matches(fault.pattern, names[0]) || matches(fault.pattern, names[1])))
        continue;
      fault.used = true;
      apply(fault);
    }
  }

  // A node that differs gets a type of its own, shared with nodes that differ in the same way.
  void apply_to_node(std::size_t n) {
    NodeGraph changed = parts_.types[static_cast<std::size_t>(parts_.type_of[n])];
    for (NodeLink& link : changed.links) {
      const std::string& a = changed.vertices[static_cast<std::size_t>(link.a)].name;
      const std::string& b = changed.vertices[static_cast<std::size_t>(link.b)].name;
      each({fmt::format("node{}/{}->{}", n, a, b), fmt::format("node{}/{}->{}", n, b, a)}, [&](const Fault& fault) {
        link.missing |= fault.missing;
        link.latency += fault.latency;
      });
    }
    const auto known = std::find(parts_.types.begin(), parts_.types.end(), changed);
    parts_.type_of[n] = static_cast<int>(known - parts_.types.begin());
    if (known == parts_.types.end()) parts_.types.push_back(std::move(changed));
  }

  const std::vector<Fault>& faults_;
  ComposedParts& parts_;
};

int node_at(const std::vector<int>& first_device, int device) {
  return static_cast<int>(std::upper_bound(first_device.begin(), first_device.end(), device) - first_device.begin()) -
         1;
}

void attach_written(const ComposedFile& file, const std::vector<NicPlace>& nics, ComposedParts& parts) {
  std::map<std::pair<int, int>, int> leaf;
  for (const auto& a : file.attached) leaf[{a.node, a.nic}] = a.leaf;
  for (std::size_t k = 0; k < nics.size(); ++k) {
    const auto found = leaf.find({nics[k].node, nics[k].nic});
    parts.leaf_of[k] = found == leaf.end() ? -1 : found->second;
  }
}

[[noreturn]] void refuse(const std::string& message, const std::string& hint) {
  throw InputError(Diagnostic{"", 0, 0, "cluster.topology", message, hint});
}

}  // namespace

std::vector<int> first_devices(const ComposedFile& file) {
  std::vector<int> first{0};
  for (int n = 0, limit = node_limit(file); n < limit; ++n)
    first.push_back(first.back() + file.groups[group_of(file, n)].devices);
  return first;
}

std::unique_ptr<Cluster> build_composed(ComposedFile file, const Conditions& conditions, std::string name,
                                        std::string device, int ranks) {
  const std::vector<int> first = first_devices(file);
  ComposedParts parts;
  parts.host = file.host;
  parts.name = std::move(name), parts.device = std::move(device);
  parts.routing = file.routing, parts.seed = file.seed;
  parts.placement = conditions.placement;
  for (int r = static_cast<int>(parts.placement.size()); r < ranks; ++r) parts.placement.push_back(r);
  int last = std::max(conditions.other_jobs, *std::max_element(parts.placement.begin(), parts.placement.end()));
  for (const BackgroundFlow& flow : conditions.background) last = std::max({last, flow.from, flow.to});
  const int nodes = node_at(first, last) + 1;
  std::vector<NicPlace> nics;
  int most_nics = 0;
  for (const NodeGroup& group : file.groups) {
    parts.types.push_back(group.graph);
    most_nics = std::max(most_nics, group.nics);
  }
  for (int n = 0; n < nodes; ++n) {
    const std::size_t group = group_of(file, n);
    parts.type_of.push_back(static_cast<int>(group));
    for (int k = 0; k < file.groups[group].nics; ++k) nics.push_back({n, k});
  }
  MadeFabric made = make_fabric(file.fabric, nodes, most_nics, nics, file.routing == Routing::adaptive);
  parts.leaf_of = std::move(made.leaf_of);
  parts.sharp = file.fabric.sharp;
  parts.nvls_tree_chunk = file.fabric.nvls_tree_chunk;
  parts.fabric = file.fabric.kind == FabricKind::links ? std::move(file.written) : std::move(made.fabric);
  if (file.fabric.kind == FabricKind::links) attach_written(file, nics, parts);
  if (!conditions.faults.empty()) GraphFaults(conditions.faults, parts).apply(nics);

  std::unique_ptr<Composed> whole;  // every device of the nodes made: where other jobs' flows go
  if (!conditions.background.empty()) {
    ComposedParts all = parts;
    all.placement.clear();
    for (int d = 0; d < first[static_cast<std::size_t>(nodes)]; ++d) all.placement.push_back(d);
    whole = std::make_unique<Composed>(std::move(all));
  }
  auto cluster = std::make_unique<Composed>(std::move(parts));
  if (const auto [a, b] = cluster->unreachable(); !a.empty() && cluster->nodes() > 1)
    refuse(fmt::format("no way from {} to {}", a, b), "the fabric, or what is missing of it, leaves them apart");
  degrade(cluster->resources(), conditions.faults);
  Diagnostics unused;
  report_unused(conditions.faults, unused);
  unused.throw_if_any();
  for (const BackgroundFlow& flow : conditions.background)
    take(cluster->resources(), whole->route(flow.from, flow.to), flow.rate);
  return cluster;
}

}  // namespace rehearse::cluster
