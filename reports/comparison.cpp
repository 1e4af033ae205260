// The table of several plans. Rates are of a steady step; days and GPU-hours follow from the tokens a second alone.
#include <fmt/format.h>

#include <algorithm>

#include "reports/batch.h"
#include "reports/limits.h"
#include "reports/reinforcement.h"
#include "reports/tables.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

using result::Result;

constexpr std::size_t kLabelWidth = 16;

std::vector<std::string> labels(const std::vector<Result>& results) {
  std::vector<std::string> names;
  for (const Result& r : results)
    names.push_back(r.scenario_file.empty() ? r.scenario_name : file_stem(r.scenario_file));
  return without_common_words(std::move(names));
}

std::string short_fixed(double value) {
  return value >= 1000 ? compact(value) : fmt::format("{:.1f}", value);
}

struct PlanColumn {
  std::string_view top, bottom;
  std::size_t width;
};
constexpr PlanColumn kColumns[] = {{"step", "", 10},  {"tokens/s", "a GPU", 8}, {"MFU", "", 7},  {"peak", "memory", 9},
                                   {"bubble", "", 7}, {"exposed", "comm.", 8},  {"days", "", 7}, {"GPU-", "hours", 8}};

std::string headings() {
  std::string top = left("", kLabelWidth), bottom = left("plan", kLabelWidth);
  for (const PlanColumn& c : kColumns) {
    const bool one_line = c.bottom.empty();
    top += right(one_line ? "" : c.top, c.width);
    bottom += right(one_line ? c.top : c.bottom, c.width);
  }
  return top + '\n' + bottom + '\n';
}

std::string row(const std::string& label, const Result& r, double tokens) {
  const Bytes peak(fullest(r).bytes);
  std::string out = left(clip(label, kLabelWidth - 1), kLabelWidth);
  if (!r.memory_fits)
    return out + fmt::format("  does not fit: needs {} of {} a GPU{}", format_bytes(peak),
                             format_bytes(usable_memory(r)), headroom_words(r));
  const double days = r.tokens_per_s > 0 ? tokens / r.tokens_per_s / 86400 : 0;
  const std::string cells[] = {format_time(Time::from_ps(r.step_time_ps)),
                               short_fixed(r.tokens_per_s_per_gpu),
                               percent(result::mfu(r)),
                               format_bytes(peak),
                               r.late_ranks_known ? percent(share_of(r, result::Share::bubble)) : "?",
                               percent(exposed_communication(r)),
                               short_fixed(days),
                               compact(result::gpu_hours(r, tokens))};
  for (std::size_t c = 0; c < std::size(cells); ++c) out += right(cells[c], kColumns[c].width);
  return out;
}

}  // namespace

std::string comparison(const std::vector<Result>& results, double tokens) {
  const std::vector<std::string> names = labels(results);
  std::string out = headings();
  for (std::size_t i = 0; i < results.size(); ++i) out += clip(row(names[i], results[i], tokens), kWidth) + '\n';
  out += fmt::format("days and GPU-hours: for {} billion tokens\n\n", compact(tokens / 1e9));
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Result& r = results[i];
    out += wrap(names[i] + (r.scenario_name.empty() ? "" : ": " + r.scenario_name));
    out += wrap(r.limited_by.empty() ? limited_by(r) : r.limited_by, 2);
    if (const std::string batch = batch_text(r); !batch.empty()) out += wrap("batch: " + batch, 2);
    for (const result::Note& note : r.notes) out += wrap("Note: " + note.text, 2);
  }
  return out;
}

}  // namespace rehearse::reports
