// A network written out link by link: hosts of one device each, switches, and full-duplex links, each direction a
// resource of its own. What network namespaces joined by shaped links are, or any small network that is no fat tree.
//
// Routes are static: fewest links, among those the one whose links come first in the file, from the receiver's end
// backwards. Hosts send and receive but forward nothing. The number of hops decides, not their speed.
#pragma once

#include <string>
#include <vector>

#include "sim/cluster/cluster.h"

namespace rehearse::cluster {

struct LinkNumbers {
  int a = 0, b = 0;     // nodes
  Bandwidth bandwidth;  // effective, one direction
  Time latency;
};

// Nodes are numbered: hosts first, then switches.
struct LinksNumbers {
  std::string name, device;
  std::vector<std::string> hosts, switches;
  std::vector<LinkNumbers> links;
  int cores = 0;  // of each host, or of all together
  int threads_per_rank = 1;
  bool shared_host = false;  // the hosts are namespaces of one machine
};

// For each node the link over which it is reached from `host`, -1 if it is not (and for the host itself).
std::vector<int> reached_over(const LinksNumbers& numbers, int host);

class Links final : public Cluster {
 public:
  // Every pair of hosts must be connected.
  Links(LinksNumbers numbers, int devices);
  const std::string& name() const override { return numbers_.name; }
  const std::string& device_name() const override { return numbers_.device; }
  int devices() const override { return devices_; }
  int devices_per_node() const override { return numbers_.shared_host ? devices_ : 1; }
  const std::vector<Resource>& resources() const override { return resources_; }
  using Cluster::route;
  Route route(int from, int to) const override;
  HostSharing host_sharing() const override { return {numbers_.cores, numbers_.threads_per_rank}; }
  bool explicit_links() const override { return true; }

 private:
  LinksNumbers numbers_;
  int devices_;
  std::vector<Resource> resources_;     // of link l: 2 l from a to b, 2 l + 1 from b to a
  std::vector<std::vector<int>> over_;  // reached_over of each host
};

}  // namespace rehearse::cluster
