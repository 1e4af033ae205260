// See miniature.h.
#include "reports/miniature.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

using MiniatureJson = nlohmann::ordered_json;

double carried_share_of(std::int64_t ps, std::int64_t step) {
  return step > 0 ? static_cast<double>(ps) / static_cast<double>(step) : 0;
}

double carried_seconds(std::int64_t ps) {
  return static_cast<double>(ps) * 1e-12;
}

std::string carried_time(double seconds) {
  return format_time(Time::from_seconds(seconds));
}

CarriedLine& line_called(std::vector<CarriedLine>& lines, const std::string& name) {
  const auto found = std::find_if(lines.begin(), lines.end(), [&](const CarriedLine& l) { return l.line == name; });
  if (found != lines.end()) return *found;
  lines.push_back({});
  lines.back().line = name;
  return lines.back();
}

std::string carried_table(const Carried& c) {
  std::vector<std::vector<std::string>> rows = {{"", "simulated here", "measured", "factor", "there", "corrected"}};
  for (const CarriedLine& line : c.lines) {
    const double there = carried_seconds(line.large_ps);
    rows.push_back({spaced(line.line), format_time(Time::from_ps(line.simulated_ps)),
                    format_time(Time::from_ps(line.measured_ps)),
                    line.carried ? fmt::format("{:.2f}", line.factor) : std::string("-"),
                    format_time(Time::from_ps(line.large_ps)), carried_time(there * line.factor)});
  }
  return align(rows);
}

}  // namespace

std::string shrunk_table(const std::vector<ShrunkRow>& rows) {
  std::vector<std::vector<std::string>> cells = {{"", "large", "miniature", ""}};
  std::string why;
  for (const ShrunkRow& row : rows) {
    cells.push_back({row.what, clip(row.large, 22), clip(row.small, 22), row.fate});
    if (!row.why.empty()) why += wrap(fmt::format("{}: {}.", row.what, row.why));
  }
  return align(cells) + why;
}

Carried carry_back(const Difference& miniature, const result::StoredResult& large) {
  Carried c;
  const std::int64_t simulated = miniature.results[kFirst]->result.step_time_ps;
  const std::int64_t measured = miniature.results[kSecond]->result.step_time_ps;
  c.drift = miniature.drift > 0 ? miniature.drift : 1;
  c.large_step_ps = large.result.step_time_ps;
  c.model_low_s = large.result.interval_low_s, c.model_high_s = large.result.interval_high_s;
  for (const AccountLine& line : miniature.account) {
    CarriedLine& own = line_called(c.lines, line.line);
    own.simulated_ps += line.ps[kFirst];
    own.measured_ps += line.ps[kSecond];
  }
  for (const AccountPart& part : step_account(large).parts) line_called(c.lines, part.line).large_ps += part.ps;
  for (CarriedLine& line : c.lines) {
    line.carried = line.line != kNotRecorded && carried_share_of(line.simulated_ps, simulated) >= kLeastCarried &&
                   carried_share_of(line.measured_ps, measured) >= kLeastCarried;
    if (line.carried) line.factor = static_cast<double>(line.measured_ps) / static_cast<double>(line.simulated_ps);
    const double there = carried_seconds(line.large_ps), corrected = there * line.factor;
    const double at_one_pace = line.carried ? corrected / c.drift : there;
    c.corrected_s += corrected;
    c.low_s += std::min({there, corrected, at_one_pace});
    c.high_s += std::max({there, corrected, at_one_pace});
    if (line.carried) c.carried_share += carried_share_of(line.large_ps, c.large_step_ps);
  }
  return c;
}

std::string carried_text(const Carried& c) {
  std::string out = "Carried back: the miniature's measured over simulated times, on the large plan's\n\n";
  out += carried_table(c) + '\n';
  out += labelled(
      {{"Step, simulated",
        fmt::format("{}; the model's own interval is {} to {}", carried_time(carried_seconds(c.large_step_ps)),
                    carried_time(c.model_low_s), carried_time(c.model_high_s))},
       {"Step, carried", fmt::format("{} to {}; {} with every factor. {} of the step has one", carried_time(c.low_s),
                                     carried_time(c.high_s), carried_time(c.corrected_s), percent(c.carried_share))}});
  out += wrap(
      "The factors are of this machine's kernels and transfers at the miniature's sizes. Carried, they say what the "
      "large step would be if the simulation erred there as it did here: a check of order, overlap and waits, not a "
      "measurement of the large cluster's kernels." +
      std::string(c.drift == 1 ? ""
                               : fmt::format(" This machine was {:.2f} times as slow as while it was "
                                             "calibrated; the interval holds the factors with that and without.",
                                             c.drift)));
  return out;
}

std::string miniature_json(const std::vector<ShrunkRow>& rows, const Difference& miniature, const Carried& c) {
  MiniatureJson j;
  j["schema"] = "rehearse.miniature/1";
  for (const ShrunkRow& row : rows)
    j["kept_and_reduced"].push_back(
        {{"what", row.what}, {"large", row.large}, {"miniature", row.small}, {"fate", row.fate}, {"why", row.why}});
  j["miniature"] = {{"simulated_s", carried_seconds(miniature.results[kFirst]->result.step_time_ps)},
                    {"measured_s", carried_seconds(miniature.results[kSecond]->result.step_time_ps)},
                    {"ops_compared", miniature.matched},
                    {"same_program", miniature.same_program()},
                    {"drift", c.drift}};
  MiniatureJson& carried = j["carried"];
  carried = {{"step_simulated_s", carried_seconds(c.large_step_ps)},
             {"model_interval_s", {c.model_low_s, c.model_high_s}},
             {"step_corrected_s", c.corrected_s},
             {"interval_s", {c.low_s, c.high_s}},
             {"share_with_a_factor", c.carried_share}};
  for (const CarriedLine& line : c.lines) {
    MiniatureJson l = {{"line", line.line},
                       {"simulated_here_s", carried_seconds(line.simulated_ps)},
                       {"measured_here_s", carried_seconds(line.measured_ps)},
                       {"factor", nullptr},
                       {"simulated_there_s", carried_seconds(line.large_ps)}};
    if (line.carried) l["factor"] = line.factor;
    carried["lines"].push_back(std::move(l));
  }
  return j.dump(2, ' ', false, MiniatureJson::error_handler_t::replace) + '\n';
}

}  // namespace rehearse::reports
