// The parts of a topology file that are peculiar to kind: composed; docs/topologies.md has all keys.
#pragma once

#include <functional>
#include <optional>
#include <string>
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
  HostMemory host = {};  // of each node whose kind has none of its own
};

// The topology file that an entry of `nodes` names, `at` being where; problems go to the document's diagnostics, and
// nothing is returned then.
using OpenTopology = std::function<std::optional<Node>(const Node& at, const std::string& name)>;

// Reports what is wrong to the document's diagnostics. Also of a fat_tree whose `nodes` are of several kinds: its
// uplinks are then shared evenly, as fat_tree has them (routing: adaptive).
ComposedFile read_composed(const Node& root, const OpenTopology& open = {});
// Of the node blocks alone (read_node.cpp).
std::vector<NodeGroup> read_nodes(const Node& root, const OpenTopology& open = {});
// Whether a topology's `nodes` name other topologies: a mixed cluster, whose fabric is the file's own.
bool names_topologies(const Node& root);
// The fabric alone (read_fabric.cpp); a cable of a tree has the NIC's rate unless it says otherwise.
void read_fabric(const Node& root, ComposedFile& file);

}  // namespace rehearse::cluster
