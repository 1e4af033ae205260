// A cluster put together from a node part (node_graph.h) and a fabric part (fabric.h): a graph of devices, NVLinks,
// switches, host bridges and NICs, every direction of every link a resource. Nodes may differ; ranks may be placed on
// any of their devices.
//
// A way between nodes leaves through the sender's own NIC and enters through the receiver's (NodeWays, own_nics). Where
// the fabric does not join the two, the sender's node passes the bytes on over NVLink to the nearest device whose NIC
// it does join (as on rail-only networks), or else the receiver's node takes them in through another NIC.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/cluster/fabric_routes.h"
#include "sim/cluster/node_graph.h"

namespace rehearse::cluster {

struct ComposedParts {
  std::string name, device;
  std::vector<NodeGraph> types;
  std::vector<int> type_of;  // of each node
  Fabric fabric;
  std::vector<int> leaf_of;     // switch of each NIC, node by node; -1: it hangs on none
  std::vector<Time> nic_delay;  // of each NIC, beyond its type's; empty: none
  bool sharp = false;
  Bytes nvls_tree_chunk;
  Routing routing = Routing::fixed;
  std::uint64_t seed = 1;
  std::vector<int> placement;  // device of each rank, in the order of nodes; each once
  HostMemory host = {};        // of each node whose type has none of its own
};

class Composed final : public Cluster {
 public:
  explicit Composed(ComposedParts parts);
  const std::string& name() const override { return parts_.name; }
  const std::string& device_name() const override { return kinds_.front(); }
  std::vector<std::string> device_names() const override { return kinds_; }
  int kind_of(int device) const override { return rank(device).kind; }
  int devices() const override { return static_cast<int>(ranks_.size()); }
  int devices_per_node() const override { return most_devices_; }
  int nodes() const override { return static_cast<int>(ranks_on_.size()); }
  int node_of(int device) const override { return rank(device).node; }
  std::vector<int> devices_of(int node) const override { return ranks_on_.at(static_cast<std::size_t>(node)).ranks; }
  NodeView node_view(int node) const override;
  int local_index(int device) const override { return rank(device).place; }
  int rail_of(int device) const override { return place_of(rank(device)).own_nic; }
  std::vector<NodeRing> rings(const std::vector<int>& members) const override;
  const std::vector<Resource>& resources() const override { return resources_; }
  Route route(int from, int to) const override { return route(from, to, 0); }
  Route route(int from, int to, int channel) const override;
  HostSharing host_sharing() const override { return {}; }
  bool network_adds_up() const override { return parts_.sharp; }
  Bytes nvls_tree_chunk() const override { return parts_.nvls_tree_chunk; }
  bool gpudirect() const override;
  std::vector<int> torus() const override {
    const Fabric& fabric = routes_.fabric();
    return fabric.wraps ? fabric.torus : std::vector<int>();
  }
  int torus_router(int node) const override { return ranks_on_.at(static_cast<std::size_t>(node)).node; }

  // Not of the contract: for faults, whose names speak of resources, and for tests.
  std::vector<Resource>& resources() { return resources_; }
  const FabricRoutes& fabric_routes() const { return routes_; }
  // A pair of nodes between which no way leads, by their names; both empty: none. Looks at switches, not at all pairs.
  std::pair<std::string, std::string> unreachable() const;

 private:
  struct NodeOfCluster {
    int type = 0, first_nic = 0;
    ResourceId first_resource = 0, host_memory = -1;  // -1: no limit, or nothing goes through it
    std::vector<int> own_nic;                         // of each device, -1: none
  };
  struct UsedNode {
    int node = 0;
    std::vector<int> ranks;
  };
  struct Rank {
    int node = 0;  // among the used ones
    int place = 0, physical = 0;
    int kind = 0;  // of kinds_
  };
  struct Place {
    int node, own_nic;
  };
  struct Ends {
    int node_a, nic_a, node_b, nic_b;
  };
  const Rank& rank(int device) const { return ranks_.at(static_cast<std::size_t>(device)); }
  Place place_of(const Rank& r) const;
  void make_resources();
  int kind_at(int node);
  void place_ranks();
  int leaf(int node, int nic) const;
  Ends ends_of(const Rank& a, const Rank& b) const;
  Bandwidth staged_rate(const UsedNode& used, const NodeGraph& type) const;
  void append(const NodeWay& way, int node, Route& route) const;
  void append_fabric(const Ends& ends, const Flow& flow, Route& route) const;

  ComposedParts parts_;
  FabricRoutes routes_;
  std::vector<NodeWays> ways_;                    // of each type
  std::vector<std::vector<ResourceId>> of_link_;  // of each type: the first of a link's two resources, -1: none
  std::vector<NodeOfCluster> nodes_;
  std::vector<UsedNode> ranks_on_;
  std::vector<Rank> ranks_;
  std::vector<int> terminal_;       // of each NIC: its number, switch by switch
  std::vector<std::string> kinds_;  // device files of ranks, in the order of their first ranks
  int most_devices_ = 1;
  ResourceId first_nic_ = 0, first_link_ = 0;
  std::vector<Resource> resources_;
  mutable std::mutex mutex_;
  mutable std::map<std::vector<int>, std::vector<MeshRing>> rings_;  // by type and places
};

}  // namespace rehearse::cluster
