// What readers make of other programs' descriptions of machines, and that what is written reads as a cluster. The
// inputs beside this file are written by hand after the formats' descriptions: a DGX H100 and a DGX-1 as NCCL dumps
// them, the H100's matrix, and a fabric of three levels.
#include "formats/discovered.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "sim/base/document.h"
#include "sim/cluster/topology.h"
#include "tests/support/temporary.h"

namespace rehearse::formats {
namespace {

std::string fixture(const std::string& name) {
  return read_text_file(std::string(REHEARSE_SOURCE_DIR) + "/tests/unit/formats/" + name);
}

DiscoveredNode xml(const std::string& text, const DiscoverHints& hints = {}) {
  Report report;
  return read_nccl_xml("node.xml", text, hints, report);
}
DiscoveredNode matrix(const std::string& text, const DiscoverHints& hints = {}) {
  Report report;
  return read_topo_matrix("topo.txt", text, hints, report);
}
DiscoveredFabric fabric(const std::string& text) {
  Report report;
  return read_ibnetdiscover("fabric.txt", text, report);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

template <typename Read>
std::string problems(Read&& read) {
  try {
    read();
  } catch (const InputError& error) {
    std::string text;
    for (const Diagnostic& d : error.diagnostics())
      text += std::to_string(d.line) + ":" + std::to_string(d.column) + " " + d.message + "\n";
    return text;
  }
  return "";
}

// Rates of a node's links by their ends.
std::map<std::string, double> rates(const DiscoveredNode& node) {
  std::map<std::string, double> out;
  for (const DiscoveredLink& link : node.links) out[link.a + "-" + link.b] = link.gbps;
  return out;
}

std::unique_ptr<cluster::Cluster> cluster_of(const std::vector<DiscoveredNode>& nodes, const DiscoveredFabric* net,
                                             int devices) {
  Report report;
  const std::string path = test::temporary_path("written.yaml");
  std::ofstream(path) << write_topology("it's", nodes, net, report);
  return cluster::build_cluster(path, devices, {}, 0, REHEARSE_SOURCE_DIR);
}

std::vector<std::string> names(const cluster::Cluster& c, int from, int to) {
  std::vector<std::string> out;
  for (const cluster::ResourceId id : c.route(from, to).resources)
    out.push_back(c.resources()[static_cast<std::size_t>(id)].name);
  return out;
}
using Names = std::vector<std::string>;

TEST(NcclXml, LinksHaveTheRatesNcclCounts) {
  const auto h100 = rates(xml(fixture("dgx-h100.xml")));
  EXPECT_DOUBLE_EQ(h100.at("gpu0-nvswitch"), 370.8) << "4 + 4 + 5 + 5 links of 20.6";
  EXPECT_DOUBLE_EQ(h100.at("gpu5-pcie2"), 48) << "Gen5 x16";
  EXPECT_DOUBLE_EQ(h100.at("nic7-pcie3"), 48);
  EXPECT_DOUBLE_EQ(h100.at("host0-host1"), 22) << "Sapphire Rapids";
  const auto v100 = rates(xml(fixture("dgx1-v100.xml")));
  EXPECT_DOUBLE_EQ(v100.at("gpu0-gpu3"), 40) << "two links of 20";
  EXPECT_DOUBLE_EQ(v100.at("gpu0-gpu1"), 20);
  EXPECT_DOUBLE_EQ(v100.at("gpu0-pcie0"), 12) << "Gen3 x16";
  EXPECT_DOUBLE_EQ(v100.at("host0-host1"), 6) << "Broadwell";
  EXPECT_EQ(v100.count("gpu0-gpu5"), 0U);
}

TEST(NcclXml, EveryGenerationHasItsRate) {
  const std::pair<int, double> nvlinks[] = {{60, 18}, {70, 20}, {80, 20}, {86, 12}, {90, 20.6}, {100, 40.1}, {35, 0}};
  for (const auto& [sm, gbps] : nvlinks) EXPECT_DOUBLE_EQ(nvlink_gbps(sm), gbps) << sm;
  const std::pair<const char*, double> lanes[] = {{"2.5 GT/s PCIe", 3},
                                                  {"5.0 GT/s PCIe", 6},
                                                  {"8.0 GT/s PCIe", 12},
                                                  {"16.0 GT/s PCIe", 24},
                                                  {"32 GT/s", 48},
                                                  {"64.0 GT/s PCIe", 96},
                                                  {"", 12},
                                                  {"Unknown", 12}};
  for (const auto& [speed, gbps] : lanes) {
    const auto node = xml(replaced(fixture("dgx-h100.xml"), "32.0 GT/s PCIe", speed));
    EXPECT_DOUBLE_EQ(rates(node).at("pcie0-host0"), gbps) << speed;
  }
}

TEST(NcclXml, NicsHaveTheirSpeedGuidAndLatency) {
  const DiscoveredNode node = xml(
      replaced(replaced(fixture("dgx-h100.xml"), "latency=\"0\" speed=\"400000\"", "latency=\"1.5\" speed=\"200000\""),
               "speed=\"400000\"", "speed=\"-1\""));
  ASSERT_EQ(node.nics.size(), 8U);
  EXPECT_EQ(node.nics[0].name, "mlx5_0");
  EXPECT_EQ(node.nics[0].guid, "0xa088c20300b1f094");
  EXPECT_DOUBLE_EQ(node.nics[0].gbps, 25);
  EXPECT_DOUBLE_EQ(node.nics[0].latency_us, 1.5);
  EXPECT_DOUBLE_EQ(node.nics[1].gbps, 1.25) << "unknown is 10 Gb/s";
  EXPECT_DOUBLE_EQ(node.nics[2].gbps, 50);
}

TEST(NcclXml, TheDeviceIsThatOfItsPciNumberOrItsGeneration) {
  EXPECT_EQ(xml(fixture("dgx-h100.xml")).device, "h100-sxm");
  EXPECT_EQ(xml(fixture("dgx1-v100.xml")).device, "v100-sxm2-32g");
  EXPECT_EQ(xml(replaced(fixture("dgx-h100.xml"), "device=\"0x2330\"", "device=\"0x2335\"")).device, "h200-sxm");
  EXPECT_EQ(xml(replaced(fixture("dgx-h100.xml"), "device=\"0x2330\"", "device=\"0x9999\"")).device, "h100-sxm")
      << "sm 90";
  EXPECT_EQ(xml(fixture("dgx-h100.xml"), {"mine", 0}).device, "mine");
}

TEST(NcclXml, BrokenOnesAreRefusedWithTheirPlace) {
  const std::string good = fixture("dgx1-v100.xml");
  const auto refused = [](const std::string& text) { return problems([&] { xml(text); }); };
  EXPECT_EQ(refused(good), "");
  EXPECT_NE(refused(good.substr(0, good.size() / 2)).find("not XML: "), std::string::npos);
  EXPECT_EQ(refused("<graphs version=\"1\"/>"), "1:1 expected the element 'system' of an NCCL topology file\n");
  EXPECT_EQ(refused("<system version=\"2\"/>"), "1:2 version 2 is not known, expected 1\n1:2 no 'gpu' in it\n");
  // Line 5 is the first GPU; its first link leads to GPU 1, which then has one that does not come back.
  EXPECT_NE(refused(replaced(good, "<nvlink target=\"0000:07:00.0\" count=\"1\"",
                             "<nvlink target=\"0000:77:00.0\" count=\"1\""))
                .find("6:12 nvlink to 0000:77:00.0, where there is no GPU"),
            std::string::npos);
  EXPECT_NE(refused(replaced(good, "count=\"2\"", "count=\"3\"")).find("3 links to 0000:0b:00.0, but 2 from there"),
            std::string::npos);
  EXPECT_NE(refused(replaced(good, "count=\"2\"", "count=\"two\"")).find("count is 'two', expected a whole number"),
            std::string::npos);
  EXPECT_NE(refused(replaced(good, "<gpu dev=\"0\"", "<gpu")).find("'gpu' has no dev"), std::string::npos);
}

TEST(NcclXml, NumbersThatCannotBeAreRefusedWithTheirPlace) {
  const std::string good = fixture("dgx-h100.xml");
  const auto with = [&](const std::string& from, const std::string& to) {
    return problems([&] { xml(replaced(good, from, to)); });
  };
  for (const char* latency : {"1e30", "nan", "inf", "1e7", "soon"})
    EXPECT_NE(with("latency=\"0\"", "latency=\"" + std::string(latency) + "\"")
                  .find("latency is '" + std::string(latency) + "', expected microseconds from 0 to 1000000"),
              std::string::npos)
        << latency;
  EXPECT_EQ(with("latency=\"0\"", "latency=\"-1\""), "") << "NCCL's word for not known";
  EXPECT_NE(with("speed=\"400000\"", "speed=\"2147483647\"").find("speed 2147483647 is out of range"),
            std::string::npos);
  EXPECT_NE(with("link_width=\"16\"", "link_width=\"1000000\"").find("link_width 1000000 is out of range"),
            std::string::npos);
  EXPECT_NE(with("count=\"4\"", "count=\"2147483647\"").find("count 2147483647 is out of range"), std::string::npos);
}

TEST(NcclXml, WhatIsWrittenReadsAsTheNode) {
  const auto h100 = cluster_of({xml(fixture("dgx-h100.xml"))}, nullptr, 8);
  EXPECT_EQ(h100->node_view(0).inside, cluster::Inside::nvswitch);
  EXPECT_EQ(h100->node_view(0).port.per_s(), 370'800'000'000);
  EXPECT_EQ(h100->route(0, 1).latency, Time::from_ns(600));
  const auto v100 = cluster_of({xml(fixture("dgx1-v100.xml"))}, nullptr, 8);
  EXPECT_EQ(v100->node_view(0).inside, cluster::Inside::nvlink_mesh);
  EXPECT_EQ(v100->node_view(0).port.per_s(), 120'000'000'000);
  EXPECT_EQ(names(*v100, 0, 7), (Names{"node0/gpu0->gpu4", "node0/gpu4->gpu7"}));
  for (int d = 0; d < 8; ++d) EXPECT_EQ(v100->node_view(0).nics, 4);
}

TEST(TopoMatrix, NvlinkCountsTellASwitchFromAMesh) {
  const auto h100 = rates(matrix(fixture("dgx-h100.topo.txt")));
  EXPECT_DOUBLE_EQ(h100.at("gpu3-nvswitch"), 370.8) << "18 to each of seven: more than a GPU has";
  const std::string four =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\tNV4\tNV4\t0-63\t0\nGPU1\tNV4\t X "
      "\tNV4\tNV4\t0-63\t0\n"
      "GPU2\tNV4\tNV4\t X \tNV4\t0-63\t0\nGPU3\tNV4\tNV4\tNV4\t X \t0-63\t0\n";
  const DiscoveredNode mesh = matrix(four);
  EXPECT_EQ(mesh.device, "a100-sxm-80g") << "twelve links";
  EXPECT_DOUBLE_EQ(rates(mesh).at("gpu1-gpu2"), 80);
  EXPECT_TRUE(mesh.nvswitches.empty());
  EXPECT_EQ(mesh.hosts.size(), 1U) << "one NUMA node";
}

TEST(TopoMatrix, NicsHangOnTheSwitchOfTheirDevice) {
  const DiscoveredNode node = matrix(fixture("dgx-h100.topo.txt"));
  EXPECT_EQ(node.device, "h100-sxm");
  ASSERT_EQ(node.nics.size(), 10U);
  EXPECT_EQ(node.nics[6].name, "mlx5_6") << "from the legend";
  EXPECT_EQ(node.pcie_switches.size(), 8U);
  EXPECT_EQ(node.hosts.size(), 2U);
  const auto cluster = cluster_of({node}, nullptr, 8);
  EXPECT_EQ(cluster->node_view(0).nics, 10);
  const DiscoveredNode told = matrix(fixture("dgx-h100.topo.txt"), {"b200-sxm", 100});
  EXPECT_DOUBLE_EQ(rates(told).at("gpu3-nvswitch"), 18 * 40.1);
  EXPECT_DOUBLE_EQ(told.nics[0].gbps, 100);
}

TEST(TopoMatrix, BrokenOnesAreRefusedWithTheirPlace) {
  const auto refused = [](const std::string& text) { return problems([&] { matrix(text); }); };
  EXPECT_EQ(refused("\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV1\t X \n"),
            "3:1 GPU1 to GPU0 is NV1, but NV2 the other way\n");
  EXPECT_EQ(refused("\tGPU0\tGPU1\nGPU0\t X \tNVX\nGPU1\tNV1\t X \n"),
            "2:10 'NVX' is no relation, expected X, NV#, PIX, PXB, PHB, NODE or SYS\n");
  EXPECT_EQ(refused("\tGPU0\tGPU1\nGPU0\t X \tSYS\n"), "3:1 the matrix ends after 1 rows of 2\n");
  EXPECT_EQ(refused("\tGPU0\tGPU1\nGPU1\tSYS\t X \n").substr(0, 46), "2:1 expected the row of GPU0, found 'GPU1'\n3:1");
  EXPECT_NE(refused("nothing").find("expected the matrix"), std::string::npos);
  for (const char* count : {"NV0", "NV65", "NV99999999999999"})
    EXPECT_NE(refused("\tGPU0\tGPU1\nGPU0\t X \t" + std::string(count) + "\nGPU1\t" + count + "\t X \n")
                  .find("2:10 '" + std::string(count) + "': expected NV1 to NV64"),
              std::string::npos)
        << count;
}

TEST(Ibnetdiscover, SwitchesCablesAndHosts) {
  const DiscoveredFabric net = fabric(fixture("three-levels.ibnet.txt"));
  EXPECT_EQ(net.switches.size(), 2U * 4 + 2);
  EXPECT_EQ(net.switches.front(), "pod0-leaf0-MQM9700/U1");
  ASSERT_EQ(net.ports.size(), 8U);
  EXPECT_EQ(net.ports[3].host, "node-10");
  EXPECT_EQ(net.ports[3].hca, "mlx5_1");
  EXPECT_DOUBLE_EQ(net.ports[3].gbps, 47) << "0.94 of 4 x 100 Gb/s";
  int cables = 0;
  for (const DiscoveredCable& c : net.cables) cables += c.count;
  EXPECT_EQ(cables, 2 * 4 + 4 * 2) << "leaf to spine one each, spine to core two, and every one counted once";
}

TEST(Ibnetdiscover, RatesAreLanesTimesSpeed) {
  const std::pair<const char*, double> speeds[] = {{"4xSDR", 1},  {"4xQDR", 4},  {"4xFDR10", 5}, {"4xEDR", 12.5},
                                                   {"4xHDR", 25}, {"2xNDR", 25}, {"4xXDR", 100}};
  for (const auto& [speed, gbps] : speeds) {
    std::string text = fixture("three-levels.ibnet.txt");
    for (std::size_t at = 0; (at = text.find("4xNDR", at)) != std::string::npos; ++at) text.replace(at, 5, speed);
    EXPECT_NEAR(fabric(text).ports[0].gbps, 0.94 * gbps, 1e-9) << speed;
  }
}

TEST(Ibnetdiscover, BrokenOnesAreRefusedWithTheirPlace) {
  const std::string good = fixture("three-levels.ibnet.txt");
  const auto refused = [](const std::string& text) { return problems([&] { fabric(text); }); };
  EXPECT_EQ(refused(good), "");
  EXPECT_NE(refused(replaced(good, "4xNDR", "4xNDX")).find("'NDX' is no speed"), std::string::npos);
  EXPECT_NE(refused(replaced(good, " 4xNDR", "")).find("width and speed are missing"), std::string::npos);
  EXPECT_NE(refused(replaced(good, "4xNDR", "4xHDR")).find("the rate differs from the one at the cable's other end"),
            std::string::npos);
  EXPECT_NE(refused(replaced(good, "[1]\t\"H-", "[9]\t\"H-")).find("does not lead back"), std::string::npos);
  EXPECT_NE(refused(good.substr(0, good.find("Ca\t"))).find("which is not in the file"), std::string::npos);
  EXPECT_NE(refused("vendid=0x1\n").find("expected the output of ibnetdiscover"), std::string::npos);
  EXPECT_NE(refused("[1]\t\"S-1\"[2]\n").find("a port outside a block"), std::string::npos);
  for (const char* lanes : {"99999999999999", "0", "13"})
    EXPECT_NE(refused(replaced(good, "4xNDR", lanes + std::string("xNDR")))
                  .find("lanes " + std::string(lanes) + ", expected 1 to 12"),
              std::string::npos)
        << lanes;
  EXPECT_NE(refused(replaced(good, "[1]\t\"H-", "[99999999999]\t\"H-")).find(":2 port 99999999999, expected 1 to 254"),
            std::string::npos);
  EXPECT_NE(refused(good + std::string(100'000, 'x') + "\n").find("100000 characters, expected at most 4096"),
            std::string::npos);
}

// Names that YAML would read as something else, and what a terminal would obey.
TEST(WriteTopology, NamesOfAnyKindReadBack) {
  DiscoveredFabric net = fabric(fixture("three-levels.ibnet.txt"));
  const std::vector<std::string> others = {"null", "1e5", "true", "0x10", "-"};
  std::copy(others.begin(), others.end(), net.switches.begin());
  EXPECT_EQ(cluster_of({}, &net, 8)->nodes(), 4);
  DiscoveredFabric hostile = fabric(fixture("three-levels.ibnet.txt"));
  for (DiscoveredPort& port : hostile.ports) port.host += "\x1b]0;\u202e";
  Report report;
  const std::string written = write_topology("a\u009b31m", {}, &hostile, report);
  for (const char* harmful : {"\x1b", "\u202e", "\u009b"}) EXPECT_EQ(written.find(harmful), std::string::npos);
  EXPECT_EQ(cluster_of({}, &hostile, 8)->nodes(), 4);
}

TEST(WriteTopology, ANodeAndAFabricTogether) {
  // Hosts in natural order: node-9 before node-10. Rails: HCA k of each pod's hosts on its leaf k.
  const DiscoveredFabric net = fabric(fixture("three-levels.ibnet.txt"));
  const DiscoveredNode node = xml(fixture("dgx1-v100.xml"));
  const auto cluster = cluster_of({node}, &net, 32);
  EXPECT_EQ(cluster->nodes(), 4);
  EXPECT_EQ(names(*cluster, 0, 8), (Names{"node0/gpu0->pcie0", "node0/pcie0->nic0", "node0/nic0-out", "node1/nic0-in",
                                          "node1/nic0->pcie0", "node1/pcie0->gpu0"}));
  EXPECT_EQ(names(*cluster, 0, 16).size(), 6U + 4) << "another pod: up to a core and down";
  EXPECT_EQ(cluster->rail_of(6), 1) << "its own NIC hangs on no switch of this fabric";
}

TEST(WriteTopology, AFabricAloneAndSeveralNodes) {
  const DiscoveredFabric net = fabric(fixture("three-levels.ibnet.txt"));
  EXPECT_EQ(cluster_of({}, &net, 8)->nodes(), 4) << "a device at each adapter";
  const DiscoveredNode a = xml(fixture("dgx1-v100.xml")), b = xml(fixture("dgx-h100.xml"));
  const auto unequal = cluster_of({a, b, b}, nullptr, 24);
  EXPECT_EQ(unequal->nodes(), 3);
  EXPECT_EQ(unequal->node_view(0).nics, 4);
  EXPECT_EQ(unequal->node_view(2).nics, 8);
}

TEST(FormatOf, TellsByLooking) {
  EXPECT_EQ(format_of(fixture("dgx-h100.xml")), NetworkFormat::nccl_xml);
  EXPECT_EQ(format_of(fixture("dgx-h100.topo.txt")), NetworkFormat::topo_matrix);
  EXPECT_EQ(format_of(fixture("three-levels.ibnet.txt")), NetworkFormat::ibnetdiscover);
  EXPECT_EQ(format_of("topology: 1\n"), NetworkFormat::unknown);
  EXPECT_EQ(format_of(""), NetworkFormat::unknown);
}

}  // namespace
}  // namespace rehearse::formats
