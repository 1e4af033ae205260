// See workloads.h.
#include "workloads.h"

#include <ctime>
#include <numeric>

#include "sim/cluster/machines.h"
#include "sim/cluster/topology.h"
#include "sim/collective/steps.h"
#include "sim/cost/cost.h"
#include "sim/engine/network.h"
#include "tests/unit/engine/machine.h"

namespace rehearse::bench {
namespace {

std::vector<int> all_of(int devices) {
  std::vector<int> members(static_cast<std::size_t>(devices));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

cluster::FatTree fat_tree(int devices, int per_node) {
  cluster::FatTreeNumbers n;
  n.name = "bench";
  n.devices_per_node = n.nics_per_node = per_node;
  n.nvlink = Bandwidth(450'000'000'000), n.nic = Bandwidth(50'000'000'000);
  n.nodes_per_unit = 16, n.units = 4096;
  return {n, devices};
}

// 16 leaves of 16 hosts, each joined to 16 spines by a link of its own; a flow goes up to the spine of its destination.
class DestinationRouted final : public engine::testing::TestCluster {
 public:
  DestinationRouted() : TestCluster(256, std::vector<std::int64_t>(1024, 50'000'000'000)) { per_node = 1; }
  cluster::Route route(int from, int to) const override {
    const int up = from / 16 * 16 + to % 16, down = to / 16 * 16 + to % 16;
    if (from / 16 == to / 16) return {{from, 256 + to}, {}, true, {}};
    return {{from, 512 + up, 768 + down, 256 + to}, {}, true, {}};
  }
};

// When a transfer ends that has the network to itself.
Time end_alone(const cluster::Cluster& cluster, const collective::TransferPlan& plan) {
  engine::EventQueue queue;
  engine::Network network(cluster, queue, 0);
  std::vector<engine::Event> events;
  for (const collective::Activity& activity : plan.activities) network.start(network.define(activity), 0, plan.startup);
  network.settle(plan.startup);
  Time end;
  while (!queue.empty()) {
    end = queue.next_time();
    queue.take(events);
    for (const engine::Event& event : events)
      if (network.current(event.target, event.version)) network.finish(event.target);
    network.settle(end);
  }
  return end;
}

}  // namespace

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

engine::StepsAlone ring_of_messages(int ranks) {
  const cluster::FatTree cluster = fat_tree(ranks, 1);
  collective::Steps steps =
      collective::steps_of(cluster, collective::group_of(cluster, all_of(ranks)), program::CollectiveKind::all_reduce,
                           collective::Algorithm::ring, 1 << 30);
  collective::set_times(steps, cluster, 1, false, Time::from_us(1));
  return engine::run_steps(cluster, std::move(steps));
}

Time ring_of_flows(int ranks) {
  const cluster::FatTree cluster = fat_tree(ranks, 8);
  const auto model = collective::make_plain_model(cluster, Time::from_us(1));
  return end_alone(cluster, model->collective(program::CollectiveKind::all_reduce, all_of(ranks), Bytes(1 << 30)));
}

engine::StepsAlone all_to_all_of_messages(int ranks, bool mixed) {
  const DestinationRouted cluster;
  collective::Steps steps =
      collective::steps_of(cluster, collective::group_of(cluster, all_of(ranks)), program::CollectiveKind::all_to_all,
                           collective::Algorithm::direct, std::int64_t{ranks} << 22);
  if (mixed) {
    for (std::size_t e = 0; e < steps.edges.size(); ++e)
      steps.edges[e].bytes *= 1 + static_cast<std::int64_t>((e * 2654435761u >> 7) % 4);
    collective::set_times(steps, cluster, 1, false, Time());
  }
  return engine::run_steps(cluster, std::move(steps));
}

Time all_to_all_of_senders(int ranks, const std::string& data_root) {
  const auto cluster = cluster::build_cluster("dgx-a100", ranks, {}, 0, data_root);
  const auto model = collective::make_model(*cluster, cost::find_device_file(cluster->device_name(), data_root));
  std::vector<Bytes> parts;
  for (std::uint64_t to = 0; to < static_cast<std::uint64_t>(ranks); ++to)
    parts.emplace_back((std::int64_t{1} << 22) + static_cast<std::int64_t>((to * 2654435761u >> 7) % (1 << 21)));
  return end_alone(*cluster, model->exchange(all_of(ranks), {std::move(parts), false, {}}));
}

}  // namespace rehearse::bench
