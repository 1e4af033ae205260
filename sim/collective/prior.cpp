// See prior.h. Steps of a ring: n-1 for each of its passes; all-to-all sends to n-1 peers one after the other.
#include "sim/collective/prior.h"

#include <algorithm>
#include <cmath>

#include "sim/collective/wire.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

double gbps(Bandwidth rate) {
  return static_cast<double>(rate.per_s()) * 1e-9;
}
double us(Time time) {
  return time.seconds() * 1e6;
}
// What PCIe on the way to another node lets through of a NIC's rate: NCCL's graph search counts it too.
Bandwidth through_pcie(const cluster::Cluster& cluster, int from, int to, Bandwidth nic) {
  const cluster::Route route = cluster.route(cluster.devices_of(from).front(), cluster.devices_of(to).front());
  for (const cluster::ResourceId id : route.resources) {
    const cluster::Resource& r = cluster.resources()[static_cast<std::size_t>(id)];
    if (r.kind == cluster::ResourceKind::pcie) nic = std::min(nic, r.nominal.per_s() > 0 ? r.nominal : r.capacity);
  }
  return nic;
}
// The nodes whose devices are of these kinds; empty: all.
std::vector<int> nodes_of(const cluster::Cluster& cluster, const std::vector<int>& kinds) {
  std::vector<int> nodes;
  for (int node = 0; node < cluster.nodes(); ++node)
    if (kinds.empty() ||
        std::find(kinds.begin(), kinds.end(), cluster.kind_of(cluster.devices_of(node).front())) != kinds.end())
      nodes.push_back(node);
  return nodes;
}
// The difference, exactly 0 for the constant itself.
double beyond(double hop_us, double constant_us) {
  const double difference = hop_us - constant_us;
  return std::abs(difference) < 1e-9 ? 0 : difference;
}

}  // namespace

nccl::Estimate Prior::collective(CollectiveKind kind, const nccl::Placement& place, double bytes) const {
  if (nccl) return nccl::best(machine, place, kind, bytes);
  const double passes = kind == CollectiveKind::all_reduce ? 2 : 1;
  nccl::Estimate e{.algorithm = kind == CollectiveKind::all_to_all ? Algorithm::direct : Algorithm::ring};
  const double net_steps = place.nodes > 1 ? place.nodes - 1 : 0;
  e.latency_us = passes * ((place.ranks - 1 - net_steps) * hop_us + net_steps * net_hop_us);
  double bus = machine.nvlink_gbps;
  if (shared_gbps > 0) bus = shared_gbps / place.ranks;
  if (place.nodes > 1) bus = std::min(bus, machine.nic_gbps * place.per_node);
  e.gbps = bus / wire_factor(kind, place.ranks);
  e.time_us = e.latency_us + bytes / (1000 * e.gbps);
  return e;
}

nccl::Estimate Prior::send(bool crosses_nodes, double bytes) const {
  if (nccl) return nccl::send(machine, crosses_nodes, bytes);
  nccl::Estimate e{.algorithm = Algorithm::direct};
  e.latency_us = crosses_nodes ? net_hop_us : hop_us;
  e.gbps = crosses_nodes ? machine.nic_gbps : shared_gbps > 0 ? shared_gbps : machine.nvlink_gbps;
  e.time_us = e.latency_us + bytes / (1000 * e.gbps);
  return e;
}

Prior prior_of(const cluster::Cluster& cluster, const std::vector<int>& kinds) {
  Prior prior;
  const std::vector<int> nodes = nodes_of(cluster, kinds);
  // Where all nodes are alike, the first speaks for them; with unequal ones the slowest of each number.
  cluster::NodeView view = cluster.node_view(nodes.front());
  int other_kind = -1;  // the first node of another kind than the first node's
  for (const int node : nodes) {
    if (other_kind < 0 &&
        cluster.kind_of(cluster.devices_of(node).front()) != cluster.kind_of(cluster.devices_of(nodes.front()).front()))
      other_kind = node;
    const cluster::NodeView other = cluster.node_view(node);
    if (other.port.per_s() > 0) view.port = view.port.per_s() > 0 ? std::min(view.port, other.port) : other.port;
    if (other.nic.per_s() > 0) view.nic = view.nic.per_s() > 0 ? std::min(view.nic, other.nic) : other.nic;
    view.hop = std::max(view.hop, other.hop);
    view.net_hop = std::max(view.net_hop, other.net_hop);
    if (view.inside == cluster::Inside::none) view.inside = other.inside;
  }
  prior.machine.nvswitch = view.inside == cluster::Inside::nvswitch;
  prior.machine.sharp = cluster.network_adds_up();
  prior.machine.nvls_tree_chunk = static_cast<double>(cluster.nvls_tree_chunk().count());
  if (view.port.per_s() > 0) {
    prior.hop_us = us(view.hop);
    prior.machine.nvlink_latency_us = beyond(prior.hop_us, nccl::kNvlinkHopUs);
    prior.machine.nvlink_gbps = gbps(view.port);
    if (view.inside == cluster::Inside::memory) prior.shared_gbps = prior.machine.nvlink_gbps;
  }
  if (nodes.size() > 1 && view.nic.per_s() > 0) {
    prior.net_hop_us = us(view.net_hop);
    prior.machine.net_latency_us = beyond(prior.net_hop_us, nccl::kNetHopUs);
    Bandwidth nic = through_pcie(cluster, nodes[0], nodes[1], view.nic);
    if (other_kind >= 0) nic = through_pcie(cluster, nodes[0], other_kind, nic);
    prior.machine.nic_gbps = gbps(nic);
    if (prior.machine.nvlink_gbps == 0) prior.machine.nvlink_gbps = prior.machine.nic_gbps;
  }
  return prior;
}

}  // namespace rehearse::collective
