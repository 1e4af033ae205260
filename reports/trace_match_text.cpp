// What trace_match.h found, for a terminal and for files.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "reports/text.h"
#include "reports/trace_match.h"
#include "sim/base/csv_field.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

using TraceJson = nlohmann::ordered_json;

std::string time_text(std::int64_t ps) {
  return format_time(Time::from_ps(ps));
}

double trace_seconds(std::int64_t ps) {
  return static_cast<double>(ps) * 1e-12;
}

std::string ratio(std::int64_t measured, std::int64_t simulated) {
  if (simulated <= 0 || measured <= 0) return "-";
  return fmt::format("{:.2f}", static_cast<double>(measured) / static_cast<double>(simulated));
}

std::string list_of(const char* heading, const std::vector<Unmatched>& list) {
  if (list.empty()) return fmt::format("{}: none.\n", heading);
  std::string out = fmt::format("{}\n", heading);
  for (const Unmatched& u : list) {
    out += fmt::format("  {} {}  {}\n", right(grouped(static_cast<double>(u.count)), 7), right(time_text(u.ps), 9),
                       clip(u.what, kWidth - 21));
    if (!u.why.empty()) out += wrap(u.why, 21);
  }
  return out;
}

TraceJson list_json(const std::vector<Unmatched>& list) {
  TraceJson out = TraceJson::array();
  for (const Unmatched& u : list) {
    TraceJson one = {{"what", u.what}, {"count", u.count}, {"seconds", trace_seconds(u.ps)}};
    if (!u.why.empty()) one["why"] = u.why;
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

std::string trace_match_text(const TraceMatch& m) {
  const result::Result& r = m.simulated->result;
  // What was performed is measured as well, and told apart by where it is from.
  const bool simulated = r.source == "simulated";
  const std::string here = simulated ? "simulated" : "directory", there = simulated ? "measured" : "trace";
  std::string out = wrap(fmt::format("{}, {}, rank {}, against {} of {}", r.scenario_name, r.source, m.rank,
                                     m.step.name.empty() ? "all kernels" : m.step.name, m.step.file));
  std::vector<std::pair<std::string, std::string>> rows = {{"Step, " + here, time_text(r.step_time_ps)}};
  if (m.step.duration_ps > 0)
    rows.emplace_back("Step, " + there,
                      fmt::format("{}, {} times {}", time_text(m.step.duration_ps),
                                  ratio(m.step.duration_ps, r.step_time_ps), simulated ? here : "the directory's"));
  std::int64_t ops = 0, matched = 0;
  for (const TraceClass& c : m.classes) ops += c.simulated, matched += c.matched;
  rows.emplace_back("Mapped", fmt::format("{} of {} calls of the trace, {} of {} ops", m.pairs.size(),
                                          m.step.calls.size(), matched, ops));
  out += labelled(rows) + '\n';
  std::vector<std::vector<std::string>> table = {{"", "ops", "calls", "mapped", here, there, "ratio", "of mapped"}};
  for (const TraceClass& c : m.classes)
    table.push_back({c.name, fmt::to_string(c.simulated), fmt::to_string(c.measured), fmt::to_string(c.matched),
                     time_text(c.simulated_ps), time_text(c.measured_ps), ratio(c.measured_ps, c.simulated_ps),
                     ratio(c.matched_measured_ps, c.matched_simulated_ps)});
  out += align(table) + '\n';
  out += list_of("Measured, and no op of the program", m.measured_alone) + '\n';
  return out + list_of("Ops of the program that the trace does not have", m.simulated_alone);
}

std::string trace_match_json(const TraceMatch& m) {
  TraceJson j;
  j["schema"] = "rehearse.trace_compare/1";
  j["simulated"] = {{"scenario", m.simulated->result.scenario_name},
                    {"source", m.simulated->result.source},
                    {"rank", m.rank},
                    {"step_time_s", trace_seconds(m.simulated->result.step_time_ps)}};
  j["measured"] = {{"file", m.step.file}, {"step", m.step.name}, {"step_time_s", nullptr}};
  if (m.step.duration_ps > 0) j["measured"]["step_time_s"] = trace_seconds(m.step.duration_ps);
  j["mapped"] = m.pairs.size();
  for (const TraceClass& c : m.classes)
    j["classes"].push_back({{"class", c.name},
                            {"ops", c.simulated},
                            {"calls", c.measured},
                            {"mapped", c.matched},
                            {"simulated_s", trace_seconds(c.simulated_ps)},
                            {"measured_s", trace_seconds(c.measured_ps)},
                            {"mapped_simulated_s", trace_seconds(c.matched_simulated_ps)},
                            {"mapped_measured_s", trace_seconds(c.matched_measured_ps)}});
  j["measured_alone"] = list_json(m.measured_alone);
  j["simulated_alone"] = list_json(m.simulated_alone);
  return j.dump(2, ' ', false, TraceJson::error_handler_t::replace) + '\n';
}

std::string trace_match_csv(const TraceMatch& m) {
  std::string out = "id,kind,shape,operator,kernel,stream,kernels,simulated_ps,measured_start_ps,measured_ps\n";
  std::vector<const TracePair*> of_call(m.step.calls.size());
  for (const TracePair& pair : m.pairs) of_call[pair.call] = &pair;
  for (std::size_t c = 0; c < m.step.calls.size(); ++c) {
    const MeasuredCall& call = m.step.calls[c];
    const TracePair* const pair = of_call[c];
    const std::string tail =
        fmt::format("{},{},{},{}", csv_field(call.op), csv_field(call.kernel), call.stream, call.kernels);
    if (pair == nullptr) {
      out += fmt::format(",{},{},{},,{},{}\n", csv_field(call.kind), csv_field(call.key), tail, call.start_ps,
                         call.duration_ps);
      continue;
    }
    const result::OpText& text = m.simulated->text_of(*pair->op);
    out += fmt::format("{},{},{},{},{},{},{}\n", csv_field(id_of(*m.simulated, *pair->op)), csv_field(text.kind),
                       csv_field(text.shape), tail, pair->further ? "" : fmt::to_string(pair->op->duration_ps),
                       call.start_ps, call.duration_ps);
  }
  return out;
}

}  // namespace rehearse::reports
