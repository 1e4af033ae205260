// The table of one result. Shares of the step are of its time; bars are of the largest share.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reports/answers.h"
#include "reports/batch.h"
#include "reports/epoch.h"
#include "reports/limits.h"
#include "reports/reinforcement.h"
#include "reports/servers.h"
#include "reports/tables.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

using result::Result;
using result::StageMemory;

constexpr std::size_t kLabel = 20, kBar = 34;
constexpr std::array<const char*, 13> kPlanKeys = {
    "tensor",   "pipeline", "context",    "context_kind", "expert",           "data", "micro_batch", "micro_batches",
    "schedule", "zero",     "zero_group", "recompute",    "sequence_parallel"};

// What a training sample is made of; models without a sequence length count the samples themselves.
std::string sample_words(const Result& r) {
  return r.scenario.empty() || r.scenario.contains("training.seq_len") ? "tokens" : "samples";
}

std::string line(std::string_view label, std::string_view value) {
  return clip(left(label, kLabel) + std::string(value), kWidth) + '\n';
}

std::string heading(const Result& r) {
  std::string out = wrap(r.scenario_name.empty() ? "(no name)" : r.scenario_name);
  out += wrap(fmt::format("{} on {} rank{}, {}", r.source, grouped(static_cast<double>(r.ranks)),
                          r.ranks == 1 ? "" : "s", r.scenario_file.empty() ? "no file" : r.scenario_file));
  if (r.scenario.contains("model") && r.scenario.contains("cluster.device"))
    out += wrap(fmt::format("{} on {}", r.scenario.at("model"), r.scenario.at("cluster.device")));
  std::string plan;
  for (const char* key : kPlanKeys) {
    const auto value = r.scenario.find(fmt::format("plan.{}", key));
    if (key == std::string_view("context") && value != r.scenario.end() && value->second == "1") continue;
    if (value != r.scenario.end()) plan += fmt::format("{}{} {}", plan.empty() ? "" : ", ", key, value->second);
  }
  out += wrap(plan);
  if (const std::string batch = batch_text(r); !batch.empty()) out += wrap("batch: " + batch);
  out += wrap(chosen_framework(r));
  return out + '\n';
}

std::string speed(const Result& r) {
  const double ranks = static_cast<double>(std::max<std::int64_t>(r.ranks, 1));
  const double step_s = static_cast<double>(r.step_time_ps) * 1e-12;
  const auto tflops = [&](double flops) {
    return step_s > 0 ? compact(flops / step_s / ranks / 1e12) : std::string("0");
  };
  std::string step = format_time(Time::from_ps(r.step_time_ps));
  if (r.interval_high_s > 0)
    step += fmt::format("  ({} to {})", format_time(Time::from_seconds(r.interval_low_s)),
                        format_time(Time::from_seconds(r.interval_high_s)));
  if (!r.memory_fits) step += "  as if it fitted in memory";
  std::string out = line("Step", step);
  out += labelled(server_rows(r), kLabel) + labelled(reinforcement_rows(r), kLabel);
  if (r.local_steps.known) out += labelled({{"Local steps", local_steps_text(r.local_steps)}}, kLabel);
  if (r.first_weights.known) out += labelled({{"First weights", first_weights_text(r)}}, kLabel);
  const std::string unit = sample_words(r), device = device_noun(r);
  out += line(unit == "tokens" ? "Tokens a second" : "Samples a second",
              fmt::format("{}, {} a {}", compact(r.tokens_per_s), compact(r.tokens_per_s_per_gpu), device));
  const std::string peak = r.peak_flops_per_gpu > 0 ? " of " + compact(r.peak_flops_per_gpu / 1e12) : "";
  out += line("Model FLOPs",
              fmt::format("{}{} TFLOP/s a {}, MFU {}", tflops(r.model_flops), peak, device, percent(result::mfu(r))));
  out += line("Hardware FLOPs",
              fmt::format("{} TFLOP/s a {}, HFU {}", tflops(r.hardware_flops), device, percent(result::hfu(r))));
  if (!r.flop_formula.empty()) out += wrap(r.flop_formula, kLabel);
  if (r.tokens_per_s > 0 && !on_cpu(r))
    out += line("Cost", fmt::format("{} GPU-hours a step, {} a billion {}",
                                    compact(step_s * static_cast<double>(result::paid_devices(r)) / 3600),
                                    compact(result::gpu_hours(r, 1e9)), unit));
  for (const auto& [label, text] : {std::pair{"Input", input_text(r)}, {"Epoch", epoch_text(r)}})
    if (!text.empty()) out += labelled({{label, text}}, kLabel);
  if (r.energy.known) {
    out +=
        line("Power", fmt::format("{:.0f} of {:.0f} W a {}", result::watts_per_gpu(r.energy, r.step_time_ps, r.ranks),
                                  r.energy.limit_w, device));
    std::string energy = joules_text(r.energy.joules()) + " a step";
    if (r.tokens_per_s > 0) energy += fmt::format(", {} kWh a billion {}", compact(result::kwh(r, 1e9)), unit);
    out += line("Energy", energy);
  }
  return out + '\n';
}

std::string breakdown(const Result& r) {
  std::string out = "Where the step goes (mean over ranks)\n";
  const double largest = static_cast<double>(*std::max_element(r.breakdown_ps.begin(), r.breakdown_ps.end()));
  for (std::size_t i = 0; i < result::kShares; ++i) {
    const std::int64_t ps = r.breakdown_ps[i];
    if (!r.late_ranks_known && result::needs_common_clock(static_cast<result::Share>(i)))
      out += fmt::format("  {}{}\n", left(spaced(result::kShareNames[i]), 18), kUnknownShare);
    if (ps == 0) continue;
    const auto bar = static_cast<std::size_t>(
        std::lround(static_cast<double>(kBar) * std::max(0.0, static_cast<double>(ps) / largest)));
    const std::string text = fmt::format("  {}{}  {}  {}", left(spaced(result::kShareNames[i]), 18),
                                         right(percent(share_of(r, static_cast<result::Share>(i))), 6),
                                         right(format_time(Time::from_ps(ps)), 9), std::string(bar, '#'));
    out += clip(text.substr(0, text.find_last_not_of(' ') + 1), kWidth) + '\n';
  }
  return out + '\n';
}

std::array<std::int64_t, 8> cells(const StageMemory& s) {
  return {s.parameters, s.gradients, s.optimizer, s.activations, s.workspace, s.communication, s.framework, s.peak};
}

struct MemoryUnit {
  double size;
  std::string_view name;
};

MemoryUnit memory_unit(const Result& r) {
  const StageMemory* worst = largest_stage(r);
  const std::int64_t most = worst == nullptr ? 0 : worst->peak;
  if (most >= 1'000'000'000) return {1e9, "GB"};
  return most >= 1'000'000 ? MemoryUnit{1e6, "MB"} : MemoryUnit{1e3, "kB"};
}

// Of a mixed cluster: "stages 0-1 on h100-sxm, 85.9 GB; stages 2-3 on a100-sxm-80g, 85.9 GB".
std::string stage_devices(const Result& r) {
  std::string text;
  for (std::size_t i = 0; i < r.stages.size();) {
    const StageMemory& s = r.stages[i];
    std::size_t end = i + 1;
    while (end < r.stages.size() && r.stages[end].device == s.device && r.stages[end].capacity == s.capacity) ++end;
    text += fmt::format(
        "{}{} on {}, {}", text.empty() ? "" : "; ",
        end - i == 1 ? fmt::format("stage {}", s.stage) : fmt::format("stages {}-{}", s.stage, r.stages[end - 1].stage),
        s.device, format_bytes(Bytes(s.capacity - s.headroom)));
    i = end;
  }
  return text;
}

// A row a stage; neighbouring stages that need the same share one.
std::string memory(const Result& r) {
  if (r.stages.empty()) return "";
  const MemoryUnit unit = memory_unit(r);
  const bool mixed = !r.stages.front().device.empty();  // each stage has its own devices
  const std::string of = mixed ? "" : fmt::format(" of {}", format_bytes(usable_memory(r)));
  const std::string fits =
      r.memory_capacity > 0 ? fmt::format("{}, {}", of, r.memory_fits ? "fits" : "DOES NOT FIT") : "";
  std::vector<std::vector<std::string>> rows = {
      {"  stage", "params", "grads", "optim", "activ", "worksp", "comm", "framew", "peak"}};
  for (std::size_t i = 0; i < r.stages.size();) {
    std::size_t end = i + 1;
    while (end < r.stages.size() && cells(r.stages[end]) == cells(r.stages[i]) &&
           r.stages[end].device == r.stages[i].device)
      ++end;
    std::vector<std::string> row = {end - i == 1 ? fmt::format("  {}", r.stages[i].stage)
                                                 : fmt::format("  {}-{}", r.stages[i].stage, r.stages[end - 1].stage)};
    for (const std::int64_t bytes : cells(r.stages[i]))
      row.push_back(fmt::format("{:.2f}", static_cast<double>(bytes) / unit.size));
    rows.push_back(std::move(row));
    i = end;
  }
  const std::string beside = fullest_phase(r);
  const char* when = beside.empty() ? "" : " in an update alone";
  std::string out =
      fmt::format("Memory a {} at its peak{}, {}{}\n", device_noun(r), when, unit.name, fits) + align(rows);
  if (!beside.empty()) out += wrap(beside, 2);
  if (mixed) out += wrap(stage_devices(r), 2);
  if (r.memory_headroom > 0)
    out += wrap(fmt::format("headroom: of {} a {}, {} are kept free", format_bytes(Bytes(r.memory_capacity)),
                            device_noun(r), format_bytes(Bytes(r.memory_headroom))),
                2);
  if (r.host_bytes > 0) {
    const std::string capacity = r.host_capacity > 0 ? fmt::format(" of {}, {}", format_bytes(Bytes(r.host_capacity)),
                                                                   r.host_fits() ? "fits" : "DOES NOT FIT")
                                                     : "";
    out += wrap(fmt::format("host: {} a node{}", format_bytes(Bytes(r.host_bytes)), capacity), 2);
  }
  if (const StageMemory* worst = largest_stage(r); !worst->where.empty())
    out += wrap(fmt::format("highest: stage {}, {}", worst->stage, worst->where), 2);
  return out + '\n';
}

std::string trust(const Result& r) {
  constexpr std::array<std::string_view, 4> kNames = {"exact measurements", "interpolated", "extrapolated",
                                                      "data sheets"};
  std::string text;
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (r.coverage[i] >= 0.0005)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", percent(r.coverage[i]), kNames[i]);
  if (text.empty()) return "";
  std::string out = wrap("Busy time from: " + text + ".");
  for (const std::string& what : r.measured_in) out += wrap("Measured in: " + what + ".");
  return out;
}

std::string engine(const Result& r) {
  if (r.ops == 0 && r.events == 0) return "";
  return wrap(fmt::format("Engine: {} ops, {} events, {} ranks in {} s, {}.", compact(static_cast<double>(r.ops)),
                          compact(static_cast<double>(r.events)), grouped(static_cast<double>(r.ranks_simulated)),
                          compact(r.wall_s), format_bytes(Bytes(r.peak_rss_bytes))));
}

}  // namespace

std::string summary(const Result& r) {
  std::string warned;
  for (const std::string& warning : warnings(r)) warned += wrap("Warning: " + warning);
  std::string rates;
  for (const std::string& sentence : learning_rate_sentences(r)) rates += wrap(sentence);
  if (!rates.empty()) rates += '\n';
  return heading(r) + speed(r) + phases_text(r) + breakdown(r) + staleness_histogram(r.servers) + answers_text(r) +
         rates + memory(r) + warned + wrap(r.limited_by.empty() ? limited_by(r) : r.limited_by) + trust(r) + engine(r);
}

}  // namespace rehearse::reports
