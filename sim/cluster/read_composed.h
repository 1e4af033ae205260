// The parts of a topology file that are peculiar to kind: composed; docs/topologies.md has all keys.
#pragma once

#include <vector>

#include "sim/base/document.h"
#include "sim/cluster/fabric.h"
#include "sim/cluster/fabric_routes.h"
#include "sim/cluster/node_graph.h"

namespace rehearse::cluster {

struct NodeGroup {
  int count = 0;  // nodes; 0: as many as are wanted
  NodeGraph graph;
  int devices = 0, nics = 0;
};

struct ComposedFile {
  std::vector<NodeGroup> groups;  // in the order of nodes; the last group's kind repeats
  FabricNumbers fabric;
  Fabric written;  // fabric.kind: links
  struct Attached {
    int node, nic, leaf;
  };
  std::vector<Attached> attached;
  Routing routing = Routing::fixed;
  std::uint64_t seed = 1;
  HostMemory host = {};  // of each node
};

// Reports what is wrong to the document's diagnostics.
ComposedFile read_composed(const Node& root);
// Of the node blocks alone (read_node.cpp).
std::vector<NodeGroup> read_nodes(const Node& root);
// The fabric alone (read_fabric.cpp); a cable of a tree has the NIC's rate unless it says otherwise.
void read_fabric(const Node& root, ComposedFile& file);

}  // namespace rehearse::cluster
