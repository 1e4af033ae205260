// Reads measured collectives and forms and applies corrections; see measurements.h.
#include "sim/collective/measurements.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "sim/base/csv.h"
#include "sim/base/document.h"
#include "sim/collective/wire.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

// Up to all_to_all: nobody measured a reduce.
const std::vector<std::string>& kind_names() {
  static const std::vector<std::string> names(
      kCollectiveKindWords.begin(),
      kCollectiveKindWords.begin() + static_cast<std::ptrdiff_t>(CollectiveKind::all_to_all) + 1);
  return names;
}

void add_row(const CsvRow& row, MeasuredData& data) {
  const auto kind = static_cast<CollectiveKind>(row.choice("collective", kind_names()));
  const auto ranks = static_cast<int>(row.positive_integer("gpus"));
  const auto nodes = static_cast<int>(row.positive_integer("nodes"));
  const Point point{row.positive_integer("bytes", INT64_MAX), row.positive_number("time_us", 1e-6, 1e9)};
  if (ranks < 2) row.error("gpus", "expected 2 or more, found 1");
  if (ranks % nodes != 0) row.error("nodes", fmt::format("expected a divisor of {}, found {}", ranks, nodes));
  std::vector<Point>& points = data.points[{kind, ranks, nodes}];
  const auto at = std::lower_bound(points.begin(), points.end(), point.bytes,
                                   [](const Point& p, std::int64_t bytes) { return p.bytes < bytes; });
  if (at != points.end() && at->bytes == point.bytes)
    row.error("bytes", fmt::format("a second row for {} bytes", point.bytes));
  else
    points.insert(at, point);
}

void read_table(const std::string& path, std::string text, int first_line, MeasuredData& data) {
  Diagnostics diagnostics;
  CsvTable table(path, std::move(text), {{"collective", "gpus", "nodes", "bytes", "time_us", "source"}}, diagnostics,
                 CsvDialect::commented, first_line);
  while (const CsvRow* row = table.next()) add_row(*row, data);
  diagnostics.throw_if_any();
}

void read_machine(const Node& root, MeasuredData& data) {
  const Node on = root.get("measured_on");
  if (on) {
    data.has_reference = true;
    data.prior.machine.nvlink_gbps = static_cast<double>(on.bandwidth("nvlink").per_s()) * 1e-9;
    data.prior.machine.nic_gbps = static_cast<double>(on.bandwidth("nic").per_s()) * 1e-9;
    if (data.prior.machine.nvlink_gbps <= 0 || data.prior.machine.nic_gbps <= 0)
      on.error("nvlink and nic must be positive bandwidths");
    on.finish();
  }
  const int model = root.choice("model", {"ring", "nccl", "torus"});
  data.prior.nccl = model == 1;
  data.prior.torus = model == 2;
  if (!data.prior.nccl) return;
  data.prior.machine.generation =
      static_cast<nccl::Generation>(root.choice("generation", {"ampere", "hopper", "blackwell"}));
  data.prior.machine.cpu = static_cast<nccl::Cpu>(root.choice("cpu", {"intel", "amd"}));
  data.prior.machine.pat = root.boolean("pat", false);
  if (!on) root.error("model: nccl needs measured_on with the rates of the machine measured");
}

void read_blocks(const Node& root, MeasuredData& data) {
  const Node blocks = root.get("blocks");
  if (!blocks) return;
  const auto count = [&blocks](const char* key) { return static_cast<int>(blocks.integer(key, 0, 0, 1024)); };
  data.blocks = {count("node"), count("nodes"), count("nvls"), count("send")};
  blocks.finish();
}

void read_intervals(const Node& root, MeasuredData& data) {
  const Node intervals = root.get("interval");
  constexpr std::array<const char*, 4> kNames = {"exact", "interpolated", "extrapolated", "spec"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const Node pair = intervals.get(kNames[i]);
    const double low = pair.size() == 2 ? pair.at(0).as_number().value_or(0) : 0;
    const double high = pair.size() == 2 ? pair.at(1).as_number().value_or(0) : 0;
    if (low > 0 && low <= 1 && high >= 1) {
      data.interval[i] = {low, high};
    } else {
      pair.error("expected [low, high]: factors of the time with 0 < low <= 1 <= high");
    }
  }
  intervals.finish();
}

bool alike(double a, double b) {
  return std::abs(a / b - 1) < 1e-3;
}

double kind_distance(CollectiveKind a, CollectiveKind b) {
  if (a == b) return 0;
  const auto half = [](CollectiveKind k) {
    return k == CollectiveKind::all_gather || k == CollectiveKind::reduce_scatter;
  };
  return half(a) && half(b) ? 1 : 3;
}

// What a file and the section of a calibration have in common.
MeasuredData read_keys(const Node& root) {
  MeasuredData data;
  root.text("library", "");
  read_machine(root, data);
  read_blocks(root, data);
  read_intervals(root, data);
  return data;
}

bool is_device_file(const std::string& path) {
  return (path.ends_with(".yaml") || path.ends_with(".yml")) && std::filesystem::exists(path);
}
std::string file_beside(const std::string& device_file) {
  return std::filesystem::path(device_file).replace_extension(".collectives.yaml").string();
}

// The `collectives` section of a calibration (calibrate/devices): the table is a literal block; there is none for a
// machine with one device.
std::optional<MeasuredData> read_section(const std::string& device_file) {
  if (!is_device_file(device_file)) return std::nullopt;
  Diagnostics diagnostics;
  const Document document = Document::from_file(device_file, diagnostics);
  const Node section = document.root().get("collectives");
  if (!section) return std::nullopt;
  if (section.has("of")) {
    section.choice("of", {"topology"});
    section.finish();
    diagnostics.throw_if_any();
    return std::nullopt;
  }
  MeasuredData data = read_keys(section);
  const std::string rows = section.text("rows");
  const int line = section.get("rows").line() + 1;
  section.get("pinned");  // for people: columns as nccl-tests prints them
  section.finish();
  diagnostics.throw_if_any();
  read_table(device_file, rows, line, data);
  return data;
}

}  // namespace

void add_measured_rows(const std::string& file, MeasuredData& data) {
  if (!is_device_file(file)) return;
  Diagnostics diagnostics;
  const Document document = Document::from_file(file, diagnostics);
  const Node section = document.root().get("collectives");
  if (!section) return;
  const std::string rows = section.text("rows");
  const int line = section.get("rows").line() + 1;
  section.finish();
  diagnostics.throw_if_any();
  MeasuredData added;
  read_table(file, rows, line, added);
  for (const auto& [key, points] : added.points) {
    std::vector<Point>& all = data.points[key];
    for (const Point& point : points) {
      const auto at = std::lower_bound(all.begin(), all.end(), point.bytes,
                                       [](const Point& p, std::int64_t bytes) { return p.bytes < bytes; });
      if (at != all.end() && at->bytes == point.bytes)
        *at = point;
      else
        all.insert(at, point);
    }
  }
}

MeasuredData read_measured_data(const std::string& path) {
  Diagnostics diagnostics;
  const Document document = Document::from_file(path, diagnostics);
  const Node root = document.root();
  root.integer("collectives", {}, 1, 1);
  MeasuredData data = read_keys(root);
  const std::string csv = root.text("measurements");
  root.finish();
  diagnostics.throw_if_any();
  const std::string table = (std::filesystem::path(path).parent_path() / csv).string();
  read_table(table, read_text_file(table), 1, data);
  return data;
}

std::optional<MeasuredData> find_measured_data(const std::string& device_file) {
  if (device_file.empty()) return std::nullopt;
  if (const std::string path = file_beside(device_file); std::filesystem::exists(path)) return read_measured_data(path);
  return read_section(device_file);
}

bool takes_collectives_of_topology(const std::string& device_file) {
  if (!is_device_file(device_file)) return false;
  Diagnostics ignored;
  return Document::from_file(device_file, ignored).root().get("collectives").get("of").as_text() == "topology";
}

Corrections::Corrections(const MeasuredData& data, const Prior& machine) {
  const Prior& reference = reference_ = data.has_reference ? data.prior : machine;
  // A machine with no pair of devices on a node (or no second node) has no such rate to compare.
  const auto same = [](double rate, double measured) { return rate == 0 || alike(rate, measured); };
  // What was measured behind a switch is not what a mesh does: there a pair has but the links between the two.
  same_node_ = same(machine.machine.nvlink_gbps, reference.machine.nvlink_gbps) &&
               machine.machine.nvswitch == reference.machine.nvswitch &&
               (!machine.nccl || machine.machine.nvlink_latency_us == 0);
  same_network_ = same(machine.machine.nic_gbps, reference.machine.nic_gbps) &&
                  (!machine.nccl || machine.machine.net_latency_us == 0);
  for (const auto& [key, points] : data.points) {
    const auto& [kind, ranks, nodes] = key;
    Table table{.place = {ranks, nodes, ranks / nodes}, .kind = kind, .log_wire = {}, .log_ratio = {}, .bytes = {}};
    for (const Point& p : points) {
      const auto bytes = static_cast<double>(p.bytes);
      table.bytes.push_back(bytes);
      table.log_wire.push_back(std::log(bytes * wire_factor(kind, ranks)));
      table.log_ratio.push_back(std::log(p.time_us / reference.collective(kind, table.place, bytes).time_us));
    }
    tables_.push_back(std::move(table));
  }
}

// Alike is, in this order: measured near this size; on one node or on several; the kind; the algorithm that the library
// takes there; the shape of the group. For a group over several nodes where only one node was measured, the largest
// group is the most alike: two or four devices miss the model by what a pair of them reaches over NVLink, which is not
// what NICs wait for.
const Corrections::Table* Corrections::most_alike(CollectiveKind kind, const nccl::Placement& place, double log_wire,
                                                  Algorithm algorithm) const {
  constexpr double kOtherAlgorithm = 2;  // as groups of which one is four times the other; a judgement
  const Table* found = nullptr;
  double least = 0;
  for (const Table& t : tables_) {
    if ((t.kind == CollectiveKind::all_to_all) != (kind == CollectiveKind::all_to_all)) continue;
    const bool other_span = (t.place.nodes > 1) != (place.nodes > 1);
    const bool out_of_range =
        log_wire < t.log_wire.front() - std::log(4) || log_wire > t.log_wire.back() + std::log(64);
    const double shape = t.place.nodes == 1 && place.nodes > 1
                             ? -std::log2(static_cast<double>(t.place.ranks))
                             : std::abs(std::log2(static_cast<double>(t.place.per_node) / place.per_node)) +
                                   0.5 * std::abs(std::log2(static_cast<double>(t.place.nodes) / place.nodes));
    const double size = std::exp(log_wire) / wire_factor(t.kind, t.place.ranks);
    const bool same_way = reference_.collective(t.kind, t.place, size).algorithm == algorithm;
    const double distance = (other_span ? 12 : 0) + (out_of_range ? 16 : 0) + kind_distance(t.kind, kind) +
                            (same_way ? 0 : kOtherAlgorithm) + shape;
    if (found == nullptr || distance < least) {
      found = &t;
      least = distance;
    }
  }
  return found;
}

double Corrections::ratio(const Table& table, double log_wire) {
  const auto& x = table.log_wire;
  const auto& y = table.log_ratio;
  const auto above = std::lower_bound(x.begin(), x.end(), log_wire);
  if (above == x.begin() || above == x.end()) return std::exp(above == x.begin() ? y.front() : y.back());
  const auto i = static_cast<std::size_t>(above - x.begin());
  return std::exp(std::lerp(y[i - 1], y[i], (log_wire - x[i - 1]) / (x[i] - x[i - 1])));
}

Corrections::Answer Corrections::at(CollectiveKind kind, const nccl::Placement& place, double bytes,
                                    std::optional<Algorithm> algorithm) const {
  if (tables_.empty()) return {};
  const double log_wire = std::log(bytes * wire_factor(kind, place.ranks));
  if (!algorithm) algorithm = reference_.collective(kind, place, bytes).algorithm;
  const Table* table = most_alike(kind, place, log_wire, *algorithm);
  if (table == nullptr) return {};
  Answer answer{.ratio = ratio(*table, log_wire), .coverage = Coverage::extrapolated};
  const bool measured = table->kind == kind && place.uniform && table->place.ranks == place.ranks &&
                        table->place.nodes == place.nodes && same_node_ && (place.nodes == 1 || same_network_);
  if (measured && bytes >= table->bytes.front() && bytes <= table->bytes.back())
    answer.coverage =
        std::binary_search(table->bytes.begin(), table->bytes.end(), bytes) ? Coverage::exact : Coverage::interpolated;
  return answer;
}

Interval Corrections::bounds(CollectiveKind kind, const nccl::Placement& place, double bytes,
                             const Prior& machine) const {
  const Table *below = nullptr, *above = nullptr;
  for (const Table& t : tables_) {
    if (t.kind != kind) continue;
    if (place.uniform && t.place.ranks == place.ranks && t.place.nodes == place.nodes) return {0, INFINITY};
    const bool within = t.place.nodes <= place.nodes && t.place.per_node <= place.per_node;
    const bool around =
        t.place.nodes >= place.nodes && t.place.per_node >= place.per_node && (t.place.nodes > 1) == (place.nodes > 1);
    if (within && (below == nullptr || t.place.ranks > below->place.ranks)) below = &t;
    if (around && (above == nullptr || t.place.ranks < above->place.ranks)) above = &t;
  }
  const auto us = [&](const Table& t) {
    return machine.collective(kind, t.place, bytes).time_us *
           ratio(t, std::log(bytes * wire_factor(kind, t.place.ranks)));
  };
  if (below == nullptr) return {0, INFINITY};
  const double least = us(*below);
  if (above == nullptr) return {least, INFINITY};
  const double most = us(*above);
  return {std::min(least, most), std::max(least, most)};
}

}  // namespace rehearse::collective
