// See sweep_rows.h: what is kept of a plan, scaling, CSV and JSON.
#include "reports/sweep_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/limits.h"
#include "reports/reinforcement.h"
#include "sim/base/csv_field.h"

namespace rehearse::reports {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStatus[] = {"fits", "does not fit", "infeasible"};

// The longest phase of several; else the largest loss in a word if it is large, else the kernels.
std::string limit_of(const result::Result& r) {
  if (!r.memory_fits) return "memory";
  if (const auto* phase = longest(r); phase != nullptr) return phase->name;
  std::size_t most = 0;
  for (std::size_t i = 1; i < result::kShares; ++i)
    if (most == 0 || r.breakdown_ps[i] > r.breakdown_ps[most]) most = i;
  if (share_of(r, static_cast<result::Share>(most)) < kLargeLoss) return "compute";
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

std::string notes(const SweepRow& row) {
  std::string text;
  for (const std::string& note : row.notes) text += (text.empty() ? "" : " ") + note;
  return text;
}

std::string number(double value) {
  return fmt::format("{:.6g}", value);
}

std::string seconds(std::int64_t ps) {
  return fmt::format("{}.{:012}", ps / 1'000'000'000'000, ps % 1'000'000'000'000);
}

// The row that the others' speeds are of; nullptr if none can be.
SweepRow* reference_of(std::vector<SweepRow>& rows) {
  const bool any_fits =
      std::any_of(rows.begin(), rows.end(), [](const auto& r) { return r.status == SweepStatus::fits; });
  SweepRow* reference = nullptr;
  for (SweepRow& row : rows) {
    if (row.status == SweepStatus::infeasible || (any_fits && row.status != SweepStatus::fits)) continue;
    if (reference == nullptr || row.gpus < reference->gpus) reference = &row;
  }
  return reference;
}

Scaling scaling_of(const SweepRow& row, const SweepRow& reference) {
  if (row.gpus == reference.gpus) return Scaling::none;
  if (row.batch.units() == reference.batch.units()) return Scaling::strong;
  // As fractions, so that no rounding decides.
  const bool alike = static_cast<long double>(row.batch.units()) * static_cast<long double>(reference.gpus) ==
                     static_cast<long double>(reference.batch.units()) * static_cast<long double>(row.gpus);
  return alike ? Scaling::weak : Scaling::mixed;
}

}  // namespace

void fill(SweepRow& row, const result::Result& r) {
  row.status = r.memory_fits ? SweepStatus::fits : SweepStatus::does_not_fit;
  row.step_time_ps = r.step_time_ps;
  row.peak_bytes = fullest(r).bytes;
  row.memory_bytes = r.memory_capacity;
  row.mfu = result::mfu(r);
  row.tokens_per_s = r.tokens_per_s;
  row.bubble = share_of(r, result::Share::bubble);
  row.exposed = exposed_communication(r);
  row.low_s = r.interval_low_s;
  row.high_s = r.interval_high_s;
  row.limit = limit_of(r);
  row.limited_by = r.limited_by;
  if (const auto named = r.scenario.find("framework"); named != r.scenario.end()) row.framework = named->second;
  row.framework_chosen = r.scenario.contains("framework.chosen");
  row.gpus = result::paid_devices(r);
  row.batch = batch_of(r);
  for (const result::Note& note : r.notes) row.notes.push_back(note.text);
}

void set_scaling(std::vector<SweepRow>& rows) {
  SweepRow* reference = reference_of(rows);
  if (reference == nullptr) return;
  reference->reference = true;
  for (SweepRow& row : rows) {
    if (row.status == SweepStatus::infeasible) continue;
    row.scaling = scaling_of(row, *reference);
    row.speed_up = reference->tokens_per_s > 0 ? row.tokens_per_s / reference->tokens_per_s : 0;
    row.efficiency =
        row.gpus > 0 ? row.speed_up * static_cast<double>(reference->gpus) / static_cast<double>(row.gpus) : 0;
  }
}

std::string_view scaling_name(const SweepRow& row) {
  constexpr std::string_view names[] = {"none", "strong", "weak", "mixed"};
  return row.reference ? "reference" : names[static_cast<std::size_t>(row.scaling)];
}

std::string sweep_csv(const std::vector<SweepAxis>& axes, const std::vector<SweepRow>& rows) {
  std::string out;
  for (const SweepAxis& axis : axes) out += csv_field(axis.key) + ",";
  out +=
      "status,gpus,global_batch,tokens_per_step,step_time_s,step_time_low_s,step_time_high_s,tokens_per_s,mfu,scaling,"
      "speed_up,efficiency,peak_bytes,memory_bytes,bubble,exposed_communication,limited_by,framework,notes,reason,"
      "directory\n";
  for (const SweepRow& row : rows) {
    for (const std::string& value : row.values) out += csv_field(value) + ",";
    out += kStatus[static_cast<std::size_t>(row.status)];
    if (row.status == SweepStatus::infeasible) {
      out += std::string(19, ',');
    } else {
      out +=
          fmt::format(",{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},", row.gpus, row.batch.global(),
                      row.batch.units(), seconds(row.step_time_ps), number(row.low_s), number(row.high_s),
                      number(row.tokens_per_s), number(row.mfu), scaling_name(row), number(row.speed_up),
                      number(row.efficiency), row.peak_bytes, row.memory_bytes, number(row.bubble), number(row.exposed),
                      csv_field(row.limited_by), csv_field(row.framework), csv_field(notes(row)));
    }
    out += csv_field(reason(row)) + "," + csv_field(row.directory) + "\n";
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
      j["gpus"] = row.gpus;
      j["global_batch"] = row.batch.global();
      j["tokens_per_step"] = row.batch.units();
      j["step_time_s"] = static_cast<double>(row.step_time_ps) / 1e12;
      j["step_time_interval_s"] = {row.low_s, row.high_s};
      j["tokens_per_s"] = row.tokens_per_s;
      j["mfu"] = row.mfu;
      j["scaling"] = scaling_name(row);
      j["speed_up"] = row.speed_up;
      j["efficiency"] = row.efficiency;
      j["peak_bytes"] = row.peak_bytes;
      j["memory_bytes"] = row.memory_bytes;
      j["fits"] = row.status == SweepStatus::fits;
      j["bubble"] = row.bubble;
      j["exposed_communication"] = row.exposed;
      j["limited_by"] = row.limited_by;
      j["framework"] = row.framework;
      if (!row.notes.empty()) j["notes"] = row.notes;
    }
    if (!row.directory.empty()) j["directory"] = row.directory;
    all.push_back(std::move(j));
  }
  return all.dump(2) + '\n';
}

}  // namespace rehearse::reports
