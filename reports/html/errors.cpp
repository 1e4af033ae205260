// See errors.h. Leaves out why they differ: rehearse compare goes into that.
#include "reports/html/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "reports/html/text.h"
#include "reports/op_class.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports::html {
namespace {

using result::OpText;
using result::StoredResult;

using Identity = std::tuple<std::int32_t, std::int32_t, std::string_view, std::string_view>;  // stage, slot, body, op

Identity identity(const StoredResult& run, const result::OpRow& op) {
  const OpText& text = run.text_of(op);
  return {text.stage, op.slot, text.body, text.op};
}

std::int64_t busy(const result::OpRow& op) {
  return std::max<std::int64_t>(op.duration_ps - op.waited_ps, 0);
}

std::string ratio(double simulated, double measured) {
  return measured > 0 ? fmt::format("{:+.1f}%", (simulated / measured - 1) * 100) : std::string("–");
}

// Kernels by their class, transfers by kind and group.
std::string class_of(const OpText& op) {
  const std::string_view kernel = kernel_class(op.kind);
  if (!kernel.empty()) return std::string(kernel);
  return is_collective(op) && !op.group.empty() ? fmt::format("{} {}", op.kind, op.group) : op.kind;
}

const StoredResult* first_of(const std::vector<StoredResult>& runs, std::string_view source) {
  const auto found =
      std::find_if(runs.begin(), runs.end(), [&](const StoredResult& r) { return r.result.source == source; });
  return found == runs.end() ? nullptr : &*found;
}

}  // namespace

std::vector<KindError> kind_errors(const StoredResult& simulated, const StoredResult& measured) {
  std::map<Identity, std::int64_t> times;
  for (const result::OpRow& op : simulated.ops) times[identity(simulated, op)] = busy(op);
  std::map<std::string, KindError> kinds;
  for (const result::OpRow& op : measured.ops) {
    const auto twin = times.find(identity(measured, op));
    if (twin == times.end()) continue;
    KindError& kind = kinds[class_of(measured.text_of(op))];
    ++kind.ops;
    kind.simulated_ps += twin->second;
    kind.measured_ps += busy(op);
  }
  std::vector<KindError> out;
  for (auto& [name, kind] : kinds) {
    kind.kind = name;
    out.push_back(kind);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const KindError& a, const KindError& b) { return a.measured_ps > b.measured_ps; });
  return out;
}

std::string errors_table(const std::vector<StoredResult>& runs, const std::vector<std::string>& names) {
  const StoredResult* simulated = first_of(runs, "simulated");
  const StoredResult* measured = first_of(runs, "measured");
  if (simulated == nullptr || measured == nullptr) return "";
  const std::vector<KindError> errors = kind_errors(*simulated, *measured);
  if (errors.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"class of op", "ops", "simulated", "measured", "error"}};
  for (const KindError& e : errors)
    rows.push_back({e.kind, grouped(static_cast<double>(e.ops)), format_time(Time::from_ps(e.simulated_ps)),
                    format_time(Time::from_ps(e.measured_ps)),
                    ratio(static_cast<double>(e.simulated_ps), static_cast<double>(e.measured_ps))});
  const auto step_of = [](const StoredResult& run) { return static_cast<double>(run.result.step_time_ps); };
  rows.push_back({"the whole step", "", format_time(Time::from_ps(simulated->result.step_time_ps)),
                  format_time(Time::from_ps(measured->result.step_time_ps)),
                  ratio(step_of(*simulated), step_of(*measured))});
  const auto name_of = [&](const StoredResult* run) { return names[static_cast<std::size_t>(run - runs.data())]; };
  return fmt::format(
             "<p class=\"note\">{} against {}: time summed over the ops that both have, on one rank a stage; "
             "transfers from when their last participant had come.</p>\n",
             escape(name_of(simulated)), escape(name_of(measured))) +
         table(rows);
}

}  // namespace rehearse::reports::html
