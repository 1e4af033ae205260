// What the formats that describe machines say, in one form each for a node and for what joins nodes, and the topology
// file made of them. Rates are effective, of one direction, in GB/s (1e9), as NCCL counts them (src/graph/topo.h and
// topo.cc, v2.28.9-1).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/diagnostics.h"

namespace rehearse::formats {

struct DiscoveredLink {
  std::string a, b;  // gpu0, nvswitch, pcie3, host0, nic2
  std::string kind;  // nvlink, pcie, host
  double gbps = 0;
  std::string why;  // for a comment
  bool operator==(const DiscoveredLink&) const = default;
};

struct DiscoveredNic {
  std::string name;  // mlx5_0
  std::string guid;  // 0x..., lower case, without leading zeros; "" if not said
  double gbps = 0;
  double latency_us = 0;  // beyond NCCL's constant
  bool operator==(const DiscoveredNic&) const = default;
};

struct DiscoveredNode {
  std::string source;  // the file
  std::string device;  // a name of calibrate/devices
  int devices = 0;
  std::vector<std::string> nvswitches, pcie_switches, hosts;
  std::vector<DiscoveredNic> nics;
  std::vector<DiscoveredLink> links;
};

struct DiscoveredPort {
  std::string host, hca, guid;  // of a channel adapter
  int leaf = 0;
  double gbps = 0;
};
struct DiscoveredCable {
  int a = 0, b = 0, count = 0;
  double gbps = 0;
};
struct DiscoveredFabric {
  std::string source;
  std::vector<std::string> switches;
  std::vector<DiscoveredPort> ports;
  std::vector<DiscoveredCable> cables;
};

// What a reader took, passed over and took for granted; lines for people.
struct Report {
  std::vector<std::string> used, ignored, assumed;
  std::vector<std::string> unmodelled;  // of what was passed over, what changes a step's time or memory
};

// What the user says where a file does not.
struct DiscoverHints {
  std::string device;   // "": by what the file says
  double nic_gbps = 0;  // 0: the same
};

enum class NetworkFormat : unsigned char { nccl_xml, topo_matrix, ibnetdiscover, unknown };
NetworkFormat format_of(std::string_view text);

// Each throws InputError with the file's lines and columns.
DiscoveredNode read_nccl_xml(const std::string& file, const std::string& text, const DiscoverHints& hints,
                             Report& report);
DiscoveredNode read_topo_matrix(const std::string& file, const std::string& text, const DiscoverHints& hints,
                                Report& report);
DiscoveredFabric read_ibnetdiscover(const std::string& file, const std::string& text, Report& report);

// A topology file (kind: composed) of nodes, or a fabric, or both; at least one of them. Several nodes: unequal ones,
// in order, the last kind repeated. With both, a port belongs to the NIC of its name or GUID. Control characters of
// names are escaped.
std::string write_topology(const std::string& name, const std::vector<DiscoveredNode>& nodes,
                           const DiscoveredFabric* fabric, Report& report);

// GB/s of payload of one NVLink, one direction; 0: not known.
double nvlink_gbps(int sm);

}  // namespace rehearse::formats
