// result.json (schema rehearse.result/1): derived numbers and the order of keys. All rates come from the step time and
// the counts of the result; nothing here depends on how it was obtained.
#include "sim/result/result.h"

#include <algorithm>

#include "sim/result/json_writer.h"
#include "sim/result/records.h"

namespace rehearse::result {
namespace {

constexpr double kPsPerSecond = 1e12;
constexpr std::array<std::string_view, 4> kCoverageNames = {"exact", "interpolated", "extrapolated", "spec"};

double seconds(std::int64_t ps) {
  return static_cast<double>(ps) / kPsPerSecond;
}

// FLOPs a second on each GPU.
double rate_per_gpu(const Result& r, double flops) {
  if (r.step_time_ps <= 0 || r.ranks <= 0) return 0;
  return flops / (seconds(r.step_time_ps) * static_cast<double>(r.ranks));
}

void write_scenario(const Result& r, JsonWriter& json) {
  json.key("scenario").open('{').key("name").text(r.scenario_name).key("file").text(r.scenario_file);
  for (const auto& [key, value] : r.scenario)
    if (key != "name" && key != "file") json.key(key).text(value);
  json.close('}');
}

void write_memory(const Result& r, JsonWriter& json) {
  json.key("memory").open('{');
  json.key("capacity_bytes").integer(r.memory_capacity);
  json.key("headroom_bytes").integer(r.memory_headroom).key("fits").boolean(r.memory_fits);
  json.key("stages").open('[');
  for (const StageMemory& s : r.stages) {
    json.open('{').key("stage").integer(s.stage);
    json.key("parameters").integer(s.parameters).key("gradients").integer(s.gradients);
    json.key("optimizer").integer(s.optimizer).key("activations").integer(s.activations);
    json.key("workspace").integer(s.workspace).key("communication").integer(s.communication);
    json.key("framework").integer(s.framework).key("peak").integer(s.peak);
    if (r.host_bytes > 0) json.key("host").integer(s.host);
    if (!s.device.empty())
      json.key("device")
          .text(s.device)
          .key("capacity_bytes")
          .integer(s.capacity)
          .key("headroom_bytes")
          .integer(s.headroom);
    json.key("where").text(s.where).close('}');
  }
  json.close(']');
  if (r.host_bytes > 0) {
    json.key("host").open('{').key("node_bytes").integer(r.host_bytes).key("capacity_bytes").integer(r.host_capacity);
    json.key("fits").boolean(r.host_fits()).close('}');
  }
  json.close('}');
}

}  // namespace

const StageMemory* tightest(const std::vector<StageMemory>& stages) {
  const auto short_of = [](const StageMemory& s) { return s.peak - (s.capacity - s.headroom); };
  const auto found = std::max_element(stages.begin(), stages.end(), [&](const StageMemory& a, const StageMemory& b) {
    return short_of(a) < short_of(b);
  });
  return found == stages.end() ? nullptr : &*found;
}

namespace {

void write_rates(const Result& r, JsonWriter& json) {
  json.key("step_time_s").seconds(r.step_time_ps);
  json.key("tokens_per_s").real(r.tokens_per_s).key("tokens_per_s_per_gpu").real(r.tokens_per_s_per_gpu);
  json.key("model_tflops_per_gpu").real(rate_per_gpu(r, r.model_flops) / 1e12);
  json.key("hardware_tflops_per_gpu").real(rate_per_gpu(r, r.hardware_flops) / 1e12);
  json.key("mfu").real(mfu(r)).key("hfu").real(hfu(r)).key("flop_formula").text(r.flop_formula);
  json.key("breakdown_s").open('{');
  for (std::size_t i = 0; i < kShares; ++i) {
    if (!has_share(r, static_cast<Share>(i))) continue;
    json.key(kShareNames[i]);
    if (!r.late_ranks_known && needs_common_clock(static_cast<Share>(i)))
      json.raw("null");
    else
      json.seconds(r.breakdown_ps[i]);
  }
  json.close('}');
}

void write_coverage(const Result& r, JsonWriter& json) {
  json.key("coverage").open('{');
  for (std::size_t i = 0; i < kCoverageNames.size(); ++i) json.key(kCoverageNames[i]).real(r.coverage[i]);
  if (!r.measured_in.empty()) {
    json.key("measured_in").open('[');
    for (const std::string& what : r.measured_in) json.text(what);
    json.close(']');
  }
  json.close('}');
  json.key("interval_s").open('[').real(r.interval_low_s).real(r.interval_high_s).close(']');
}

}  // namespace

double mfu(const Result& r) {
  return r.peak_flops_per_gpu > 0 ? rate_per_gpu(r, r.model_flops) / r.peak_flops_per_gpu : 0;
}

double hfu(const Result& r) {
  return r.peak_flops_per_gpu > 0 ? rate_per_gpu(r, r.hardware_flops) / r.peak_flops_per_gpu : 0;
}

double watts_per_gpu(const Energy& energy, std::int64_t step_ps, std::int64_t gpus) {
  return step_ps > 0 && gpus > 0 ? energy.joules() / (seconds(step_ps) * static_cast<double>(gpus)) : 0;
}

double kwh(const Result& r, double tokens) {
  const double of_step = tokens_per_step(r);
  return of_step > 0 ? r.energy.joules() / kJoulesPerKwh * tokens / of_step : 0;
}

double tokens_per_step(const Result& r) {
  return r.tokens_per_s * seconds(r.step_time_ps);
}

std::int64_t paid_devices(const Result& r) {
  return r.ranks + r.servers.own_devices;
}

double gpu_hours(const Result& r, double tokens) {
  return r.tokens_per_s > 0 ? tokens / r.tokens_per_s / 3600 * static_cast<double>(paid_devices(r)) : 0;
}

std::string to_json(const Result& r) {
  JsonWriter json;
  json.open('{').key("schema").text("rehearse.result/1").key("source").text(r.source);
  write_scenario(r, json);
  json.key("ranks").integer(r.ranks).key("steps").integer(r.steps);
  write_rates(r, json);
  write_memory(r, json);
  write_coverage(r, json);
  json.key("limited_by").text(r.limited_by);
  write_answers(r, json);
  json.key("cost").open('{');
  json.key("gpu_hours_per_step").real(seconds(r.step_time_ps) * static_cast<double>(paid_devices(r)) / 3600);
  json.key("gpu_hours_per_billion_tokens").real(gpu_hours(r, 1e9)).close('}');
  json.key("engine").open('{').key("ops").integer(r.ops).key("events").integer(r.events);
  json.key("wall_s").real(r.wall_s).key("ranks_simulated").integer(r.ranks_simulated);
  json.key("peak_rss_bytes").integer(r.peak_rss_bytes);
  if (r.arena_bytes > 0) json.key("arena_bytes").integer(r.arena_bytes);
  json.close('}');
  const auto write_losses = [&](const std::string& key, const std::vector<double>& losses) {
    json.key(key).open('[');
    for (const double loss : losses) json.real(loss);
    json.close(']');
  };
  write_losses("loss", r.loss);
  if (!r.loss_parts.empty()) {
    json.key("loss_parts").open('{');
    for (const Result::LossPart& part : r.loss_parts) write_losses(part.name, part.of_steps);
    json.close('}');
  }
  json.close('}');
  return json.str();
}

}  // namespace rehearse::result
