// What tests of composed clusters share: building from text, and names along a route.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "sim/cluster/topology.h"
#include "tests/support/temporary.h"

namespace rehearse::cluster {

inline std::string write_file(const std::string& name, const std::string& text) {
  const std::string path = test::temporary_path(name);
  std::ofstream(path) << text;
  return path;
}

inline std::unique_ptr<Cluster> cluster_of(const std::string& topology, int devices, const Overrides& overrides = {}) {
  return build_cluster(topology, devices, overrides, 0, REHEARSE_SOURCE_DIR);
}

inline std::unique_ptr<Cluster> from_text(const std::string& text, int devices, const Overrides& overrides = {}) {
  return cluster_of(write_file("composed.yaml", "topology: 1\nkind: composed\nname: t\ndevice: h100-sxm\n" + text),
                    devices, overrides);
}

// All diagnostics that building it raises; "" if it builds.
inline std::string problems_of(const std::string& text, int devices, const Overrides& overrides = {}) {
  try {
    from_text(text, devices, overrides);
  } catch (const InputError& error) {
    std::string found;
    for (const Diagnostic& d : error.diagnostics())
      found += std::to_string(d.line) + ":" + std::to_string(d.column) + " " + d.path + ": " + d.message + "\n";
    return found;
  }
  return "";
}

inline const Resource& resource(const Cluster& cluster, ResourceId id) {
  return cluster.resources().at(static_cast<std::size_t>(id));
}

inline std::vector<std::string> names_of(const Cluster& cluster, const Route& route) {
  std::vector<std::string> names;
  for (const ResourceId id : route.resources) names.push_back(resource(cluster, id).name);
  return names;
}

using Names = std::vector<std::string>;

// Eight devices behind a switch, a NIC each of 10 GB/s.
inline const std::string kNode =
    "node: {devices: 8, inside: nvswitch}\nnvlink: {bandwidth: 100GB/s, latency: 600ns}\n"
    "nic: {count: 8, bandwidth: 10GB/s, latency: 3us}\n";
// One device and one NIC of 10 GB/s.
inline const std::string kSingle =
    "node: {devices: 1, inside: none}\nnic: {count: 1, bandwidth: 10GB/s, latency: 3us}\n";

}  // namespace rehearse::cluster
