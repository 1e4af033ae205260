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

enum class ResourceKind : unsigned char { nvlink, pcie, nic, link, loopback };
struct Resource {
  std::string name;  // "node3/gpu5/nvlink-out"
  ResourceKind kind = ResourceKind::nvlink;
  Bandwidth capacity;
};

struct Route {
  std::vector<ResourceId> resources;
  Time latency;
  bool crosses_nodes = false;
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
  virtual const std::string& device_name() const = 0;  // a device file of calibrate/devices, or "local"
  virtual int devices() const = 0;
  virtual int devices_per_node() const = 0;
  int node_of(int device) const { return device / devices_per_node(); }
  virtual const std::vector<Resource>& resources() const = 0;
  virtual Route route(int from, int to) const = 0;  // from != to; deterministic (static routing)
  // The NICs of a node in use order: a ring that crosses nodes enters and leaves device d's node through d's own NIC.
  virtual HostSharing host_sharing() const = 0;
  // Whether devices are joined by links written out one by one, with nothing a collective could use but routes.
  virtual bool explicit_links() const { return false; }
};

}  // namespace rehearse::cluster
