// The two kinds of cluster a topology file can describe, and the numbers each is built from.
//
// FatTree: nodes of accelerators joined by a switch inside (NVSwitch: one port in and one out a device, any pair at
// full port speed) and by a rail-optimised fat tree outside. NIC k of every node of a unit goes to leaf k of that unit;
// leaves meet at the spine. Traffic between NICs of one rail and unit stays in the leaf, which does not block: it is
// limited by the NICs alone. All other traffic goes up from the sender's leaf and down to the receiver's, over
// capacities that are the sum of a leaf's uplinks (static routing spreads flows evenly; hash collisions are left out).
// Reference: NVIDIA DGX SuperPOD reference architectures RA-09950-001 (A100) and RA-11333-001 (H100).
//
// LocalHost: the ranks of this host, which share its cores and one loopback path (memory copies between ranks).
#pragma once

#include <string>
#include <vector>

#include "sim/cluster/cluster.h"

namespace rehearse::cluster {

struct FatTreeNumbers {
  std::string name, device;
  int devices_per_node = 8;
  Bandwidth nvlink;  // effective, one direction of one device's port
  Time nvlink_latency;
  int nics_per_node = 8;  // devices_per_node / nics_per_node neighbours share one
  Bandwidth nic;          // effective, one direction
  Time nic_latency;       // device to device through both NICs and one leaf
  int nodes_per_unit = 1;
  int units = 1;
  double oversubscription = 1;  // NIC bandwidth below a leaf / uplink bandwidth
  Time hop_latency;             // each further switch
  bool sharp = false;           // switches add up
  HostMemory host = {};
};

class FatTree final : public Cluster {
 public:
  FatTree(FatTreeNumbers numbers, int devices);
  const std::string& name() const override { return numbers_.name; }
  const std::string& device_name() const override { return numbers_.device; }
  int devices() const override { return devices_; }
  int devices_per_node() const override { return numbers_.devices_per_node; }
  const std::vector<Resource>& resources() const override { return resources_; }
  using Cluster::route;
  Route route(int from, int to) const override;
  void find_route(int from, int to, Route& found) const override;
  Time latency(int from, int to) const override;
  HostSharing host_sharing() const override { return {}; }
  bool network_adds_up() const override { return numbers_.sharp; }
  NodeView node_view(int node) const override;
  int rail_of(int device) const override;

 private:
  // Resources lie node by node: out and in of each device's NVLink port, then out and in of each NIC; after the nodes,
  // up and down of each leaf, unit by unit.
  ResourceId nvlink(int device) const;
  ResourceId nic(int node, int rail) const;
  ResourceId leaf(int node, int rail) const;
  bool on_one_leaf(int from, int to) const;  // of devices of different nodes

  FatTreeNumbers numbers_;
  int devices_;
  int nodes_;
  std::vector<Resource> resources_;
};

struct LocalHostNumbers {
  std::string name, device;
  int cores = 1;
  int threads_per_rank = 1;
  Bandwidth loopback;  // shared by all ranks
  Time loopback_latency;
};

class LocalHost final : public Cluster {
 public:
  LocalHost(LocalHostNumbers numbers, int devices);
  const std::string& name() const override { return numbers_.name; }
  const std::string& device_name() const override { return numbers_.device; }
  int devices() const override { return devices_; }
  int devices_per_node() const override { return devices_; }
  const std::vector<Resource>& resources() const override { return resources_; }
  using Cluster::route;
  Route route(int from, int to) const override;
  HostSharing host_sharing() const override { return {numbers_.cores, numbers_.threads_per_rank}; }
  NodeView node_view(int /*node*/) const override {
    return {Inside::memory, devices_, 0, numbers_.loopback, numbers_.loopback_latency, {}, {}};
  }

 private:
  LocalHostNumbers numbers_;
  int devices_;
  std::vector<Resource> resources_;
};

}  // namespace rehearse::cluster
