// The machine as a graph of shared resources, and routes over it. Devices are numbered node by node; rank r runs on
// device r. Built from a topology file (topologies/NAME.yaml), each of whose numbers carries its source in a comment.
//
// A resource is one direction of a port or link with a capacity in bytes a second: NVLink ports in and out of each
// device, NICs in and out, leaf-to-spine links, host loopback. A route lists the resources a byte crosses and the
// latency.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/diagnostics.h"
#include "sim/base/units.h"

namespace rehearse::cluster {

using ResourceId = std::int32_t;

// host: host bridges, the link between sockets.
enum class ResourceKind : unsigned char { nvlink, pcie, nic, link, loopback, host };
struct Resource {
  std::string name;  // "node3/gpu5/nvlink-out"
  ResourceKind kind = ResourceKind::nvlink;
  Bandwidth capacity;
  Bandwidth nominal = {};  // what it would be if nothing were wrong with it; 0: as capacity
};

struct Route {
  std::vector<ResourceId> resources;
  Time latency;
  bool crosses_nodes = false;
  // What part of the bytes crosses each resource, of kWhole; empty: all bytes cross all of them. Adaptive routing
  // spreads a flow over several ways.
  static constexpr std::int64_t kWhole = 1 << 20;
  std::vector<std::int32_t> shares = {};
  // Of `bytes` those that cross resources[i], rounded up.
  std::int64_t carried(std::size_t i, std::int64_t bytes) const {
    if (shares.empty()) return bytes;
    const std::int64_t whole = bytes / kWhole, rest = bytes % kWhole;
    return whole * shares[i] + (rest * shares[i] + kWhole - 1) / kWhole;
  }
};

// What joins the devices of a node.
enum class Inside : unsigned char { none, nvswitch, nvlink_mesh, pcie, memory };
// The memory of a node's host, which its ranks share. Where a topology does not say: two sockets of eight channels of
// DDR4-3200, 25.6 GB/s each, and 1 TiB, a judgement of what servers of eight GPUs have at least.
struct HostMemory {
  Bytes size{0};        // 0: not known, as of this very machine
  Bandwidth bandwidth;  // nominal, reads and writes together
  bool operator==(const HostMemory&) const = default;
};
inline constexpr std::int64_t kHostBytes = std::int64_t{1} << 40, kHostBytesPerSecond = 409'600'000'000;

// A node as a collective library sees it. Rates are effective, of one direction.
struct NodeView {
  Inside inside = Inside::none;
  int devices = 0, nics = 0;
  Bandwidth port;  // all NVLinks of one device together; pcie: its lanes; of the slowest device
  Time hop;        // device to device over them
  Bandwidth nic;   // the slowest NIC
  Time net_hop;    // device to device through two NICs and one switch
  HostMemory host = {};
  // What the PCIe links of the topology leave the slowest device to its host while all in use copy; 0: it has
  // none.
  Bandwidth to_host = {};
};

// A ring through devices of one node over links of its own, used in both directions; its share of what goes round is
// its parts of all rings' parts.
struct NodeRing {
  std::vector<int> order;
  int parts = 1;
};

// A host whose ranks share cores (CPU execution). cores == 0: devices are accelerators and compute is private.
struct HostSharing {
  int cores = 0;
  int threads_per_rank = 0;
};

class Cluster {
 public:
  virtual ~Cluster() = default;
  virtual const std::string& name() const = 0;
  virtual const std::string& device_name() const = 0;  // a device file of calibrate/devices, or "local"; of rank 0
  // The kinds of devices that ranks run on, device files in the order of their first ranks, and which of them a device
  // is of. Several only where nodes of several kinds are in use (docs/topologies.md, mixed clusters); a node has one.
  virtual std::vector<std::string> device_names() const { return {device_name()}; }
  virtual int kind_of(int /*device*/) const { return 0; }
  virtual int devices() const = 0;
  virtual int devices_per_node() const = 0;  // of the largest node, where they differ
  virtual int nodes() const { return (devices() + devices_per_node() - 1) / devices_per_node(); }
  virtual int node_of(int device) const { return device / devices_per_node(); }
  // In use order. With a placement they need not be neighbours in number; device numbers are ranks.
  virtual std::vector<int> devices_of(int node) const {
    std::vector<int> found;
    for (int d = node * devices_per_node(); d < devices() && d < (node + 1) * devices_per_node(); ++d)
      found.push_back(d);
    return found;
  }
  virtual NodeView node_view(int /*node*/) const { return {}; }
  // The place of the device in its node, and which of the node's NICs (0, 1, ...) is its own; -1: none.
  virtual int local_index(int device) const { return device % devices_per_node(); }
  virtual int rail_of(int /*device*/) const { return -1; }
  // The rings to send round among members of one node, where the links between devices differ (an NVLink mesh); empty:
  // one order is as good as another, or there is no such ring.
  virtual std::vector<NodeRing> rings(const std::vector<int>& /*members*/) const { return {}; }
  virtual const std::vector<Resource>& resources() const = 0;
  // from != to; deterministic. A ring that crosses nodes enters and leaves device d's node through d's own NIC.
  virtual Route route(int from, int to) const = 0;
  // Of one channel of several between the two: where ways are chosen by a hash of the flow, channels take different
  // ones.
  virtual Route route(int from, int to, int /*channel*/) const { return route(from, to); }
  // route(), into one whose memory is used again; and of it the latency alone.
  virtual void find_route(int from, int to, Route& found) const { found = route(from, to); }
  virtual Time latency(int from, int to) const { return route(from, to).latency; }
  virtual HostSharing host_sharing() const = 0;
  // Whether the network's switches add up what crosses them (InfiniBand SHARP).
  virtual bool network_adds_up() const { return false; }
  // The largest chunk that the network's plugin lets NCCL's NVLSTree hand on; 0 bytes: NCCL's own.
  virtual Bytes nvls_tree_chunk() const { return {}; }
  // Whether bytes go between devices and NICs without a stop in the host's memory (GPUDirect RDMA).
  virtual bool gpudirect() const { return true; }
  // Of an intact torus that wraps: its sizes, empty elsewhere; and the number of a node's router in it, the lowest
  // dimension fastest.
  virtual std::vector<int> torus() const { return {}; }
  virtual int torus_router(int /*node*/) const { return -1; }
  // Whether devices are joined by links written out one by one, with nothing a collective could use but routes.
  virtual bool explicit_links() const { return false; }
};

}  // namespace rehearse::cluster
