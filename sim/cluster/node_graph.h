// A node as a graph: devices, NVSwitches, PCIe switches, host bridges and NICs, joined by full-duplex links, and the
// ways through it. Built by one of the generators below or written out link by link in a topology file.
//
// A way is the cheapest one, where NVLink costs least, then PCIe, then a host bridge, then the link between sockets. A
// device passes on what came to it over NVLink, to another device or to a NIC next to it (NCCL's PXN), at a cost above
// a few NVLinks and below any way through a host bridge; NICs pass nothing on. Reference for the order: the path types
// of NCCL's src/graph/topo.h (NVL, NVB, PIX, PXB, PXN, PHB, SYS).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"

namespace rehearse::cluster {

enum class VertexKind : unsigned char { device, nvswitch, pcie_switch, host, nic };

struct NodeVertex {
  std::string name;  // "gpu3", "nic0", ...
  VertexKind kind = VertexKind::device;
  bool operator==(const NodeVertex&) const = default;
};

struct NodeLink {
  int a = 0, b = 0;
  ResourceKind kind = ResourceKind::nvlink;
  Bandwidth bandwidth;  // effective, one direction; 0: never a limit, no resource
  Time latency;
  bool missing = false;
  bool operator==(const NodeLink&) const = default;
};

struct NodeGraph {
  std::vector<NodeVertex> vertices;
  std::vector<NodeLink> links;
  Inside inside = Inside::none;
  Bandwidth nic;     // of each NIC to its switch of the fabric
  Time nic_latency;  // device to device through two NICs and one switch
  // Of a node of its own kind in a mixed cluster: its device file and its host's memory; else the topology file's.
  std::string device = {};
  std::optional<HostMemory> host = {};
  // Without direct transfers between devices and NICs (GPUDirect RDMA) what leaves the node or enters it lies in the
  // host's memory in between.
  bool through_host = false;
  int add(std::string name, VertexKind kind);
  void join(int a, int b, ResourceKind kind, Bandwidth bandwidth, Time latency);
  std::vector<int> of_kind(VertexKind kind) const;
  bool operator==(const NodeGraph&) const = default;
};

struct Lanes {
  Bandwidth bandwidth;  // 0: not given
  Time latency;
};

// What the generators of a node take.
struct NodeNumbers {
  Inside inside = Inside::none;
  int devices = 1;
  Lanes nvlink;                          // nvswitch: a device's port; nvlink_mesh: one link
  std::vector<std::array<int, 3>> mesh;  // device, device, links between them
  int pcie_switches = 0, sockets = 1;
  Lanes pcie;    // of a device, a NIC, and a switch to its host bridge
  Lanes socket;  // between sockets
  int nics = 0;
  Lanes nic;
};
// gpu0, gpu1, ...; nvswitch; pcie0, ...; host0, ...; nic0, ... Neighbouring devices share a PCIe switch, neighbouring
// switches a socket; NICs are spread over the switches in the same way. Without `pcie` a NIC is reached by the devices
// it belongs to at no cost.
NodeGraph make_node(const NodeNumbers& numbers);

// A way: directed links, 2 l from a to b and 2 l + 1 back. Latencies of PCIe links count only between devices: those on
// the way to a NIC are part of the NIC's.
struct NodeWay {
  bool exists = false;
  std::vector<int> links;
  Time latency;
  int cost = 0;
  bool staged = false;  // by way of the host's memory
};

// Where a node is `through_host`, a way between a device and a NIC is that from the device to the host bridge next to
// it and on from there, as NCCL diverts what GPUDirect cannot take (src/graph/paths.cc, ncclTopoComputePaths: "divert
// all traffic through the CPU local to the GPU"), with the latency of the first part besides.
class NodeWays {
 public:
  explicit NodeWays(const NodeGraph& graph);
  const NodeWay& between(int device, int other) const;  // by place among the devices
  const NodeWay& to_nic(int device, int nic) const;
  NodeWay from_nic(int nic, int device) const;  // the way there, backwards

 private:
  std::size_t devices_, nics_;
  std::vector<NodeWay> ways_;  // device by device: to each device, then to each NIC
};

// What PCIe leaves the slowest of the devices (places) on its way to the nearest host bridge if all of them copy at
// once, each link shared evenly by those whose way it is on; 0: some device has no such way.
Bandwidth rate_to_host(const NodeGraph& graph, const std::vector<int>& devices);

// For each device the NIC that is its own, -1 if there is none: the nearest of those allowed; of equally near ones that
// with fewest devices so far, then the first.
std::vector<int> own_nics(const NodeGraph& graph, const NodeWays& ways, const std::vector<bool>& allowed);

// Rings over NVLinks of a mesh through the given devices (places), all of them once, each in both directions. A ring's
// share of what goes round is its parts of all rings' parts; a part is half the bandwidth of the narrowest pair joined.
// Empty: no such ring, or over nine devices. Found part by part: the cycle whose least used-up pair has most left, then
// the one with most left in sum, then the first in order.
struct MeshRing {
  std::vector<int> order;
  int parts = 0;
};
std::vector<MeshRing> mesh_rings(const NodeGraph& graph, const std::vector<int>& devices);

}  // namespace rehearse::cluster
