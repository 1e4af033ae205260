// An estimate as a terminal and as a program read it; see estimate.h.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/estimate.h"
#include "reports/text.h"

namespace rehearse::reports {
namespace {

using EstimateJson = nlohmann::ordered_json;

// 588000000000000000000000 -> "5.88e23".
std::string scientific(double value) {
  std::string text = fmt::format("{:.2e}", value);
  if (const std::size_t at = text.find("e+"); at != std::string::npos) text.erase(at + 1, 1);
  if (const std::size_t zero = text.find("e0"); zero != std::string::npos) text.erase(zero + 1, 1);
  return text;
}

std::string big_count(double value) {
  for (const auto& [unit, name] : {std::pair{1e12, "T"}, {1e9, "B"}, {1e6, "M"}})
    if (value >= unit) return fmt::format("{:.4g}{}", value / unit, name);
  return grouped(value);
}

// Seconds to years, two significant digits and the unit.
std::string long_duration(double seconds) {
  constexpr double kHour = 3600, kDay = 24 * kHour, kYear = 365.25 * kDay;
  if (seconds >= 20 * kYear) return grouped(seconds / kYear) + " years";
  if (seconds >= 2 * kYear) return fmt::format("{:.1f} years", seconds / kYear);
  if (seconds >= 2 * kDay) return fmt::format("{:.3g} days", seconds / kDay);
  if (seconds >= 2 * kHour) return fmt::format("{:.3g} h", seconds / kHour);
  return fmt::format("{:.3g} s", seconds);
}

std::string gigabytes(double bytes) {
  return bytes < 1e15 ? format_bytes(Bytes(static_cast<std::int64_t>(bytes))) : fmt::format("{:.4g} PB", bytes / 1e15);
}

std::string memory_table(const Estimate& e) {
  const double usable = static_cast<double>(e.of.memory.count()) * e.of.memory_percent / 100;
  std::vector<std::vector<std::string>> rows = {{"tensor x pipeline x data", "ZeRO 0", "ZeRO 1", "ZeRO 2", "ZeRO 3"}};
  for (const EstimateSplit& s : e.splits) {
    rows.push_back({fmt::format("{} x {} x {}", s.tensor, s.pipeline, s.data)});
    for (const double bytes : s.bytes) rows.back().push_back(gigabytes(bytes) + (bytes <= usable ? " *" : "  "));
  }
  std::string text = align(rows, 2);
  for (std::size_t at = text.find(" \n"); at != std::string::npos; at = text.find(" \n")) text.erase(at, 1);
  return text;
}

// "1,024 sequences; 8,388,608 tokens a step, 166,667 steps"; "" where it is not given.
std::string batch_words(const Estimate& e) {
  const auto batch = static_cast<double>(e.of.global_batch), tokens = batch * static_cast<double>(e.of.seq_len);
  if (batch == 0) return "";
  if (e.of.seq_len == 0) return fmt::format("{} samples a step", grouped(batch));
  return fmt::format("{} sequences; {} tokens a step, {} steps", grouped(batch), grouped(tokens),
                     grouped(std::ceil(e.tokens / tokens)));
}

std::vector<std::pair<std::string, std::string>> sizes(const Estimate& e) {
  std::vector<std::pair<std::string, std::string>> rows;
  const std::string active =
      e.active < e.of.parameters ? fmt::format("; a token uses {}", big_count(e.active)) : std::string();
  rows.emplace_back("parameters", fmt::format("{}{}", grouped(e.of.parameters), active));
  if (e.tokens > 0) {
    rows.emplace_back("tokens",
                      big_count(e.tokens) + (e.of.tokens > 0              ? ", as given"
                                             : e.active < e.of.parameters ? ", 20 for each parameter a token uses"
                                                                          : ", 20 a parameter (Chinchilla)"));
    rows.emplace_back("training FLOPs", fmt::format("{}, 6 a parameter and token", scientific(e.flops)));
    if (e.flops_exact > 0)
      rows.emplace_back("", fmt::format("{} by its products, attention over {} tokens in full",
                                        scientific(e.flops_exact), grouped(static_cast<double>(e.of.seq_len))));
  } else {
    rows.emplace_back("training FLOPs", fmt::format("{} an example, forward and backward", scientific(e.flops_exact)));
  }
  if (const std::string batch = batch_words(e); !batch.empty()) rows.emplace_back("batch", batch);
  rows.emplace_back("states", fmt::format("{}, 16 bytes a parameter", gigabytes(e.state_bytes)));
  rows.emplace_back("GPUs needed", fmt::format("{}: states over {:g}% of {}", grouped(static_cast<double>(e.needed)),
                                               e.of.memory_percent, format_bytes(e.of.memory)));
  if (e.checkpoint_bytes > 0)
    rows.emplace_back("activations",
                      fmt::format("{} a sequence of {} tokens with full recomputation, over all layers",
                                  gigabytes(e.checkpoint_bytes), grouped(static_cast<double>(e.of.seq_len))));
  if (e.seconds > 0)
    rows.emplace_back("time",
                      fmt::format("{} on one GPU, {} on {}, at {:g}% of {:.4g} TFLOP/s ({})", long_duration(e.seconds),
                                  long_duration(e.seconds / static_cast<double>(e.gpus)), e.gpus, e.of.mfu_percent,
                                  e.of.peak.per_s() / 1e12, e.of.device));
  return rows;
}

}  // namespace

std::string estimate_text(const Estimate& e) {
  std::string out = clip(e.of.name, kWidth) + "\n" + labelled(sizes(e), 17) + "\n";
  out += wrap(fmt::format("States a GPU of {} GPUs; * is at most {:g}% of {}:", e.gpus, e.of.memory_percent,
                          format_bytes(e.of.memory)));
  out += memory_table(e) + "\n";
  out += wrap(
      "Assumed: bf16 parameters and gradients (2 + 2 bytes), fp32 parameters and two moments of Adam (12); even "
      "splits; a share of memory left for activations, communication and the framework. "
      "A plan's own numbers: rehearse simulate.");
  return out;
}

std::string estimate_json(const Estimate& e) {
  EstimateJson j = {{"schema", "rehearse.estimate/1"}, {"model", e.of.name}, {"parameters", e.of.parameters}};
  j["active_parameters"] = e.active;
  if (e.tokens > 0) {
    j["tokens"] = e.tokens;
    j["training_flops"] = e.flops;
    if (e.flops_exact > 0) j["training_flops_by_products"] = e.flops_exact;
  } else {
    j["flops_per_example"] = e.flops_exact;
  }
  if (e.of.seq_len > 0) j["seq_len"] = e.of.seq_len;
  if (e.of.global_batch > 0) j["global_batch"] = e.of.global_batch;
  if (e.of.global_batch > 0 && e.of.seq_len > 0) {
    j["tokens_per_step"] = e.of.global_batch * e.of.seq_len;
    j["steps"] = std::ceil(e.tokens / static_cast<double>(e.of.global_batch * e.of.seq_len));
  }
  j["state_bytes"] = e.state_bytes;
  j["gpus_needed"] = e.needed;
  if (e.checkpoint_bytes > 0) j["checkpoint_bytes_per_sequence"] = e.checkpoint_bytes;
  if (e.seconds > 0) {
    j["one_gpu_s"] = e.seconds;
    j["all_gpus_s"] = e.seconds / static_cast<double>(e.gpus);
  }
  j["assumed"] = {{"bytes_per_parameter", kParameterBytes + kGradientBytes + kOptimizerBytes},
                  {"device", e.of.device},
                  {"memory_bytes", e.of.memory.count()},
                  {"memory_share", e.of.memory_percent / 100},
                  {"peak_bf16_flops", e.of.peak.per_s()},
                  {"mfu", e.of.mfu_percent / 100}};
  j["gpus"] = e.gpus;
  j["splits"] = EstimateJson::array();
  for (const EstimateSplit& s : e.splits)
    j["splits"].push_back({{"tensor", s.tensor}, {"pipeline", s.pipeline}, {"data", s.data}, {"zero_bytes", s.bytes}});
  return j.dump(2, ' ', false, EstimateJson::error_handler_t::replace) + "\n";
}

}  // namespace rehearse::reports
