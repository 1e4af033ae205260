// Files that no machine wrote: what would take all stack, time or memory is refused, and what is written of the rest is
// safe to print. The smaller ones stand in tests/fuzz/corpus.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/discovered.h"

namespace rehearse::formats {
namespace {

std::string repeated(const std::string& piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

template <typename Read>
std::string refusal(Read read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.diagnostics().front().text();
  }
  return "taken";
}

std::string refused_xml(const std::string& inside) {
  return refusal([&] {
    Report report;
    read_nccl_xml("f", "<system version=\"1\">" + inside + "</system>", {}, report);
  });
}

const std::string kGpu = "<pci busid=\"0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"80\"/></pci>";

TEST(HostileXml, DepthProcessorsAndProblemsHaveAnEnd) {
  const int many = 100'000;
  EXPECT_NE(refused_xml("<cpu>" + repeated("<pci class=\"0x060400\">", many) + repeated("</pci>", many) + "</cpu>")
                .find("nested more than 64 deep"),
            std::string::npos);
  EXPECT_NE(refused_xml(repeated("<cpu/>", many)).find("more than 256 elements 'cpu'"), std::string::npos);
  EXPECT_NE(refused_xml("<cpu>" + repeated("<pci link_width=\"a\"/>", many) + "</cpu>").find("link_width is 'a'"),
            std::string::npos);
}

TEST(HostileXml, EndlessUnknownElementsAreNotAllListed) {
  std::string inside = "<cpu>" + kGpu + "</cpu>";
  for (int i = 0; i < 100'000; ++i) inside += fmt::format("<a{}/>", i);
  Report report;
  EXPECT_EQ(read_nccl_xml("f", "<system version=\"1\">" + inside + "</system>", {}, report).devices, 1);
  EXPECT_EQ(report.ignored.size(), 100u);
}

TEST(HostileXml, WhatIsPrintedAndWrittenOfItIsOneSafeLineEach) {
  const std::string gpu = "<pci busid=\"0\" link_speed=\"\x1b[2J&#10;b: 1\"><gpu dev=\"0\" sm=\"80\"/></pci>";
  Report report;
  const DiscoveredNode node = read_nccl_xml("f", "<system version=\"1\"><cpu>" + gpu + "</cpu></system>", {}, report);
  const std::string text = write_topology("a\x1b", {node}, nullptr, report);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find("\nb: 1"), std::string::npos) << "a line of its own would be a key";
  for (const std::string& line : report.assumed) EXPECT_EQ(line.find_first_of("\x1b\n"), std::string::npos) << line;
}

TEST(HostileMatrix, SizeAndCountsHaveAnEndAndGpusComeFirst) {
  const auto refused = [](const std::string& text) {
    return refusal([&] {
      Report report;
      read_topo_matrix("f", text, {}, report);
    });
  };
  std::string header = "GPU0";
  for (int i = 1; i < 100'000; ++i) header += fmt::format("\tGPU{}", i);
  EXPECT_NE(refused(header + "\n").find("more than 512 GPUs and NICs"), std::string::npos);
  EXPECT_EQ(refused("\tGPU0\tGPU1\nGPU0\tX\tNV99\nGPU1\tNV99\tX\n"), "f:2:8: error: 'NV99': expected NV1 to NV64");
  EXPECT_EQ(refused("\tGPU0\tNIC0\tGPU1\nGPU0\tX\tPIX\tNV12\nNIC0\tPIX\tX\tSYS\nGPU1\tNV12\tSYS\tX\n"),
            "f:1:12: error: GPU1 after a NIC: expected all GPUs first");
}

std::string fabric_of(const std::vector<std::string>& hosts) {
  std::string leaf = fmt::format("Switch {} \"S-1\" # \"leaf\" x\n", hosts.size()), adapters;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    leaf += fmt::format("[{0}] \"H-{0:x}\"[1] # \"{1}\" lid 1 4xHDR\n", i + 1, hosts[i]);
    adapters += fmt::format("\nCa 1 \"H-{0:x}\" # \"{1}\"\n[1] \"S-1\"[{0}] # lid 1 4xHDR\n", i + 1, hosts[i]);
  }
  return leaf + adapters;
}

TEST(HostileFabric, HostsWhoseNumbersAreEqualAreHostsOfTheirOwn) {
  const std::string text = fabric_of({"n1 a", "n01 a", "n1 b", "n001 a", "n01 b"});
  Report report;
  const DiscoveredFabric fabric = read_ibnetdiscover("f", text, report);
  const std::string written = write_topology("t", {}, &fabric, report);
  EXPECT_NE(written.find("  nodes: 3\n"), std::string::npos) << written;
  EXPECT_NE(written.find("[node0/nic0, node1/nic0, node1/nic1, node2/nic0, node2/nic1]"), std::string::npos) << written;
}

}  // namespace
}  // namespace rehearse::formats
