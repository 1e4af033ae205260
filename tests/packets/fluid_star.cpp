#include "fluid_star.h"

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <stdexcept>

#include "sim/cluster/topology.h"
#include "sim/collective/links_model.h"
#include "sim/collective/steps.h"
#include "sim/engine/network.h"
#include "sim/engine/step_runs.h"

namespace rehearse::packets {
namespace {

using program::CollectiveKind;

std::unique_ptr<cluster::Cluster> cluster_of(const Star& star) {
  std::string hosts, links;
  for (int h = 0; h < star.hosts; ++h) {
    hosts += fmt::format("{}h{}", h == 0 ? "" : ", ", h);
    links += fmt::format("  - {{between: [h{}, switch], bandwidth: {:.0f}Gbps, latency: {:.0f}ns}}\n", h,
                         star.bytes_per_s * 8e-9, star.hop_s * 1e9);
  }
  std::string name = (std::filesystem::temp_directory_path() / "rehearse-packets-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  const std::filesystem::path folder = name;
  std::ofstream(folder / "star.yaml") << "topology: 1\nkind: links\nname: star\ndevice: local\nhosts: [" << hosts
                                      << "]\nswitches: [switch]\nlinks:\n"
                                      << links;
  auto cluster = cluster::build_cluster((folder / "star.yaml").string(), star.hosts, {}, 0, REHEARSE_SOURCE_DIR);
  std::filesystem::remove_all(folder);
  return cluster;
}

// When each of the plans has ended whose bytes begin to move together, each after its start-up.
std::vector<double> ends_of(const cluster::Cluster& cluster, const std::vector<collective::TransferPlan>& plans) {
  engine::EventQueue queue;
  engine::Network network(cluster, queue, 0);
  const Time begin = plans.front().startup;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    if (plans[p].startup != begin || plans[p].activities.size() != 1) throw std::logic_error("plans not alike");
    network.start(network.define(plans[p].activities.front()), static_cast<std::int32_t>(p), begin);
  }
  network.settle(begin);
  std::vector<double> ends(plans.size(), -1);
  std::vector<engine::Event> events;
  while (!queue.empty()) {
    const Time now = queue.next_time();
    while (queue.next_time() == now) {
      queue.take(events);
      for (const engine::Event& event : events)
        if (network.current(event.target, event.version))
          ends[static_cast<std::size_t>(network.finish(event.target))] = now.seconds();
    }
    network.settle(now);
  }
  return ends;
}

std::vector<int> all_of(const Star& star) {
  std::vector<int> members(static_cast<std::size_t>(star.hosts));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

}  // namespace

std::vector<double> fluid_incast(const Star& star, std::int64_t bytes) {
  const auto cluster = cluster_of(star);
  const auto model = collective::make_links_model(*cluster, {});
  std::vector<collective::TransferPlan> plans;
  for (int h = 1; h < star.hosts; ++h) plans.push_back(model->send(h, 0, Bytes(bytes)));
  return ends_of(*cluster, plans);
}

double fluid_ring(const Star& star, std::int64_t bytes) {
  const auto cluster = cluster_of(star);
  const auto model = collective::make_links_model(*cluster, {});
  return ends_of(*cluster, {model->collective(CollectiveKind::all_reduce, all_of(star), Bytes(bytes))}).front();
}

double stepped_ring(const Star& star, std::int64_t bytes) {
  const auto cluster = cluster_of(star);
  const auto model = collective::make_links_model(*cluster, {});
  const auto plan = collective::make_stepped_model(*model, *cluster)
                        ->collective(CollectiveKind::all_reduce, all_of(star), Bytes(bytes));
  return engine::run_steps(*cluster, *plan.steps).time.seconds();
}

}  // namespace rehearse::packets
