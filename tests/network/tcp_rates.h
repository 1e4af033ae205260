// What TCP gets through a shaped network: bulk transfers between its hosts, by threads that enter the hosts'
// namespaces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rehearse::network {

// One connection: from a host to another's address, by the files of their namespaces ("/var/run/netns/NAME").
struct Flow {
  std::string from_namespace, to_namespace, to_address;
  std::int64_t bytes;
};

// Payload in bytes a second of each flow while all send at once. The first eighth of a flow is not timed: it passes
// with what the token buckets have saved and while windows open. Throws std::runtime_error with the system's reason;
// a flow that stalls for 20 s is such a one.
std::vector<double> tcp_rates(const std::vector<Flow>& flows);

}  // namespace rehearse::network
