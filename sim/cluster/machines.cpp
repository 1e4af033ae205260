// Resources and routes of the clusters declared in machines.h. A route is a handful of additions: nothing is stored for
// a pair of devices, and four resources for a device.
#include "sim/cluster/machines.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/check.h"

namespace rehearse::cluster {
namespace {

void check_route(int from, int to, int devices) {
  REHEARSE_CHECK(from != to && from >= 0 && to >= 0 && from < devices && to < devices, "route from {} to {} of {}",
                 from, to, devices);
}

}  // namespace

FatTree::FatTree(FatTreeNumbers numbers, int devices) : numbers_(std::move(numbers)), devices_(devices) {
  const FatTreeNumbers& n = numbers_;
  nodes_ = (devices + n.devices_per_node - 1) / n.devices_per_node;
  const int units = (nodes_ + n.nodes_per_unit - 1) / n.nodes_per_unit;
  const auto uplink =
      Bandwidth(std::llround(static_cast<double>(n.nic.per_s()) * n.nodes_per_unit / n.oversubscription));
  resources_.reserve(static_cast<std::size_t>(nodes_ * 2 * (n.devices_per_node + n.nics_per_node)) +
                     static_cast<std::size_t>(units * 2 * n.nics_per_node));
  for (int node = 0; node < nodes_; ++node) {
    for (int d = 0; d < n.devices_per_node; ++d) {
      resources_.push_back({fmt::format("node{}/gpu{}/nvlink-out", node, d), ResourceKind::nvlink, n.nvlink});
      resources_.push_back({fmt::format("node{}/gpu{}/nvlink-in", node, d), ResourceKind::nvlink, n.nvlink});
    }
    for (int k = 0; k < n.nics_per_node; ++k) {
      resources_.push_back({fmt::format("node{}/nic{}-out", node, k), ResourceKind::nic, n.nic});
      resources_.push_back({fmt::format("node{}/nic{}-in", node, k), ResourceKind::nic, n.nic});
    }
  }
  for (int unit = 0; unit < units; ++unit)
    for (int k = 0; k < n.nics_per_node; ++k) {
      resources_.push_back({fmt::format("unit{}/leaf{}-up", unit, k), ResourceKind::link, uplink});
      resources_.push_back({fmt::format("unit{}/leaf{}-down", unit, k), ResourceKind::link, uplink});
    }
}

ResourceId FatTree::nvlink(int device) const {
  const int node = node_of(device);
  return 2 * (device + node * numbers_.nics_per_node);
}

ResourceId FatTree::nic(int node, int rail) const {
  return 2 * (node * (numbers_.devices_per_node + numbers_.nics_per_node) + numbers_.devices_per_node + rail);
}

ResourceId FatTree::leaf(int node, int rail) const {
  const int below = nodes_ * (numbers_.devices_per_node + numbers_.nics_per_node);
  return 2 * (below + node / numbers_.nodes_per_unit * numbers_.nics_per_node + rail);
}

int FatTree::rail_of(int device) const {
  return device % numbers_.devices_per_node * numbers_.nics_per_node / numbers_.devices_per_node;
}

NodeView FatTree::node_view(int node) const {
  const FatTreeNumbers& n = numbers_;
  const int devices = std::min(n.devices_per_node, devices_ - node * n.devices_per_node);
  return {Inside::nvswitch, devices, n.nics_per_node, n.nvlink, n.nvlink_latency, n.nic, n.nic_latency, n.host, {}};
}

bool FatTree::on_one_leaf(int from, int to) const {
  return rail_of(from) == rail_of(to) &&
         node_of(from) / numbers_.nodes_per_unit == node_of(to) / numbers_.nodes_per_unit;
}

Time FatTree::latency(int from, int to) const {
  if (node_of(from) == node_of(to)) return numbers_.nvlink_latency;
  return on_one_leaf(from, to) ? numbers_.nic_latency : numbers_.nic_latency + numbers_.hop_latency * 2;
}

Route FatTree::route(int from, int to) const {
  Route found;
  find_route(from, to, found);
  return found;
}

void FatTree::find_route(int from, int to, Route& found) const {
  check_route(from, to, devices_);
  const int a = node_of(from);
  const int b = node_of(to);
  found.latency = latency(from, to);
  found.crosses_nodes = a != b;
  found.shares.clear();
  if (a == b) {
    found.resources = {nvlink(from), nvlink(to) + 1};
    return;
  }
  const int rail_a = rail_of(from);
  const int rail_b = rail_of(to);
  if (on_one_leaf(from, to))
    found.resources = {nic(a, rail_a), nic(b, rail_b) + 1};
  else
    found.resources = {nic(a, rail_a), leaf(a, rail_a), leaf(b, rail_b) + 1, nic(b, rail_b) + 1};
}

LocalHost::LocalHost(LocalHostNumbers numbers, int devices) : numbers_(std::move(numbers)), devices_(devices) {
  resources_.push_back({"loopback", ResourceKind::loopback, numbers_.loopback});
}

Route LocalHost::route(int from, int to) const {
  check_route(from, to, devices_);
  return {{0}, numbers_.loopback_latency, false, {}};
}

}  // namespace rehearse::cluster
