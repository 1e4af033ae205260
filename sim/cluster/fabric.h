// What joins the NICs of a cluster: switches and full-duplex links between them, and which switch each NIC hangs on.
// Made by one of the generators below or written out link by link in a topology file.
//
// tree      leaves and spines, or with three levels leaves, spines of a pod, and cores. With rails NIC k of each node
// of a
//           unit hangs on leaf k of that unit (NVIDIA DGX SuperPOD, RA-09950-001, RA-11333-001), without all NICs of a
//           unit on its one leaf. Uplinks are cables of their own, each with a NIC's rate, spread evenly over the
//           spines; with adaptive routing, which loads them alike, a switch's uplinks are one link of their sum to one
//           upper switch.
// rail_only one switch a rail, and no way between rails but NVLink (Wang et al. 2023, "Rail-only", arXiv 2307.12169).
// single    one switch that does not block.
// torus     a router a node, joined to its neighbours in two or three dimensions.
// dragonfly groups of routers joined each to each; every router has links to other groups, each pair of groups at least
// one
//           (Kim, Dally, Scott, Abts 2008, "Technology-driven, highly-scalable dragonfly topology").
#pragma once

#include <string>
#include <vector>

#include "sim/base/units.h"

namespace rehearse::cluster {

struct FabricLink {
  int a = 0, b = 0;
  Bandwidth bandwidth;  // effective, one direction
  Time latency;
  bool missing = false;
  int cable = 0;  // among those between the same two
};

struct Fabric {
  std::vector<std::string> switches;
  std::vector<FabricLink> links;
  std::vector<int> torus;  // its dimensions, if it is one and no link is missing
  bool wraps = true;
  int add(std::string name);
  void join(int a, int b, Bandwidth bandwidth, Time latency, int cable = 0);
  std::string link_name(int directed) const;  // "unit0/leaf3->spine1", of a further cable "unit0/leaf3->spine1#2"
};

enum class FabricKind : unsigned char { none, single, tree, rail_only, torus, dragonfly, links };

struct FabricNumbers {
  FabricKind kind = FabricKind::none;
  int nodes = 1;  // at most; tree, torus and dragonfly: follows from the numbers below
  bool rails = true;
  int levels = 2;
  int nodes_per_unit = 1, units = 1, units_per_pod = 1;
  int uplinks = 1;       // of a leaf
  int spines = 1;        // those above a leaf: of the fabric, or with three levels of a pod
  int core_uplinks = 1;  // of a spine; with three levels
  int cores = 1;         // those above a spine: of its plane (spine s of every pod)
  Bandwidth cable;       // of an uplink
  std::vector<int> dims;
  bool wraps = true;
  int groups = 1, routers = 1, nodes_per_router = 1, global_links = 1;  // global_links: of a router
  Bandwidth link, global;                                               // torus, dragonfly in a group; between groups
  Time hop;               // a link between switches and the switch behind it
  bool sharp = false;     // switches add up what crosses them
  Bytes nvls_tree_chunk;  // Cluster::nvls_tree_chunk
  int limit() const;      // nodes it can hold
};

struct NicPlace {
  int node = 0, nic = 0;  // nic: within the node
};

// The fabric over `nodes` nodes of up to `nics` NICs each, and the switch of each of `places`. `adaptive`: see tree.
struct MadeFabric {
  Fabric fabric;
  std::vector<int> leaf_of;
};
MadeFabric make_fabric(const FabricNumbers& numbers, int nodes, int nics, const std::vector<NicPlace>& places,
                       bool adaptive);

}  // namespace rehearse::cluster
