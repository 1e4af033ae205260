// Without direct transfers between GPUs and NICs (cluster.gpudirect: false): the rate between nodes is that of the
// narrowest PCIe link on the way through the host's memory, shared by all that are on it.
#include <gtest/gtest.h>

#include <fstream>

#include "sim/run/run.h"
#include "tests/support/simulated.h"

namespace rehearse {
namespace {

// Four devices and two NICs a node, two PCIe switches of 16 GB/s, NICs of 25 GB/s.
std::unique_ptr<cluster::Cluster> cluster_with(const std::string& more, const std::string& memory = "1TB/s") {
  const std::string path = test::temporary_path("pcie.yaml");
  std::ofstream(path) << "topology: 1\nkind: composed\nname: t\ndevice: h100-sxm\n"
                         "node: {devices: 4, inside: nvswitch}\nnvlink: {bandwidth: 100GB/s, latency: 600ns}\n"
                         "pcie: {switches: 2, bandwidth: 16GB/s, latency: 1us}\n"
                         "host: {sockets: 2, bandwidth: 10GB/s, latency: 1us}\n"
                         "nic: {count: 2, bandwidth: 25GB/s, latency: 3us}\n"
                         "host_memory: {size: 1TiB, bandwidth: "
                      << memory << "}\nfabric: {kind: switch, nodes: 4}\n"
                      << more;
  return cluster::build_cluster(path, 8, {}, 0, REHEARSE_SOURCE_DIR);
}

constexpr double kGathered = 1e9;

// Both ways at once between the members, on the plain ring model.
double gather_seconds(const cluster::Cluster& cluster, const std::vector<int>& members) {
  return collective::make_plain_model(cluster, Time())
      ->collective(program::CollectiveKind::all_gather, members, Bytes(static_cast<std::int64_t>(kGathered)))
      .alone()
      .seconds();
}

TEST(GpuDirect, TheRateIsThatOfTheNarrowestPcieLinkOnTheWay) {
  const auto direct = cluster_with(""), staged = cluster_with("gpudirect: false\n");
  // A pair over the nodes: half of the bytes from each, over the device's own 16 GB/s. Staged, what leaves and what
  // comes are both on the link between switch and host, in each direction, and so halve it.
  EXPECT_NEAR(gather_seconds(*direct, {0, 4}), kGathered / 2 / 16e9, 1e-6);
  EXPECT_NEAR(gather_seconds(*staged, {0, 4}), kGathered / 2 / 8e9, 1e-6);
  const auto one_way = [](const cluster::Cluster& c) {
    return collective::make_plain_model(c, Time())
        ->send(0, 4, Bytes(static_cast<std::int64_t>(kGathered)))
        .alone()
        .seconds();
  };
  EXPECT_NEAR(one_way(*direct), kGathered / 16e9, 1e-6);
  EXPECT_NEAR(one_way(*staged), kGathered / 16e9, 1e-6) << "up and down are two directions of a link";
}

TEST(GpuDirect, TheHostsMemoryIsWrittenAndRead) {
  const auto staged = cluster_with("gpudirect: false\n", "20GB/s");
  EXPECT_NEAR(gather_seconds(*staged, {0, 4}), kGathered / 10e9, 1e-6) << "what leaves and what comes, each twice";
}

TEST(GpuDirect, AResultSaysHowBytesWent) {
  const std::string text =
      "rehearse: 1\nmodel: {family: gpt, layers: 2, hidden: 256, heads: 4, vocab: 512, max_seq_len: 128}\n"
      "cluster: {topology: ethernet-a100, gpus: 16}\n";
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  const auto step = [&](const char* direct) {
    const plan::Scenario s = scenario_from(text, {std::string("cluster.gpudirect=") + direct});
    return run::simulate_scenario(s, options);
  };
  const result::Result on = step("true"), off = step("false");
  ASSERT_FALSE(on.collectives.empty());
  EXPECT_EQ(on.collectives.front().path, "gpudirect");
  EXPECT_EQ(off.collectives.front().path, "host_memory");
  EXPECT_GE(off.step_time_ps, on.step_time_ps);
}

}  // namespace
}  // namespace rehearse
