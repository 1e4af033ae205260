// Reads the rows, groups them into systems, fits every other size of each group of ranks, and predicts the rest.
#include "cli/validate_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "reports/text.h"
#include "sim/base/collective_words.h"
#include "sim/base/csv.h"
#include "sim/base/diagnostics.h"
#include "sim/base/quantile.h"
#include "sim/collective/fit.h"
#include "sim/collective/wire.h"

namespace rehearse::cli {
namespace {

using collective::FittedSystem;
using collective::Observation;
using program::CollectiveKind;

constexpr double kLowestFitted = 1024, kLarge = 64 << 20;
constexpr double kShortestUs = 1e-3, kLongestUs = 3.6e9;  // us; an hour
constexpr std::size_t kFewestSizes = 6, kMissesShown = 8;

struct Row {
  Observation seen;
  std::string system, reason;  // not empty: not used
  bool fitted = false;
  std::optional<FittedSystem::Prediction> predicted;
};

std::optional<CollectiveKind> kind_in(std::string_view name) {
  if (name == "alltoall") return CollectiveKind::all_to_all;
  const auto found = std::find(kCollectiveKindWords.begin(), kCollectiveKindWords.end(), name);
  if (found == kCollectiveKindWords.end()) return std::nullopt;
  return static_cast<CollectiveKind>(found - kCollectiveKindWords.begin());
}

// An empty field is 0; anything else that is no number from `least` on is a problem.
double number_in(const CsvRow& row, const char* column, double least) {
  const std::string_view text = row.text(column);
  if (text.empty()) return 0;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && value >= least) return value;
  row.error(column, fmt::format("expected a number from {} on, found '{}'", least, text));
  return 0;
}

// us, from the columns that are there; algbw = bytes / time, busbw = algbw times the wire factor (nccl-tests).
double time_of(double time_us, double algbw, double busbw, const Observation& seen) {
  if (time_us > 0) return time_us;
  if (algbw > 0) return seen.bytes / (1e3 * algbw);
  return busbw > 0 ? seen.bytes * collective::wire_factor(seen.kind, seen.place.ranks) / (1e3 * busbw) : 0;
}

Row read_row(const CsvRow& f) {
  Row row;
  const double ranks = number_in(f, "gpus", 1), per_node = number_in(f, "gpus_per_node", 1);
  row.seen.bytes = number_in(f, "bytes", 0);
  row.seen.place.ranks = static_cast<int>(std::min(ranks, 1e6));
  row.seen.place.per_node = static_cast<int>(std::min(ranks, std::max(1.0, per_node)));
  row.seen.place.nodes = row.seen.place.per_node > 0 ? row.seen.place.ranks / row.seen.place.per_node : 1;
  row.system = fmt::format("{}, {}, {}, {}", f.text("source"), f.text("gpu"),
                           row.seen.place.nodes > 1 ? "several nodes" : "one node", f.text("interconnect"));
  const std::optional<CollectiveKind> kind = kind_in(f.text("collective"));
  const double time = number_in(f, "time_us", 0), algbw = number_in(f, "algbw_gbps", 0),
               busbw = number_in(f, "busbw_gbps", 0);
  if (!kind) {
    row.reason = fmt::format("'{}' is no collective that is modelled", f.text("collective"));
  } else if (row.seen.place.ranks < 2) {
    row.reason = "one rank: a local copy";
  } else {
    row.seen.kind = *kind;
    row.seen.time_us = time_of(time, algbw, busbw, row.seen);
    if (row.seen.time_us > 0 && (row.seen.time_us < kShortestUs || row.seen.time_us > kLongestUs))
      f.error("time_us",
              fmt::format("{:g} us is no time of a collective, expected {:g} to {:g}", row.seen.time_us, kShortestUs,
                          kLongestUs),
              "the row's time_us, or its bytes over its bandwidth");
    if (!(row.seen.time_us > 0)) row.reason = "no time and no bandwidth";
    if (!(row.seen.bytes > 0)) row.reason = "no bytes";
  }
  return row;
}

// What NCCL's model asks of a machine. GB/s a GPU, one direction, of NVLink as NCCL's graph search has them
// (src/graph/topo.h, v2.28.9: a link's times links), and a NIC a GPU of 200 Gb/s beside A100 and 400 Gb/s beside later
// ones. A GPU that is not named counts as older: NVLink of V100, 100 Gb/s.
collective::nccl::Machine machine_of(std::string_view gpu) {
  using collective::nccl::Generation;
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* n) { return gpu.find(n) != std::string_view::npos; });
  };
  collective::nccl::Machine machine{.nvlink_gbps = 120, .nic_gbps = 12};
  if (is({"A100", "A800"})) machine.nvlink_gbps = 240, machine.nic_gbps = 24;
  if (is({"H100", "H200", "H800"}))
    machine.generation = Generation::hopper, machine.nvlink_gbps = 370.8, machine.nic_gbps = 48;
  if (is({"B200", "B300"}))
    machine.generation = Generation::blackwell, machine.nvlink_gbps = 721.8, machine.nic_gbps = 48;
  return machine;
}

// A system's rows in order of (collective, ranks, size): every other size of each is fitted from kLowestFitted on, the
// first included.
void fit_system(std::vector<Row*> rows, const collective::nccl::Machine& machine,
                std::vector<std::pair<std::string, FittedSystem>>& systems) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row* a, const Row* b) {
    return std::tuple(a->seen.kind, a->seen.place.ranks, a->seen.bytes) <
           std::tuple(b->seen.kind, b->seen.place.ranks, b->seen.bytes);
  });
  std::vector<Observation> fitted;
  for (std::size_t first = 0, last = 0; first < rows.size(); first = last) {
    std::set<double> sizes;
    for (; last < rows.size() && rows[last]->seen.kind == rows[first]->seen.kind &&
           rows[last]->seen.place.ranks == rows[first]->seen.place.ranks;
         ++last) {
      if (rows[last]->seen.bytes < kLowestFitted) continue;
      sizes.insert(rows[last]->seen.bytes);
      rows[last]->fitted = sizes.size() % 2 == 1;
    }
    for (std::size_t i = first; i < last; ++i) {
      if (sizes.size() < kFewestSizes)
        rows[i]->reason = fmt::format("{} size(s), fewer than {}: nothing to fit on", sizes.size(), kFewestSizes);
      else if (rows[i]->fitted)
        fitted.push_back(rows[i]->seen);
    }
  }
  if (fitted.empty()) return;
  const FittedSystem& system = systems.emplace_back(rows.front()->system, FittedSystem(fitted, machine)).second;
  for (Row* row : rows) {
    if (!row->reason.empty()) continue;
    if (row->fitted)
      row->reason = "its size is fitted";
    else
      row->predicted = system.predict(row->seen.kind, row->seen.place, row->seen.bytes);
  }
}

struct Errors {
  std::vector<double> all, large;
  double worst = 0;
  void add(const reports::LedgerRow& row, double bytes) {
    all.push_back(std::abs(row.error));
    if (bytes >= kLarge) large.push_back(std::abs(row.error));
    if (std::abs(row.error) > std::abs(worst)) worst = row.error;
  }
  std::vector<std::string> cells(const std::string& name) const {
    return {reports::clip(name, 46), fmt::format("{}", all.size()),
            fmt::format("{:.1f}%", all.empty() ? 0 : median(all) * 100),
            large.empty() ? "-" : fmt::format("{:.1f}%", median(large) * 100), fmt::format("{:+.0f}%", worst * 100)};
  }
};

std::string table_of(const std::vector<Row>& rows, const std::vector<reports::LedgerRow>& ledger,
                     const std::vector<std::pair<std::string, FittedSystem>>& systems) {
  std::map<std::string, Errors> by_system;
  Errors all;
  std::map<std::string, int> reasons;
  std::vector<std::size_t> used;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].predicted) {
      ++reasons[rows[i].reason];
      continue;
    }
    used.push_back(i);
    by_system[rows[i].system].add(ledger[i], rows[i].seen.bytes);
    all.add(ledger[i], rows[i].seen.bytes);
  }
  std::vector<std::vector<std::string>> cells = {{"system", "tested", "median", "from 64 MiB", "worst"}};
  for (const auto& [name, errors] : by_system) cells.push_back(errors.cells(name));
  cells.push_back(all.cells("all"));
  std::string out = reports::align(cells);
  std::stable_sort(used.begin(), used.end(),
                   [&](std::size_t a, std::size_t b) { return std::abs(ledger[a].error) > std::abs(ledger[b].error); });
  used.resize(std::min(used.size(), kMissesShown));
  cells = {{"largest misses", "ranks", "bytes", "measured us", "predicted us", "error"}};
  for (const std::size_t i : used)
    cells.push_back({reports::clip(ledger[i].id, 24), fmt::format("{}", rows[i].seen.place.ranks),
                     fmt::format("{:.0f}", rows[i].seen.bytes), reports::compact(ledger[i].measured),
                     reports::compact(ledger[i].predicted), fmt::format("{:+.0f}%", ledger[i].error * 100)});
  if (!used.empty()) out += "\n" + reports::align(cells);
  for (const auto& [reason, count] : reasons) out += reports::wrap(fmt::format("not used, {}: {}", count, reason));
  std::size_t constants = 0;
  for (const auto& [name, system] : systems) {
    constants += system.copy_us_per_byte() > 0 ? 1 : 0;
    for (const auto& [choice, c] : system.constants()) constants += c.hops_show ? 3 : 2;
  }
  out += reports::wrap(
      fmt::format("{} constants of {} systems, fitted on every other size from 1 KiB on: for each algorithm and "
                  "protocol the least latency, what more hops add to it, and a bandwidth; a copy where several "
                  "numbers of ranks show it.",
                  constants, systems.size()));
  return out;
}

}  // namespace

CollectiveLedger collective_ledger(const std::string& file, const std::string& text, const std::string& filter) {
  Diagnostics problems;
  CsvTable table(file, text,
                 {{"id", "source", "collective", "gpu", "gpus", "gpus_per_node", "interconnect", "bytes", "time_us",
                   "algbw_gbps", "busbw_gbps"},
                  true},
                 problems);
  std::vector<Row> rows;
  CollectiveLedger ledger;
  std::map<std::string, collective::nccl::Machine> machines;
  while (const CsvRow* line = table.next()) {
    const CsvRow& f = *line;
    Row row = read_row(f);
    if (f.text("id").find(filter) == std::string_view::npos && row.system.find(filter) == std::string::npos) continue;
    machines[row.system] = machine_of(f.text("gpu"));
    reports::LedgerRow entry;
    entry.id = f.text("id"), entry.metric = "time_us", entry.unit = "us";
    entry.scenario = fmt::format("{} {}", f.text("collective"), row.system);
    entry.source = f.text("source");
    entry.measured = row.seen.time_us;
    ledger.rows.push_back(std::move(entry));
    rows.push_back(std::move(row));
  }
  problems.throw_if_any();
  std::map<std::string, std::vector<Row*>> by_system;
  for (Row& row : rows)
    if (row.reason.empty()) by_system[row.system].push_back(&row);
  std::vector<std::pair<std::string, FittedSystem>> systems;
  for (auto& [name, members] : by_system) fit_system(members, machines[name], systems);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    reports::LedgerRow& entry = ledger.rows[i];
    entry.reason = rows[i].reason;
    if (!rows[i].predicted) continue;
    entry.used = true;
    entry.predicted = rows[i].predicted->time_us;
    entry.low = rows[i].predicted->low, entry.high = rows[i].predicted->high;
    entry.error = entry.predicted / entry.measured - 1;
    entry.coverage[1] = 1;  // interpolated: its neighbours in size are fitted
  }
  ledger.table = table_of(rows, ledger.rows, systems);
  return ledger;
}

}  // namespace rehearse::cli
