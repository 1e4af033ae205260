// rehearse discover and list topologies as a user runs them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/e2e/program.h"

namespace rehearse::e2e {
namespace {

const std::string kInputs = std::string(REHEARSE_SOURCE_DIR) + "/tests/unit/formats/";

TEST(Discover, WritesATopologyThatSimulates) {
  const Folder folder;
  const std::string out = folder / "mine.yaml";
  const Outcome r = run({"discover", kInputs + "dgx1-v100.xml", kInputs + "three-levels.ibnet.txt", "-o", out});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out, "");
  EXPECT_TRUE(has(r.err, "8 GPUs, 4 NICs")) << r.err;
  EXPECT_TRUE(has(r.err, "10 switches, 8 adapter ports")) << r.err;
  EXPECT_TRUE(has(r.err, "assumed links between switches")) << r.err;
  const std::string scenario =
      folder.write("s.yaml", "rehearse: 1\nmodel: gpt-tiny\ncluster: {topology: " + out +
                                 ", gpus: 32}\nplan: {tensor: 2}\ntraining: {precision: fp16}\n");
  const Outcome simulated = run({"simulate", scenario, "--json"});
  ASSERT_EQ(simulated.status, 0) << simulated.err;
  EXPECT_GT(nlohmann::json::parse(simulated.out)["step_time_s"], 0);
}

TEST(Discover, WithoutAFileItPrintsAndSaysWhatItAssumes) {
  const Outcome r = run({"discover", kInputs + "dgx-h100.topo.txt", "--nic-rate", "200Gbps", "--device", "h200-sxm"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "kind: composed")) << r.out;
  EXPECT_TRUE(has(r.out, "device: h200-sxm")) << r.out;
  EXPECT_TRUE(has(r.out, "nic: {count: 10, bandwidth: 25GB/s")) << r.out;
  EXPECT_TRUE(has(r.err, "assumed NVSwitch")) << r.err;
}

TEST(Discover, WhatItCannotReadExits2WithThePlace) {
  const Folder folder;
  const std::string broken = folder.write("node.xml", "<system version=\"1\">\n  <cpu numaid=\"0\">\n  </system>\n");
  const Outcome r = run({"discover", broken});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, broken + ":3:")) << r.err;
  EXPECT_EQ(run({"discover", folder.write("a.txt", "hello\n")}).status, 2);
  EXPECT_EQ(run({"discover", folder / "none.xml"}).status, 2);
  EXPECT_EQ(run({"discover"}).status, 2);
  EXPECT_EQ(run({"discover", kInputs + "dgx-h100.xml", "--nic-rate", "fast"}).status, 2);
  const std::string twice = kInputs + "three-levels.ibnet.txt";
  EXPECT_TRUE(has(run({"discover", twice, twice}).err, "a second fabric"));
}

TEST(ListTopologies, HasEveryKindWithItsFacts) {
  const Outcome r = run({"list", "topologies", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  std::map<std::string, nlohmann::json> all;
  for (const auto& t : nlohmann::json::parse(r.out)) all[t["name"]] = t;
  for (const char* name : {"dgx-a100",         "dgx-a100-40g",      "dgx-h100",      "hgx-h200",       "hgx-b200",
                           "gb200-nvl72",      "pcie-a100",         "dgx1-v100",     "aws-p4d",        "aws-p5",
                           "azure-nd-a100-v4", "azure-nd-h100-v5",  "ethernet-a100", "rail-only-h100", "torus-2d",
                           "torus-3d",         "dragonfly-a100",    "dgx-a800",      "dgx-h800",       "pcie-h100",
                           "pcie-l40s",        "azure-nd-mi300x-v5"}) {
    ASSERT_TRUE(all.contains(name)) << name;
    EXPECT_GT(all[name].value("memory_bytes", std::int64_t{0}), 0) << name << ": its device has a file";
    EXPECT_GE(all[name].value("devices_at_most", 0), 256) << name;
  }
  EXPECT_EQ(all["torus-3d"]["devices_at_most"], 4096);
  EXPECT_EQ(all["gb200-nvl72"]["devices_per_node"], 72);
  EXPECT_EQ(all["dragonfly-a100"]["devices_at_most"], 24 * 32 * 2 * 4);
}

TEST(Placement, AScenarioSaysWhereItsRanksRun) {
  const Folder folder;
  const std::string s = folder.write(
      "s.yaml",
      "rehearse: 1\nmodel: gpt-tiny\ncluster:\n  topology: hgx-h200\n  gpus: 16\n  placement: [node2, node7/gpu9]\n");
  const Outcome r = run({"simulate", s});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, s + ":6:22: error: cluster.placement[1]: 'node7/gpu9': node7 has 8 devices, gpu0 to gpu7"))
      << r.err;
}

// Four nodes of eight GPUs and two storage servers, two nodes a leaf. What the servers send comes in through the NIC of
// node 0's first device, where a ring's channel comes in too.
TEST(Placement, StorageServersAreNodesOfTheFabricThatNoRankIsOn) {
  const Folder folder;
  const std::string topology = folder.write("storage.yaml", R"(topology: 1
kind: composed
name: four nodes and storage
device: a100-sxm-80g
nodes:
  - {count: 4, devices: 8, inside: nvswitch, nvlink: {bandwidth: 240GB/s, latency: 600ns}, nic: {count: 8, bandwidth: 23.5GB/s, latency: 2700ns}}
  - {count: 2, devices: 1, inside: none, nic: {count: 1, bandwidth: 47GB/s, latency: 2700ns}}
fabric: {kind: fat_tree, rails: false, levels: 2, nodes_per_unit: 2, units: 3, spines: 2, hop_latency: 330ns}
routing: {policy: adaptive}
)");
  const std::string scenario =
      folder.write("s.yaml", "rehearse: 1\nmodel: llama2-7b\ncluster: {topology: '" + topology +
                                 "', gpus: 32}\nplan: {zero: 3}\ntraining: {global_batch: 32}\n");
  const auto step = [&](const std::string& background) {
    const Outcome r = run({"simulate", scenario, "--json", "--set", "cluster.background=" + background});
    EXPECT_EQ(r.status, 0) << r.err;
    return nlohmann::json::parse(r.out).at("step_time_s").get<double>();
  };
  const double alone = step("[]");
  EXPECT_EQ(step("[{from: node4/gpu0, to: node5/gpu0, rate: 40GB/s}]"), alone) << "on leaves of their own";
  EXPECT_GT(
      step("[{from: node4/gpu0, to: node0/gpu0, rate: 10GB/s}, {from: node5/gpu0, to: node0/gpu0, rate: 10GB/s}]"),
      1.2 * alone);
}

}  // namespace
}  // namespace rehearse::e2e
