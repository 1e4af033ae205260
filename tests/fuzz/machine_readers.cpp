// Topology files and what a scenario's cluster section adds to them: placements, faults, other jobs' flows.
#include <algorithm>

#include "sim/cluster/topology.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/small_plans.h"

namespace rehearse::fuzz {
namespace {

void walk(const cluster::Cluster& cluster) {
  const int some = std::min(cluster.devices(), 16);
  std::vector<int> members;
  for (int a = 0; a < some; ++a) {
    members.push_back(a);
    const int node = cluster.node_of(a);
    if (node < 0 || node >= cluster.nodes()) fail("a device on a node that is none");
    (void)cluster.node_view(node);
    (void)cluster.rings(members);
    for (int b = 0; b < some; ++b) {
      if (a == b) continue;
      for (const cluster::ResourceId r : cluster.route(a, b).resources)
        if (r < 0 || static_cast<std::size_t>(r) >= cluster.resources().size())
          fail("a route over a link that is none");
    }
  }
  for (const cluster::Resource& resource : cluster.resources())
    if (resource.capacity.per_s() <= 0) fail("a link without capacity: " + resource.name);
}

void read_topology(const std::string& bytes) {
  const std::string path = put_file("input.yaml", bytes);
  for (const int devices : {1, 8, 64}) walk(*cluster::build_cluster(path, devices, {}, 0, REHEARSE_SOURCE_DIR, 2));
  print_all(simulate_text(small_scenario(path, 4)));
}

// A file that `cluster.placement` names.
void read_placement(const std::string& bytes) {
  const std::string path = put_file("input.txt", bytes);
  const std::string text = small_scenario("ethernet-a100", 4, "placement: '" + path + "'");
  print_all(simulate_text(text));
}

// Lines of YAML for the section cluster: placement, faults, background, overrides, jobs.
void read_conditions(const std::string& bytes) {
  std::string text = small_scenario("ethernet-a100", 4);
  const std::string section = "cluster: {topology: 'ethernet-a100', gpus: 4}\n";
  std::string lines = "cluster:\n  topology: ethernet-a100\n  gpus: 4\n";
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    lines += "  " + bytes.substr(at, end - at) + "\n";
    at = end + 1;
  }
  text.replace(text.find(section), section.size(), lines);
  const std::string path = put_file("scenario.yaml", text);
  simulate_if_small(plan::read_scenario(path, {}, REHEARSE_SOURCE_DIR));
}

}  // namespace

void add_machine_readers(std::vector<Reader>& list) {
  list.push_back({.name = "topology", .read = read_topology, .seeds = {"topologies/*.yaml"}, .runs = 600});
  list.push_back({.name = "placement", .read = read_placement});
  list.push_back({.name = "conditions", .read = read_conditions, .scenario_keys = true, .runs = 500});
}

}  // namespace rehearse::fuzz
