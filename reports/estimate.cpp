// See estimate.h.
#include "reports/estimate.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sim/base/check.h"

namespace rehearse::reports {
namespace {

constexpr double kMostParameters = 1e18;

// The largest tensor-parallel size up to a node of 8 that the model's heads divide by; 8 of a bare size.
std::int64_t widest_tensor(const EstimateRequest& of) {
  if (!of.model) return 8;
  if (!of.model->is_transformer()) return 1;
  std::int64_t tensor = 8;
  const std::int64_t keys = of.model->kv_heads;
  // Of fewer key-value heads than ranks each is on several.
  while (of.model->heads % tensor != 0 || (keys % tensor != 0 && tensor % keys != 0)) tensor /= 2;
  return tensor;
}

std::int64_t most_stages(const EstimateRequest& of) {
  if (!of.model) return INT64_MAX;
  return of.model->is_transformer() ? of.model->layers : 1;
}

// Splits by powers of two: over a tensor group first, then over pipeline stages, the rest are replicas.
std::vector<EstimateSplit> splits_of(const EstimateRequest& of, std::int64_t gpus) {
  std::vector<EstimateSplit> list;
  const std::int64_t widest = widest_tensor(of), stages = most_stages(of);
  for (std::int64_t split = 1; split <= gpus && gpus % split == 0; split *= 2) {
    EstimateSplit s;
    s.tensor = std::min(split, widest);
    s.pipeline = split / s.tensor;
    s.data = gpus / split;
    if (s.pipeline > stages) break;
    for (int stage = 0; stage < 4; ++stage)
      s.bytes[static_cast<std::size_t>(stage)] = zero_state_bytes(of.parameters, split, s.data, stage);
    list.push_back(s);
  }
  return list;
}

std::int64_t power_of_two_from(std::int64_t least, std::int64_t value) {
  while (least < value) least *= 2;
  return least;
}

}  // namespace

std::optional<double> parse_model_size(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  double scale = 0;
  if (unit == "K" || unit == "k") scale = 1e3;
  if (unit == "M" || unit == "m") scale = 1e6;
  if (unit == "B" || unit == "b") scale = 1e9;
  if (unit == "T" || unit == "t") scale = 1e12;
  const double size = std::round(value * scale);
  if (!(size >= 1 && size <= kMostParameters)) return std::nullopt;
  return size;
}

double zero_state_bytes(double parameters, std::int64_t split, std::int64_t data, int stage) {
  const double n = parameters / static_cast<double>(split), d = static_cast<double>(data);
  return n * (kParameterBytes / (stage >= 3 ? d : 1) + kGradientBytes / (stage >= 2 ? d : 1) +
              kOptimizerBytes / (stage >= 1 ? d : 1));
}

Estimate estimate_of(const EstimateRequest& request) {
  REHEARSE_CHECK(request.parameters >= 1 && request.memory.count() > 0 && request.memory_percent > 0,
                 "an estimate of {} parameters in {} bytes", request.parameters, request.memory.count());
  Estimate e{.of = request};
  const bool sequences = !request.model || request.model->reads_text();
  e.active = request.model && sequences ? static_cast<double>(model::active_parameter_count(*request.model))
                                        : request.parameters;
  if (sequences) {
    e.tokens = request.tokens > 0 ? request.tokens : kTokensAParameter * e.active;
    e.flops = kFlopsAParameterAndToken * e.active * e.tokens;
    if (request.model) {
      e.flops_exact =
          model::model_flops(*request.model, 1, request.seq_len) * e.tokens / static_cast<double>(request.seq_len);
      e.checkpoint_bytes = 2.0 * static_cast<double>(request.seq_len) * static_cast<double>(request.model->hidden) *
                           static_cast<double>(request.model->blocks());
    }
    if (request.peak.per_s() > 0)
      e.seconds = (e.flops_exact > 0 ? e.flops_exact : e.flops) / (request.peak.per_s() * request.mfu_percent / 100);
  } else {
    e.flops_exact = model::model_flops(*request.model, 1, request.model->is_vision() ? request.model->max_seq_len : 1);
  }
  e.state_bytes = zero_state_bytes(request.parameters, 1, 1, 0);
  const double usable = static_cast<double>(request.memory.count()) * request.memory_percent / 100;
  e.needed = static_cast<std::int64_t>(std::ceil(e.state_bytes / usable));
  e.gpus = request.gpus > 0 ? request.gpus : power_of_two_from(8, e.needed);
  e.splits = splits_of(request, e.gpus);
  return e;
}

}  // namespace rehearse::reports
