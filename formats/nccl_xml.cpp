// NCCL's topology XML (NCCL_TOPO_DUMP_FILE): src/graph/xml.cc and topo.cc, v2.28.9-1. One node, or one NVLink domain.
// NVSwitches are one, as NCCL merges them; bridges stay as they nest. Left out: pcilink, links to CPUs, graph files.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <utility>

#include "formats/discovered.h"

namespace rehearse::formats {
namespace {

constexpr double kMostGbps = 1e5;
// Far above what machines have; every pair of processors gets a link.
constexpr std::size_t kMostProcessors = 256, kMostLines = 100;
constexpr int kDeepest = 64;
constexpr double kMostLatencyUs = 1e6;
constexpr int kLeastMbps = 8, kMostMbps = 100'000'000;  // 1 MB/s, the least that a topology file takes; 100 Tb/s

// In units of 100 Mb/s a lane (kvDictPciGen).
constexpr std::pair<std::string_view, int> kPciLanes[] = {
    {"2.5 GT/s", 15},   {"5 GT/s", 30},   {"5.0 GT/s", 30},   {"8 GT/s", 60},   {"8.0 GT/s", 60},  {"16 GT/s", 120},
    {"16.0 GT/s", 120}, {"32 GT/s", 240}, {"32.0 GT/s", 240}, {"64 GT/s", 480}, {"64.0 GT/s", 480}};

// PCI device numbers of NVIDIA's (pci.ids) for those with a device file.
constexpr std::pair<int, std::string_view> kDevices[] = {
    {0x1db5, "v100-sxm2-32g"}, {0x1db1, "v100-sxm2-32g"}, {0x20b0, "a100-sxm-40g"}, {0x20b2, "a100-sxm-80g"},
    {0x20b5, "a100-pcie-80g"}, {0x20f1, "a100-pcie-80g"}, {0x2330, "h100-sxm"},     {0x2335, "h200-sxm"},
    {0x2901, "b200-sxm"},      {0x2941, "gb200"}};

std::string device_of_sm(int sm, bool nvlink) {
  if (sm >= 100) return "b200-sxm";
  if (sm >= 90) return "h100-sxm";
  if (sm >= 80) return nvlink ? "a100-sxm-80g" : "a100-pcie-80g";
  return "v100-sxm2-32g";
}

class XmlReader {
 public:
  XmlReader(const std::string& file, const std::string& text, const DiscoverHints& hints, Report& report)
      : file_(file), text_(text), hints_(hints), report_(report) {
    node_.source = file;
  }

  DiscoveredNode read() {
    pugi::xml_document document;
    const pugi::xml_parse_result parsed =
        document.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!parsed) throw InputError(at(parsed.offset, std::string("not XML: ") + parsed.description()));
    const pugi::xml_node system = document.child("system");
    if (!system) throw InputError(at(0, "expected the element 'system' of an NCCL topology file"));
    if (const int version = number(system, "version", 1); version != 1)
      error(system, fmt::format("version {} is not known, expected 1", version));
    for (const pugi::xml_node& cpu : system.children()) read_cpu(cpu);
    finish(system);
    problems_.throw_if_any();
    return std::move(node_);
  }

 private:
  Diagnostic at(std::ptrdiff_t offset, std::string message) const {
    Diagnostic d;
    d.file = file_;
    const auto end = text_.begin() + std::clamp<std::ptrdiff_t>(offset, 0, static_cast<std::ptrdiff_t>(text_.size()));
    d.line = 1 + static_cast<int>(std::count(text_.begin(), end, '\n'));
    const auto newline = std::find(std::make_reverse_iterator(end), text_.rend(), '\n');
    d.column = 1 + static_cast<int>(end - newline.base());
    d.message = std::move(message);
    return d;
  }
  void error(const pugi::xml_node& node, std::string message) {
    problems_.add(at(node.offset_debug(), std::move(message)));
    if (problems_.list().size() == kMostLines) problems_.throw_if_any();  // each took a walk through the text
  }

  // A whole number, decimal or with 0x; the fallback if the attribute is missing, reported if it is something else.
  int number(const pugi::xml_node& node, const char* name, std::optional<int> fallback = {}) {
    const std::string_view text = node.attribute(name).value();
    if (text.empty()) {
      if (!fallback) error(node, fmt::format("'{}' has no {}", node.name(), name));
      return fallback.value_or(0);
    }
    const bool hex = text.starts_with("0x");
    int value = 0;
    const char* begin = text.data() + (hex ? 2 : 0);
    const auto [end, problem] = std::from_chars(begin, text.data() + text.size(), value, hex ? 16 : 10);
    if (problem == std::errc() && end == text.data() + text.size()) return value;
    error(node, fmt::format("{} is '{}', expected a whole number", name, text));
    return fallback.value_or(0);
  }

  // Microseconds beyond NCCL's constant; a net without it, or with NCCL's "not known" below 0, has none.
  double latency_of(const pugi::xml_node& net) {
    const std::string_view text = net.attribute("latency").value();
    if (text.empty()) return 0;
    double us = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), us);
    if (problem == std::errc() && end == text.data() + text.size() && us <= kMostLatencyUs) return std::max(0.0, us);
    error(net, fmt::format("latency is '{}', expected microseconds from 0 to {}", text, kMostLatencyUs));
    return 0;
  }

  // `value` of an attribute, reported if it is outside.
  int within(const pugi::xml_node& node, const char* name, int value, int least, int most) {
    if (value >= least && value <= most) return value;
    error(node, fmt::format("{} {} is out of range, expected {} to {}", name, value, least, most));
    return least;
  }

  double pci_gbps(const pugi::xml_node& pci, std::string& why) {
    const std::string_view speed = pci.attribute("link_speed").value();
    int lane = 0;
    for (const auto& [name, rate] : kPciLanes)
      if (speed == name || (speed.starts_with(name) && speed.substr(name.size()) == " PCIe")) lane = rate;
    int width = number(pci, "link_width", 16);
    if (width <= 0) width = 16;
    width = within(pci, "link_width", width, 1, 32);  // PCIe has up to 32 lanes
    if (lane == 0) {
      lane = 60;
      assume(fmt::format("PCIe link speed '{}' is not known: 8 GT/s, as NCCL takes it", speed));
    }
    why = fmt::format("{} x {}", lane == 60 && speed.empty() ? "8 GT/s" : speed, width);
    return width * lane / 80.0;
  }

  // Each line once; of endlessly many different ones the first.
  static void note(std::vector<std::string>& lines, const std::string& text) {
    if (lines.size() < kMostLines && std::find(lines.begin(), lines.end(), text) == lines.end()) lines.push_back(text);
  }
  void assume(const std::string& line) { note(report_.assumed, line); }
  void ignore(const std::string& line) { note(report_.ignored, line); }

  void join(const std::string& a, const std::string& b, const char* kind, double gbps, const std::string& why) {
    node_.links.push_back({a, b, kind, gbps, why});
  }

  void read_cpu(const pugi::xml_node& cpu) {
    if (std::strcmp(cpu.name(), "cpu") != 0) return ignore(fmt::format("element '{}' in 'system'", cpu.name()));
    if (node_.hosts.size() == kMostProcessors)
      throw InputError(at(cpu.offset_debug(), fmt::format("more than {} elements 'cpu'", kMostProcessors)));
    const std::string host = fmt::format("host{}", node_.hosts.size());
    node_.hosts.push_back(host);
    cpus_.push_back(cpu);
    for (const pugi::xml_node& child : cpu.children()) {
      if (std::strcmp(child.name(), "pci") == 0)
        read_pci(child, host);
      else if (std::strcmp(child.name(), "nic") == 0)
        read_nic(child, host, 0, "");
      else
        ignore(fmt::format("element '{}' in 'cpu'", child.name()));
    }
  }

  void read_pci(const pugi::xml_node& pci, const std::string& parent, int depth = 1) {
    if (depth > kDeepest)
      throw InputError(at(pci.offset_debug(), fmt::format("elements 'pci' nested more than {} deep", kDeepest)));
    const std::string_view kind = pci.attribute("class").value();
    std::string why;
    const double gbps = pci_gbps(pci, why);
    if (const pugi::xml_node gpu = pci.child("gpu")) return read_gpu(pci, gpu, parent, gbps, why);
    if (const pugi::xml_node nic = pci.child("nic")) return read_nic(nic, parent, gbps, why);
    if (!kind.starts_with("0x0604")) return ignore(fmt::format("PCI device of class {} without 'gpu' or 'nic'", kind));
    const std::string name = fmt::format("pcie{}", node_.pcie_switches.size());
    node_.pcie_switches.push_back(name);
    join(name, parent, "pcie", gbps, why);
    for (const pugi::xml_node& child : pci.children()) {
      if (std::strcmp(child.name(), "pci") == 0)
        read_pci(child, name, depth + 1);
      else
        ignore(fmt::format("element '{}' in 'pci'", child.name()));
    }
  }

  void read_gpu(const pugi::xml_node& pci, const pugi::xml_node& gpu, const std::string& parent, double gbps,
                const std::string& why) {
    const std::string bus = pci.attribute("busid").value();
    if (bus.empty()) error(pci, "'pci' has no busid");
    const int dev = number(gpu, "dev"), sm = number(gpu, "sm");
    if (!gpus_.try_emplace(bus, static_cast<int>(gpu_list_.size())).second)
      error(pci, fmt::format("a second GPU at {}", bus));
    gpu_list_.push_back({gpu, pci, dev, sm, parent, gbps, why});
  }

  void read_nic(const pugi::xml_node& nic, const std::string& parent, double gbps, const std::string& why) {
    const auto nets = std::distance(nic.children("net").begin(), nic.children("net").end());
    std::string point = parent;
    if (nets > 1 && gbps > 0) {  // ports of one card share its lanes
      point = fmt::format("pcie{}", node_.pcie_switches.size());
      node_.pcie_switches.push_back(point);
      join(point, parent, "pcie", gbps, why);
    }
    for (const pugi::xml_node& net : nic.children("net")) {
      DiscoveredNic found;
      found.name = net.attribute("name").value();
      found.guid = guid_text(net.attribute("guid").value());
      int speed = number(net, "speed", 0);
      if (speed <= 0) {
        speed = 10000;
        assume(fmt::format("{}: no speed, 10 Gb/s as NCCL takes it", found.name));
      }
      speed = within(net, "speed", speed, kLeastMbps, kMostMbps);
      found.gbps = hints_.nic_gbps > 0 ? hints_.nic_gbps : speed / 8000.0;
      found.latency_us = latency_of(net);
      const std::string name = fmt::format("nic{}", node_.nics.size());
      node_.nics.push_back(std::move(found));
      if (gbps > 0)
        join(name, point, "pcie", gbps, why);
      else
        join(name, point, "pcie", kMostGbps, "no PCI device in the file: never a limit");
    }
  }

  static std::string guid_text(std::string_view guid) {
    std::string text(guid.starts_with("0x") ? guid.substr(2) : guid);
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    text.erase(0, std::min(text.find_first_not_of('0'), text.size()));
    return text.empty() ? "" : "0x" + text;
  }

  struct Gpu {
    pugi::xml_node gpu, pci;
    int dev, sm;
    std::string parent;
    double gbps;
    std::string why;
  };

  // GPUs are numbered by `dev`.
  void finish(const pugi::xml_node& system) {
    std::vector<std::size_t> order(gpu_list_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return gpu_list_[a].dev < gpu_list_[b].dev; });
    std::vector<int> place(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int>(i);
    node_.devices = static_cast<int>(order.size());
    if (order.empty()) {
      error(system, "no 'gpu' in it");
      return;
    }
    bool nvlink = false;
    for (const std::size_t g : order) {
      const Gpu& gpu = gpu_list_[g];
      const std::string name = fmt::format("gpu{}", place[g]);
      join(name, gpu.parent, "pcie", gpu.gbps, gpu.why);
      nvlink |= read_nvlinks(gpu, g, name, place);
      if (gpu.gpu.child("c2c")) ignore("c2c: the link between GPU and CPU carries no GPU-to-GPU traffic here");
    }
    join_sockets();
    node_.device = hints_.device.empty() ? device_name(nvlink) : hints_.device;
    report_.used.push_back(fmt::format("{}: {} GPUs, {} NICs, {} PCIe bridges, {} host bridges, {} links", file_,
                                       node_.devices, node_.nics.size(), node_.pcie_switches.size(), node_.hosts.size(),
                                       node_.links.size()));
  }

  bool read_nvlinks(const Gpu& gpu, std::size_t number_in_file, const std::string& name,
                    const std::vector<int>& place) {
    const double each = nvlink_gbps(gpu.sm);
    int to_switch = 0;
    bool any = false;
    for (const pugi::xml_node& link : gpu.gpu.children("nvlink")) {
      const int count = number(link, "count");
      if (count < 1 || count > 64) {
        error(link, fmt::format("count {} is out of range, expected 1 to 64", count));
        continue;
      }
      const std::string_view kind = link.attribute("tclass").value();
      const std::string target = link.attribute("target").value();
      if (each == 0) {
        error(gpu.gpu, fmt::format("NVLinks of sm {} have no known rate", gpu.sm));
        return any;
      }
      any = true;
      if (kind.starts_with("0x0680") && kind != "0x068001") {
        to_switch += count;
      } else if (kind.starts_with("0x03")) {
        const auto peer = gpus_.find(target);
        if (peer == gpus_.end()) {
          error(link, fmt::format("nvlink to {}, where there is no GPU", target));
          continue;
        }
        const int back =
            links_back(gpu_list_[static_cast<std::size_t>(peer->second)], gpu.pci.attribute("busid").value());
        if (back != count) error(link, fmt::format("{} links to {}, but {} from there", count, target, back));
        if (static_cast<std::size_t>(peer->second) > number_in_file)
          join(name, fmt::format("gpu{}", place[static_cast<std::size_t>(peer->second)]), "nvlink", count * each,
               fmt::format("{} x {} GB/s", count, each));
      } else {
        ignore(fmt::format("NVLinks of class {} (to a CPU)", kind));
      }
    }
    if (to_switch > 0) {
      if (node_.nvswitches.empty()) node_.nvswitches.emplace_back("nvswitch");
      join(name, "nvswitch", "nvlink", to_switch * each, fmt::format("{} x {} GB/s", to_switch, each));
    }
    return any;
  }

  static int links_back(const Gpu& gpu, const std::string& bus) {
    int sum = 0;
    for (const pugi::xml_node& link : gpu.gpu.children("nvlink"))
      if (bus == link.attribute("target").value()) sum += std::clamp(link.attribute("count").as_int(), 0, 64);
    return sum;
  }

  // ncclTopoGetInterCpuBw; where processors differ, the slower.
  double socket_gbps(const pugi::xml_node& cpu) {
    const std::string_view arch = cpu.attribute("arch").value(), vendor = cpu.attribute("vendor").value();
    if (arch == "arm64") return 6;
    if (arch == "ppc64") return 32;
    if (vendor == "AuthenticAMD") return 16;
    if (vendor != "GenuineIntel") return 6;
    const int model = number(cpu, "modelid", 0);
    return model >= 0xcf ? 40 : model >= 0x8f ? 22 : model >= 0x55 ? 10 : 6;
  }

  void join_sockets() {
    std::vector<double> gbps;
    for (const pugi::xml_node& cpu : cpus_) gbps.push_back(socket_gbps(cpu));
    for (std::size_t a = 0; a < gbps.size(); ++a)
      for (std::size_t b = a + 1; b < gbps.size(); ++b)
        join(node_.hosts[a], node_.hosts[b], "host", std::min(gbps[a], gbps[b]), "between sockets");
  }

  std::string device_name(bool nvlink) {
    const Gpu& first = gpu_list_.front();
    if (std::any_of(gpu_list_.begin(), gpu_list_.end(), [&](const Gpu& g) { return g.sm != first.sm; }))
      error(first.gpu, "GPUs of different generations: one device file serves all of a cluster");
    const int id = number(first.pci, "device", 0);
    for (const auto& [known, name] : kDevices)
      if (id == known) return std::string(name);
    std::string name = device_of_sm(first.sm, nvlink);
    assume(
        fmt::format("device: {} (sm {}, PCI device {:#06x} is not known); --device says another", name, first.sm, id));
    return name;
  }

  const std::string& file_;
  const std::string& text_;
  const DiscoverHints& hints_;
  Report& report_;
  Diagnostics problems_;
  DiscoveredNode node_;
  std::vector<pugi::xml_node> cpus_;
  std::map<std::string, int> gpus_;  // by bus id: place in the list
  std::vector<Gpu> gpu_list_;
};

}  // namespace

double nvlink_gbps(int sm) {
  if (sm >= 100) return 40.1;
  if (sm >= 90) return 20.6;
  if (sm == 86) return 12;
  if (sm >= 70) return 20;
  return sm >= 60 ? 18 : 0;
}

DiscoveredNode read_nccl_xml(const std::string& file, const std::string& text, const DiscoverHints& hints,
                             Report& report) {
  return XmlReader(file, text, hints, report).read();
}

}  // namespace rehearse::formats
