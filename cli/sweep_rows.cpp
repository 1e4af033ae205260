// See sweep_rows.h.
#include "cli/sweep_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/limits.h"
#include "reports/text.h"
#include "sim/base/units.h"
#include "sim/result/csv_field.h"

namespace rehearse::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStatus[] = {"fits", "does not fit", "infeasible"};

// The largest loss in a word if it is large, else the kernels.
std::string limit_of(const result::Result& r) {
  if (!r.memory_fits) return "memory";
  std::size_t most = 0;
  for (std::size_t i = 1; i < result::kShares; ++i)
    if (most == 0 || r.breakdown_ps[i] > r.breakdown_ps[most]) most = i;
  if (reports::share_of(r, static_cast<result::Share>(most)) < reports::kLargeLoss) return "compute";
  std::string word(result::kShareNames[most]);
  if (word.starts_with("exposed_")) word.erase(0, 8);
  return word;
}

std::string reason(const SweepRow& row) {
  std::string text;
  for (const Diagnostic& d : row.problems)
    text += (text.empty() ? "" : "; ") + (d.path.empty() ? "" : d.path + ": ") + d.message;
  return text;
}

// For the table; the other formats have all reasons.
std::string first_reason(const SweepRow& row) {
  const std::size_t others = row.problems.size() - 1;
  return row.problems.front().message + (others == 0 ? "" : fmt::format(" (and {} more)", others));
}

// The last parts of the keys, where they differ.
std::vector<std::string> headings(const std::vector<SweepAxis>& axes) {
  std::vector<std::string> names;
  for (const SweepAxis& axis : axes) names.push_back(axis.key.substr(axis.key.rfind('.') + 1));
  for (std::size_t a = 0; a < axes.size(); ++a)
    if (std::count(names.begin(), names.end(), names[a]) > 1) names[a] = axes[a].key;
  return names;
}

std::string number(double value) {
  return fmt::format("{:.6g}", value);
}

std::string seconds(std::int64_t ps) {
  return fmt::format("{}.{:012}", ps / 1'000'000'000'000, ps % 1'000'000'000'000);
}

}  // namespace

void fill(SweepRow& row, const result::Result& r) {
  row.status = r.memory_fits ? SweepStatus::fits : SweepStatus::does_not_fit;
  row.step_time_ps = r.step_time_ps;
  const result::StageMemory* worst = reports::largest_stage(r);
  row.peak_bytes = worst == nullptr ? 0 : worst->peak;
  row.memory_bytes = r.memory_capacity;
  row.mfu = result::mfu(r);
  row.tokens_per_s = r.tokens_per_s;
  row.bubble = reports::share_of(r, result::Share::bubble);
  row.exposed = reports::exposed_communication(r);
  row.low_s = r.interval_low_s;
  row.high_s = r.interval_high_s;
  row.limit = limit_of(r);
  row.limited_by = r.limited_by;
}

std::string sweep_table(const std::vector<SweepAxis>& axes, const std::vector<SweepRow>& rows) {
  std::vector<std::vector<std::string>> cells(1, headings(axes));
  for (const char* name : {"step", "MFU", "peak", "fits", "bubble", "comm.", "limited by"}) cells[0].emplace_back(name);
  std::string reasons;
  bool some_do_not_fit = false;
  for (const SweepRow& row : rows) {
    cells.push_back(row.values);
    if (row.status == SweepStatus::infeasible) {
      cells.back().insert(cells.back().end(), {"-", "", "", "", "", "", "cannot be"});
      std::string which;
      for (const std::string& value : row.values) which += (which.empty() ? "" : ", ") + value;
      reasons += reports::wrap(which + ": " + first_reason(row), 2);
      continue;
    }
    const bool fits = row.status == SweepStatus::fits;
    some_do_not_fit = some_do_not_fit || !fits;
    cells.back().insert(cells.back().end(), {format_time(Time::from_ps(row.step_time_ps)), reports::percent(row.mfu),
                                             format_bytes(Bytes(row.peak_bytes)), fits ? "yes" : "no",
                                             reports::percent(row.bubble), reports::percent(row.exposed), row.limit});
  }
  std::string out = reports::align(cells);
  if (some_do_not_fit) out += "\nStep and shares of a plan that does not fit are as if it fitted.\n";
  if (!reasons.empty()) out += "\nCannot be\n" + reasons;
  return out;
}

std::string sweep_csv(const std::vector<SweepAxis>& axes, const std::vector<SweepRow>& rows) {
  std::string out;
  for (const SweepAxis& axis : axes) out += result::csv_field(axis.key) + ",";
  out +=
      "status,step_time_s,step_time_low_s,step_time_high_s,tokens_per_s,mfu,peak_bytes,memory_bytes,bubble,"
      "exposed_communication,limited_by,reason,directory\n";
  for (const SweepRow& row : rows) {
    for (const std::string& value : row.values) out += result::csv_field(value) + ",";
    out += kStatus[static_cast<std::size_t>(row.status)];
    if (row.status == SweepStatus::infeasible) {
      out += ",,,,,,,,,,,";
    } else {
      out += fmt::format(",{},{},{},{},{},{},{},{},{},{},", seconds(row.step_time_ps), number(row.low_s),
                         number(row.high_s), number(row.tokens_per_s), number(row.mfu), row.peak_bytes,
                         row.memory_bytes, number(row.bubble), number(row.exposed), result::csv_field(row.limited_by));
    }
    out += result::csv_field(reason(row)) + "," + result::csv_field(row.directory) + "\n";
  }
  return out;
}

std::string sweep_json(const std::vector<SweepAxis>& axes, const std::vector<SweepRow>& rows) {
  Json all = Json::array();
  for (const SweepRow& row : rows) {
    Json j;
    for (std::size_t a = 0; a < axes.size(); ++a) j["set"][axes[a].key] = row.values[a];
    j["status"] = kStatus[static_cast<std::size_t>(row.status)];
    if (row.status == SweepStatus::infeasible) {
      j["reason"] = reason(row);
    } else {
      j["step_time_s"] = static_cast<double>(row.step_time_ps) / 1e12;
      j["step_time_interval_s"] = {row.low_s, row.high_s};
      j["tokens_per_s"] = row.tokens_per_s;
      j["mfu"] = row.mfu;
      j["peak_bytes"] = row.peak_bytes;
      j["memory_bytes"] = row.memory_bytes;
      j["fits"] = row.status == SweepStatus::fits;
      j["bubble"] = row.bubble;
      j["exposed_communication"] = row.exposed;
      j["limited_by"] = row.limited_by;
    }
    if (!row.directory.empty()) j["directory"] = row.directory;
    all.push_back(std::move(j));
  }
  return all.dump(2) + '\n';
}

}  // namespace rehearse::cli
