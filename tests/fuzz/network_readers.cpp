// What other programs say of a machine, and the topology file that discover makes of it: whatever a reader took, what
// is written can be read again.
#include "formats/discovered.h"
#include "sim/base/document.h"
#include "sim/cluster/topology.h"
#include "tests/fuzz/readers.h"

namespace rehearse::fuzz {
namespace {

void check_report(const formats::Report& report) {
  for (const auto* lines : {&report.used, &report.ignored, &report.assumed})
    for (const std::string& line : *lines) {
      check_printable(line, "a line of discover");
      if (line.find('\n') != std::string::npos) fail("a line of discover is two");
    }
}

void check_written(const std::vector<formats::DiscoveredNode>& nodes, const formats::DiscoveredFabric* fabric,
                   formats::Report& report) {
  const std::string text = formats::write_topology("fuzzed", nodes, fabric, report);
  check_report(report);
  check_printable(text, "the topology file");
  const std::string path = put_file("written.yaml", text);
  try {
    (void)cluster::build_cluster(path, 1, {}, 0, REHEARSE_SOURCE_DIR);
  } catch (const InputError& error) {
    fail(std::string("discover wrote what simulate refuses: ") + error.what());
  }
}

// As the command does, by what the text looks like; the form it was made from is tried in any case.
template <typename Read>
void discover(const std::string& bytes, Read read) {
  const std::string path = put_file("input", bytes);
  const std::string text = read_text_file(path);
  (void)formats::format_of(text);
  for (const char* device : {"", "h100-sxm"}) {
    formats::Report report;
    read(path, text, formats::DiscoverHints{device, 0}, report);
  }
}

void read_xml(const std::string& bytes) {
  discover(bytes, [](const auto& path, const auto& text, const auto& hints, auto& report) {
    check_written({formats::read_nccl_xml(path, text, hints, report)}, nullptr, report);
  });
}

void read_matrix(const std::string& bytes) {
  discover(bytes, [](const auto& path, const auto& text, const auto& hints, auto& report) {
    check_written({formats::read_topo_matrix(path, text, hints, report)}, nullptr, report);
  });
}

void read_fabric(const std::string& bytes) {
  discover(bytes, [](const auto& path, const auto& text, const auto& hints, auto& report) {
    if (!hints.device.empty()) return;
    const formats::DiscoveredFabric fabric = formats::read_ibnetdiscover(path, text, report);
    check_written({}, &fabric, report);
  });
}

}  // namespace

void add_network_readers(std::vector<Reader>& list) {
  list.push_back({.name = "nccl-xml", .read = read_xml, .seeds = {"tests/unit/formats/*.xml"}});
  list.push_back({.name = "topo-matrix", .read = read_matrix, .seeds = {"tests/unit/formats/*.topo.txt"}});
  list.push_back({.name = "ibnetdiscover", .read = read_fabric, .seeds = {"tests/unit/formats/*.ibnet.txt"}});
}

}  // namespace rehearse::fuzz
