// The output of ibnetdiscover (infiniband-diags): switches and channel adapters with the cables between them, each of
// which it shows from both ends. A host is the first word of an adapter's description ("node7 mlx5_2" or "node7
// HCA-3"). Rates: lanes times the payload rate of a lane; the share that NCCL reaches of it is 0.94 (NVIDIA/nccl-tests
// issue 290). Left out: routers, ports of switches to themselves, SHARP's aggregation nodes.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <regex>
#include <sstream>
#include <utility>

#include "formats/discovered.h"

namespace rehearse::formats {
namespace {

constexpr double kReached = 0.94;
// Gb/s of data a lane, encoding taken off up to QDR (8b/10b); from EDR on the names are the data rates.
constexpr std::pair<const char*, double> kSpeeds[] = {{"SDR", 2},    {"DDR", 4},     {"QDR", 8},
                                                      {"FDR10", 10}, {"FDR", 13.64}, {"EDR", 25},
                                                      {"HDR", 50},   {"NDR", 100},   {"XDR", 200}};

// InfiniBand Architecture, volume 1: ports 1 to 254 of a switch and 255 that stands for all; links of up to 12 lanes.
constexpr int kPorts = 254, kLanes = 12;
constexpr std::size_t kLongestLine = 4096;  // far above what ibnetdiscover writes; matching recurses a character

struct Link {
  std::string from, to;  // "S-..." or "H-..." as the file names nodes
  int from_port = 0, to_port = 0, line = 0;
  double gbps = 0;
};

struct Block {
  std::string id, description;
  bool is_switch = false;
  int line = 0;
};

std::string guid_text(std::string id) {
  id = id.substr(id.find('-') + 1);
  id.erase(0, std::min(id.find_first_not_of('0'), id.size()));
  return "0x" + id;
}

class Reader {
 public:
  Reader(const std::string& file, const std::string& text, Report& report)
      : file_(file), lines_(text), report_(report) {
    fabric_.source = file;
  }

  DiscoveredFabric read() {
    read_lines();
    problems_.throw_if_any();
    if (blocks_.empty()) add(1, "no 'Switch' or 'Ca' in it: expected the output of ibnetdiscover");
    check_both_ends();
    problems_.throw_if_any();
    name_switches();
    make_cables();
    make_ports();
    problems_.throw_if_any();
    return std::move(fabric_);
  }

 private:
  void add(int line, std::string message, int column = 1) {
    problems_.add({file_, line, column, "", std::move(message), ""});
  }

  void read_lines() {
    static const std::regex header(R"re((Switch|Ca|Rt)\s+(\d+)\s+"([SHR]-[0-9a-fA-F]+)"\s*#\s*"([^"]*)".*)re");
    static const std::regex link(
        R"re(\[(\d+)\](?:\([0-9a-fA-F]+\))?\s+"([SHR]-[0-9a-fA-F]+)"\[(\d+)\](?:\([0-9a-fA-F]+\))?(.*))re");
    static const std::regex rate(R"re(.*\s(\d+)x([A-Z0-9]+)\s*$)re");
    std::string line;
    bool in_block = false, router = false;
    for (int number = 1; std::getline(lines_, line); ++number) {
      if (line.ends_with('\r')) line.pop_back();
      if (line.find_first_not_of(" \t") == std::string::npos) {
        in_block = false;
        continue;
      }
      if (line.size() > kLongestLine) {
        add(number, fmt::format("{} characters, expected at most {}", line.size(), kLongestLine));
        continue;
      }
      std::smatch match;
      if (std::regex_match(line, match, header)) {
        in_block = true;
        router = match[1] == "Rt";
        if (!router) open_block({match[3], match[4], match[1] == "Switch", number});
        if (router) report_.ignored.push_back(fmt::format("router {}", match[3].str()));
      } else if (line.front() == '[') {
        if (!in_block) {
          add(number, "a port outside a block: expected a line 'Switch' or 'Ca' before it");
        } else if (!std::regex_match(line, match, link)) {
          add(number, "expected [port] \"S-guid\"[port] # \"name\" lid N 4xHDR");
        } else if (!router && match[2].str()[0] != 'R') {
          std::smatch speed;
          const std::string rest = match[4];
          if (!std::regex_match(rest, speed, rate)) {
            add(number, "the link's width and speed are missing, as 4xHDR at the end of the line",
                static_cast<int>(line.size()));
            continue;
          }
          const int lanes = number_of(speed[1], "lanes", kLanes, number, match.position(4) + speed.position(1));
          const double gbps =
              gbps_of(lanes, speed[2], number, static_cast<int>(line.size() - speed[2].str().size()) + 1);
          links_.push_back({blocks_.back().id, match[2], number_of(match[1], "port", kPorts, number, match.position(1)),
                            number_of(match[3], "port", kPorts, number, match.position(3)), number, gbps});
        }
      }
    }
  }

  // Digits that stand at `offset` of the line.
  int number_of(const std::string& digits, const char* what, int most, int line, std::ptrdiff_t offset) {
    int value = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (problem == std::errc() && value >= 1 && value <= most) return value;
    add(line, fmt::format("{} {}, expected 1 to {}", what, digits, most), static_cast<int>(offset) + 1);
    return 1;
  }

  void open_block(Block block) {
    if (!places_.try_emplace(block.id, blocks_.size()).second)
      add(block.line, fmt::format("{} is there already", block.id));
    blocks_.push_back(std::move(block));
  }

  double gbps_of(int lanes, const std::string& speed, int line, int column) {
    for (const auto& [name, rate] : kSpeeds)
      if (speed == name) return lanes * rate / 8 * kReached;
    add(line, fmt::format("'{}' is no speed, expected SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR or XDR", speed), column);
    return 1;
  }

  // Every cable is shown by both its ends; the first one kept is the end that comes first.
  void check_both_ends() {
    std::map<std::pair<std::string, int>, const Link*> ends;
    for (const Link& l : links_)
      if (!ends.try_emplace({l.from, l.from_port}, &l).second)
        add(l.line, fmt::format("port {} of {} is there already", l.from_port, l.from));
    for (const Link& l : links_) {
      if (!places_.contains(l.to)) {
        add(l.line, fmt::format("a cable to {}, which is not in the file", l.to));
        continue;
      }
      const auto other = ends.find({l.to, l.to_port});
      if (other == ends.end() || other->second->to != l.from || other->second->to_port != l.from_port)
        add(l.line,
            fmt::format("port {} of {} does not lead back to port {} of {}", l.to_port, l.to, l.from_port, l.from));
      else if (other->second->gbps != l.gbps)
        add(l.line,
            fmt::format("the rate differs from the one at the cable's other end, line {}", other->second->line));
    }
  }

  const Block& block(const std::string& id) const { return blocks_[places_.at(id)]; }

  void name_switches() {
    std::map<std::string, int> times;
    for (const Block& b : blocks_)
      if (b.is_switch) ++times[plain(b.description)];
    for (const Block& b : blocks_) {
      if (!b.is_switch) continue;
      std::string name = plain(b.description);
      if (name.empty() || times[name] > 1) name += (name.empty() ? "switch-" : "-") + guid_text(b.id).substr(2);
      numbers_[b.id] = static_cast<int>(fabric_.switches.size());
      fabric_.switches.push_back(std::move(name));
    }
  }

  // A description as one word: its last part after ';', which names the switch, without blanks.
  static std::string plain(std::string text) {
    if (text.find(';') != std::string::npos) text = text.substr(text.find(';') + 1);
    constexpr std::size_t kLongest = 100;  // a key of the file to be written has 1024 characters at most
    std::string out;
    for (const char c : text) {
      if (out.size() == kLongest) break;
      const bool word = std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == '/';
      if (word) out += c;
      if (!word && !out.empty() && out.back() != '-') out += '-';
    }
    while (!out.empty() && out.back() == '-') out.pop_back();
    return out;
  }

  void make_cables() {
    std::map<std::tuple<int, int, double>, int> counts;
    for (const Link& l : links_) {
      const auto a = numbers_.find(l.from), b = numbers_.find(l.to);
      if (a == numbers_.end() || b == numbers_.end() || a->second >= b->second) continue;
      ++counts[{a->second, b->second, l.gbps}];
    }
    for (const auto& [cable, count] : counts)
      fabric_.cables.push_back({std::get<0>(cable), std::get<1>(cable), count, std::get<2>(cable)});
  }

  void make_ports() {
    for (const Link& l : links_) {
      const Block& from = block(l.from);
      if (from.is_switch || !numbers_.contains(l.to)) continue;
      std::istringstream words(from.description);
      DiscoveredPort port;
      words >> port.host >> port.hca;
      if (port.host.empty()) port.host = l.from;
      if (port.host == "Mellanox" || from.description.find("SHARP") != std::string::npos ||
          from.description.find("Aggregation") != std::string::npos) {
        report_.ignored.push_back(fmt::format("'{}': an aggregation node, no host", from.description));
        continue;
      }
      port.guid = guid_text(l.from);
      port.leaf = numbers_.at(l.to);
      port.gbps = l.gbps;
      fabric_.ports.push_back(std::move(port));
    }
    if (fabric_.ports.empty()) add(1, "no adapter of a host is joined to a switch");
    report_.used.push_back(fmt::format("{}: {} switches, {} adapter ports, {} kinds of cables between switches", file_,
                                       fabric_.switches.size(), fabric_.ports.size(), fabric_.cables.size()));
    report_.assumed.push_back(
        "links between switches: 0.94 of the data rate is reached, 300 ns a switch (not in the file)");
  }

  const std::string& file_;
  std::istringstream lines_;
  Report& report_;
  Diagnostics problems_;
  DiscoveredFabric fabric_;
  std::vector<Block> blocks_;
  std::map<std::string, std::size_t> places_;
  std::map<std::string, int> numbers_;  // of switches
  std::vector<Link> links_;
};

}  // namespace

DiscoveredFabric read_ibnetdiscover(const std::string& file, const std::string& text, Report& report) {
  return Reader(file, text, report).read();
}

NetworkFormat format_of(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '<') return NetworkFormat::nccl_xml;
  const std::string_view head = text.substr(0, 1 << 16);
  if (head.find("switchguid=") != std::string_view::npos || head.find("caguid=") != std::string_view::npos ||
      head.find("Switch\t") != std::string_view::npos || head.find("Ca\t") != std::string_view::npos)
    return NetworkFormat::ibnetdiscover;
  return head.find("GPU0") != std::string_view::npos ? NetworkFormat::topo_matrix : NetworkFormat::unknown;
}

}  // namespace rehearse::formats
