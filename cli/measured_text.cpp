// See measured_text.h.
#include "cli/measured_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "reports/answers.h"
#include "reports/batch.h"
#include "reports/epoch.h"
#include "reports/limits.h"
#include "reports/reinforcement.h"
#include "reports/servers.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::cli {
namespace {

std::string breakdown(const result::Result& r) {
  std::string out = "\nWhere the step goes (mean over ranks)\n";
  for (std::size_t i = 0; i < result::kShares; ++i) {
    if (!r.late_ranks_known && result::needs_common_clock(static_cast<result::Share>(i)))
      out +=
          fmt::format("  {}{}\n", reports::left(reports::spaced(result::kShareNames[i]), 18), reports::kUnknownShare);
    if (r.breakdown_ps[i] == 0) continue;
    const double share = static_cast<double>(r.breakdown_ps[i]) / static_cast<double>(r.step_time_ps);
    out += fmt::format("  {}{}  {}\n", reports::left(reports::spaced(result::kShareNames[i]), 18),
                       reports::right(reports::percent(share), 6), format_time(Time::from_ps(r.breakdown_ps[i])));
  }
  return out;
}

// What the arenas of all ranks held, and how far that is from the memory plan.
std::string arenas(const result::Result& r) {
  const double off = static_cast<double>(r.arena_bytes - r.planned_bytes) / static_cast<double>(r.planned_bytes);
  return fmt::format("{} held, {:+.2f}% of what was planned", format_bytes(Bytes(r.arena_bytes)), 100 * off);
}

std::string processes(const execute::Outcome& outcome) {
  const result::Result& r = outcome.result;
  const std::string beside = format_bytes(Bytes(outcome.all_rss_bytes - r.arena_bytes));
  const std::string seconds = reports::compact(r.wall_s);
  if (outcome.processes == 1)
    return fmt::format("{} at most, {} of it besides the ranks'; {} s", format_bytes(Bytes(r.peak_rss_bytes)), beside,
                       seconds);
  return fmt::format("{}, {} at most, {} in all, {} besides the ranks'; {} s", outcome.processes,
                     format_bytes(Bytes(r.peak_rss_bytes)), format_bytes(Bytes(outcome.all_rss_bytes)), beside,
                     seconds);
}

std::string checkpoints(const execute::Outcome& outcome) {
  const execute::CheckpointUse& c = outcome.checkpoints;
  const auto each = [&c](double seconds) {
    return format_time(Time::from_seconds(seconds / static_cast<double>(c.written)));
  };
  const std::string bytes =
      c.all_bytes == c.written * c.bytes
          ? "of " + format_bytes(Bytes(c.bytes))
          : fmt::format("with {} in all, {} the last,", format_bytes(Bytes(c.all_bytes)), format_bytes(Bytes(c.bytes)));
  return fmt::format(
      "{} {} written{}; for each, ranks stood still {}, writing took {}", c.written, bytes,
      outcome.first_step > 0 ? fmt::format(" after step {}, which this run went on from", outcome.first_step) : "",
      each(c.stall_s), each(c.write_s));
}

// What context, libraries and workspaces take, against what the framework's profile sets aside for them.
std::string beside_arena(const execute::Outcome& outcome, const plan::Scenario& scenario) {
  return fmt::format("{} a rank at most on a GPU of {}, by the driver's count; the profile '{}' reserves {}",
                     format_bytes(Bytes(outcome.device.beside_bytes)), format_bytes(Bytes(outcome.device.total_bytes)),
                     scenario.framework.name, format_bytes(scenario.framework.memory_reserve));
}

std::string gpu_steps(const execute::Outcome& outcome) {
  return fmt::format("{} of {} as CUDA graphs; the clocks of host and GPU drifted by {}", outcome.device.graph_steps,
                     outcome.result.steps, format_time(Time::from_ps(std::abs(outcome.device.clock_drift_ps))));
}

std::string gpu_products(const execute::DeviceUse& d) {
  return fmt::format("{} of {} by a faster algorithm than the library's first choice, found in the first two steps",
                     d.other_products, d.products);
}

std::string gpu_conditions(const result::GpuRun& g) {
  return fmt::format("{} MHz, {} at least, of {}; {:.0f} of {:.0f} W, {} C, throttle {}", g.sm_mhz, g.least_sm_mhz,
                     g.max_sm_mhz, g.power_w, g.power_limit_w, g.temperature_c, g.throttle);
}

std::string time_to_loss(const result::LossTarget& t) {
  const std::string mean = fmt::format("{} in the mean of {} steps", reports::loss_text(t.loss), t.window);
  if (t.step < 0) return mean + ": not reached";
  return fmt::format("{}: reached with step {}, after {}", mean, t.step, format_time(Time::from_ps(t.ps)));
}

}  // namespace

std::string measured_text(const execute::Outcome& outcome, const plan::Scenario& scenario) {
  const bool tokens = scenario.model.reads_text();
  const result::Result& r = outcome.result;
  std::int64_t arena = 0, gaps = 0;
  for (const auto& stage : r.stages) {
    const std::int64_t tensors = stage.peak - outcome.device.beside_bytes;
    if (tensors > arena) gaps = stage.framework - outcome.device.beside_bytes;
    arena = std::max(arena, tensors);
  }
  const std::string unit = tokens ? "tokens" : "samples";
  std::vector<std::pair<std::string, std::string>> rows = {
      {"Trained on", outcome.data},
      {"Batch", reports::batch_text(r)},
      {"Loss", fmt::format("{} first, {} last of {} steps, {}", reports::loss_text(r.loss.front()),
                           reports::loss_text(r.loss.back()), r.steps, reports::loss_unit(r))},
      {"Step", fmt::format("{}  ({} to {})", format_time(Time::from_ps(r.step_time_ps)),
                           format_time(Time::from_seconds(r.interval_low_s)),
                           format_time(Time::from_seconds(r.interval_high_s)))},
      {tokens ? "Tokens a second" : "Samples a second", reports::compact(r.tokens_per_s)},
      {"Memory a rank",
       fmt::format("{} allocated at most, {} of it gaps", format_bytes(Bytes(arena)), format_bytes(Bytes(gaps)))},
      {"Memory of all", arenas(r)},
      {outcome.processes == 1 ? "Process" : "Processes", processes(outcome)},
  };
  for (std::size_t part = 0; part < r.loss_parts.size(); ++part) {
    const auto& one = r.loss_parts[part];
    rows.insert(rows.begin() + 3 + static_cast<std::ptrdiff_t>(part),
                {part == 0 ? "  of the model" : fmt::format("  of {}", one.name),
                 fmt::format("{} first, {} last{}", reports::loss_text(one.of_steps.front()),
                             reports::loss_text(one.of_steps.back()),
                             part == 0 ? "" : fmt::format(", of the token {} places on", part + 1))});
  }
  if (r.target.known) rows.push_back({"Time to loss", time_to_loss(r.target)});
  for (const auto& row : reports::server_rows(r)) rows.push_back(row);
  if (r.local_steps.known) rows.push_back({"Local steps", reports::local_steps_text(r.local_steps)});
  if (r.first_weights.known) rows.push_back({"First weights", reports::first_weights_text(r)});
  if (outcome.checkpoints.written > 0) rows.push_back({"Checkpoints", checkpoints(outcome)});
  if (const std::string epoch = reports::epoch_text(r); !epoch.empty()) rows.push_back({"Epoch", epoch});
  if (outcome.device.total_bytes > 0)
    rows.insert(rows.end(), {{"Beside it", beside_arena(outcome, scenario)}, {"GPU steps", gpu_steps(outcome)}});
  if (outcome.device.products > 0) rows.push_back({"Products", gpu_products(outcome.device)});
  for (const result::ProductUse& p : r.gpu.products)
    if (p.form.starts_with("attention "))
      rows.push_back({"Attention", fmt::format("{}, {} tokens of {}: {}", p.form.substr(10), p.m, p.k, p.algorithm)});
  if (r.gpu.samples > 0) rows.push_back({"GPU", gpu_conditions(r.gpu)});
  if (!outcome.loss_scales.empty()) {
    const std::vector<float>& state = outcome.loss_scales.front();
    rows.insert(rows.begin() + 3, {"Loss scale", fmt::format("{} at the end, for {} step{}", state[0], state[1],
                                                             state[1] == 1 ? "" : "s")});
  }
  return reports::wrap(fmt::format("{}: measured, {} rank{}", r.scenario_name, r.ranks, r.ranks == 1 ? "" : "s")) +
         reports::labelled(rows) + breakdown(r) + (r.collectives.empty() ? "" : "\n" + reports::collectives_text(r)) +
         (r.servers.known ? "\n" + reports::staleness_histogram(r.servers) : "");
}

std::string learning_text(const execute::LearningOutcome& outcome) {
  const result::Result& r = outcome.result;
  std::vector<std::pair<std::string, std::string>> rows = {
      {"Step", fmt::format("{}  ({} to {})", format_time(Time::from_ps(r.step_time_ps)),
                           format_time(Time::from_seconds(r.interval_low_s)),
                           format_time(Time::from_seconds(r.interval_high_s)))},
      {"Tokens a second", reports::compact(r.tokens_per_s)},
      {"Loss", fmt::format("{} first, {} last of {} steps, mean over a step's updates",
                           reports::loss_text(r.loss.front()), reports::loss_text(r.loss.back()), r.steps)},
      {"Batch", reports::batch_text(r)},
      {"Memory of all", fmt::format("{}; caches {}", arenas(r), format_bytes(Bytes(outcome.cache_bytes)))},
      {"Process", fmt::format("{} at most; {} s", format_bytes(Bytes(r.peak_rss_bytes)), reports::compact(r.wall_s))}};
  for (const auto& row : reports::reinforcement_rows(r)) rows.push_back(row);
  return reports::wrap(fmt::format("{}: measured, {} rank{}", r.scenario_name, r.ranks, r.ranks == 1 ? "" : "s")) +
         reports::labelled(rows) + "\n" + reports::phases_text(r) + breakdown(r).substr(1);
}

std::string against_one_rank(const result::Result& many, const result::Result& one) {
  const double speed_up = static_cast<double>(one.step_time_ps) / static_cast<double>(many.step_time_ps);
  return "\nAgainst one rank\n" +
         reports::labelled(
             {{"  Step", format_time(Time::from_ps(one.step_time_ps))},
              {"  Loss", reports::loss_text(one.loss.back()) + " last"},
              {"  Speed-up", fmt::format("{:.3g}, {} of {} ranks", speed_up,
                                         reports::percent(speed_up / static_cast<double>(many.ranks)), many.ranks)}});
}

}  // namespace rehearse::cli
