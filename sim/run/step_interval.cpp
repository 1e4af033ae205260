// See step_interval.h.
#include "sim/run/step_interval.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "sim/base/csv.h"
#include "sim/base/csv_field.h"
#include "sim/base/diagnostics.h"
#include "sim/base/document.h"

namespace rehearse::run {
namespace {

constexpr const char *kTable = "calibrate/published/step-intervals.csv",
                     *kColumns = "of,name,low,high,kernels_low,kernels_high,runs";

using Intervals = std::map<std::pair<std::string, std::string>, StepInterval>;  // by (of, name)

Intervals read_intervals(const std::string& file) {
  Intervals intervals;
  if (!std::filesystem::exists(file)) return intervals;
  const std::string text = read_text_file(file);
  CsvReader reader(file, text);
  reader.next();  // kColumns
  while (reader.next()) {
    const auto number = [&](std::size_t field) {
      try {
        return std::stod(std::string(csv_text(reader[field])));
      } catch (const std::exception&) {
        throw InputError(Diagnostic{file, reader.line(), 1, "", std::string("expected ") + kColumns, ""});
      }
    };
    if (reader.size() != 7) throw InputError(Diagnostic{file, reader.line(), 1, "", "expected 7 fields", ""});
    intervals[{std::string(csv_text(reader[0])), std::string(csv_text(reader[1]))}] = {number(2), number(3), number(4),
                                                                                       number(5)};
  }
  return intervals;
}

// Read once a process.
const Intervals& intervals_of(const std::string& data_root) {
  static std::mutex mutex;
  static std::map<std::string, Intervals> known;
  const std::lock_guard lock(mutex);
  auto found = known.find(data_root);
  if (found == known.end())
    found = known.emplace(data_root, read_intervals((std::filesystem::path(data_root) / kTable).string())).first;
  return found->second;
}

}  // namespace

StepInterval with_kernels(const StepInterval& learned, double kernels_low, double kernels_high) {
  // Half an interval in logarithms, by factors that are all on the same side of 1.
  const auto width = [](double own, double kernels, double known) {
    const double more = std::log(kernels) * std::log(kernels) - std::log(known) * std::log(known);
    return std::hypot(std::log(own), std::sqrt(std::max(0.0, more)));
  };
  return {std::exp(-width(learned.low, std::min(1.0, kernels_low), learned.kernels_low)),
          std::exp(width(learned.high, std::max(1.0, kernels_high), learned.kernels_high)), kernels_low, kernels_high};
}

StepInterval step_interval(const std::string& framework, const std::string& left_out, const std::string& data_root) {
  const Intervals& intervals = intervals_of(data_root);
  using Key = Intervals::key_type;
  for (const Key& key : {Key{"without source", left_out}, Key{"framework", framework}, Key{"framework", "others"}})
    if (const auto found = intervals.find(key); found != intervals.end()) return found->second;
  return kUnknown;
}

}  // namespace rehearse::run
