// See words.h. Keys that a result does not have are left out of the sentences, never guessed.
#include "reports/html/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>

#include "reports/batch.h"
#include "reports/epoch.h"
#include "reports/limits.h"
#include "reports/reinforcement.h"
#include "reports/servers.h"
#include "reports/text.h"
#include "sim/base/units.h"
#include "sim/plan/schedule/schedule.h"

namespace rehearse::reports::html {
namespace {

using result::Result;

constexpr double kUsualTokens = 300e9;  // what GPT-3 was trained on (Brown et al. 2020, arXiv 2005.14165)

std::string count(double n, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(n), noun, n == 1 ? "" : noun.ends_with('h') ? "es" : "s");
}

std::string lower_first(std::string text) {
  if (text.size() > 1 && text[0] >= 'A' && text[0] <= 'Z' && !(text[1] >= 'A' && text[1] <= 'Z'))
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

std::string schedule_words(const Result& r) {
  const std::string name = key_of(r, "plan.schedule");
  const plan::PipelineSchedule* schedule = plan::find_schedule(name);
  if (schedule == nullptr) return name;
  return schedule->title(integer_of(r, "plan.chunks"));
}

std::string zero_words(std::int64_t zero) {
  constexpr std::array<std::string_view, 4> kWords = {
      "each with all of its state", "optimizer state split over them (ZeRO-1)",
      "optimizer state and gradients split over them (ZeRO-2)",
      "optimizer state, gradients and parameters split over them (ZeRO-3)"};
  return std::string(kWords[static_cast<std::size_t>(std::clamp<std::int64_t>(zero, 0, 3))]);
}

std::string recompute_words(const Result& r) {
  const std::string kind = key_of(r, "plan.recompute");
  if (kind != "full" && kind != "selective" && kind != "ops") return "activations are kept";
  const std::string layers = key_of(r, "plan.recompute_layers"), every = key_of(r, "plan.recompute_every");
  std::string which = layers.empty() ? "" : fmt::format("the first {} layers of each stage", layers);
  if (!every.empty()) which += fmt::format("{}each {}th", which.empty() ? "" : ", of these ", every);
  if (kind == "full")
    return which.empty() ? "every layer's activations are recomputed"
                         : fmt::format("activations are recomputed of {}", which);
  const std::string what = kind == "selective"
                               ? "attention's activations are recomputed"
                               : "activations but those of attention and every second product are recomputed";
  return which.empty() ? what : fmt::format("{} in {}", what, which);
}

// What lies in the memory of the hosts; "" if nothing does.
std::string offload_words(const Result& r) {
  std::vector<std::string> parts;
  if (key_of(r, "plan.offload_optimizer") == "true") parts.push_back("the optimizer's states and step");
  if (key_of(r, "plan.offload_parameters") == "true") parts.push_back("shards of parameters");
  if (key_of(r, "plan.offload_activations") == "true") parts.push_back("inputs of recomputed layers");
  if (const std::string layers = key_of(r, "plan.offload_layers"); !layers.empty())
    parts.push_back("activations of " + count(std::stod(layers), "layer"));
  return parts.empty() ? "" : fmt::format("; on the host: {}", fmt::join(parts, ", "));
}

std::string machine(const Result& r) {
  const std::string device = key_of(r, "cluster.device"), topology = key_of(r, "cluster.topology");
  const std::string noun = on_cpu(r) ? "CPU rank" : (device.empty() ? "" : device + " ") + "GPU";
  return count(static_cast<double>(r.ranks), noun) + (topology.empty() ? "" : fmt::format(" ({})", topology));
}

std::string trained(const Result& r) {
  const std::string model = key_of(r, "model"), precision = key_of(r, "training.precision");
  std::string out = "Train " + (model.empty() ? "a model" : model);
  std::vector<std::string> facts;
  if (const auto n = integer_of(r, "model.parameters"); n > 0)
    facts.push_back(in_words(static_cast<double>(n)) + " parameters");
  if (const auto n = integer_of(r, "model.trainable_parameters"); n > 0)
    facts.push_back(fmt::format("of which adapters of rank {}, {}, are trained", key_of(r, "training.lora_rank"),
                                in_words(static_cast<double>(n))));
  if (const auto n = integer_of(r, "training.seq_len"); n > 0)
    facts.push_back(fmt::format("sequences of {}", count(static_cast<double>(n), "token")));
  if (const std::string kind = key_of(r, "model.attention"); !kind.empty()) facts.push_back(kind + " attention");
  if (!facts.empty()) out += fmt::format(" ({})", fmt::join(facts, ", "));
  out += " on " + machine(r);
  if (!precision.empty()) out += fmt::format(", in {} with {}", precision, key_of(r, "training.optimizer"));
  if (const auto n = integer_of(r, "training.global_batch"); n > 0)
    out += fmt::format(", {} a{}", count(static_cast<double>(n), unit_of(r) == "tokens" ? "sequence" : "sample"),
                       r.reinforcement.known ? "n update" : " step");
  if (const Batch batch = batch_of(r); batch.global() > 0)
    out += fmt::format(" ({}{})", batch_factors(batch),
                       batch.seq_len > 0 ? "; " + count(static_cast<double>(batch.units()), "token") : "");
  return out + ".";
}

std::string split(const Result& r) {
  const auto tensor = integer_of(r, "plan.tensor"), pipeline = integer_of(r, "plan.pipeline");
  const auto data = integer_of(r, "plan.data");
  std::vector<std::string> parts;
  if (tensor > 1)
    parts.push_back(
        fmt::format("every matrix over {} ranks{}", tensor,
                    key_of(r, "plan.sequence_parallel") == "true" ? ", the activations between them too" : ""));
  if (pipeline > 1)
    parts.push_back(fmt::format("the layers over {} stages ({}; {} of {})", pipeline, schedule_words(r),
                                count(static_cast<double>(integer_of(r, "plan.micro_batches")), "micro-batch"),
                                integer_of(r, "plan.micro_batch")));
  if (data > 1)
    parts.push_back(fmt::format("the batch over {} replicas, {}", data, zero_words(integer_of(r, "plan.zero"))));
  for (const char* axis : {"context", "expert"})
    if (const auto n = integer_of(r, fmt::format("plan.{}", axis).c_str()); n > 1)
      parts.push_back(fmt::format("{} parallel over {} ranks", axis, n));
  const std::string how = parts.empty() ? "Nothing is split" : fmt::format("Split {}", fmt::join(parts, "; "));
  return key_of(r, "plan.recompute").empty() ? how + "."
                                             : fmt::format("{}; {}{}.", how, recompute_words(r), offload_words(r));
}

// Of the accelerators alone, and so no more than a lower bound of the bill.
std::string energy(const Result& r, double amount) {
  if (!r.energy.known) return "";
  return fmt::format(" The {}s draw {:.0f} W each on average, of {:.0f} W at most: {} a step, {} kWh for the {} {}.",
                     device_noun(r), result::watts_per_gpu(r.energy, r.step_time_ps, r.ranks), r.energy.limit_w,
                     joules_text(r.energy.joules()), in_words(result::kwh(r, amount)), in_words(amount), unit_of(r));
}

std::string speed(const Result& r, const HtmlOptions& options) {
  const std::string unit = unit_of(r);
  std::string out = fmt::format("A step {} {}", r.source == "measured" ? "took" : "takes",
                                format_time(Time::from_ps(r.step_time_ps)));
  if (result::mfu(r) >= 0.0005) out += fmt::format(", {} of the peak (MFU)", percent(result::mfu(r)));
  if (r.tokens_per_s <= 0) return out + ".";
  out += fmt::format(", {} {} a second", grouped(r.tokens_per_s), unit);
  const double amount = amount_of(r, options);
  if (amount <= 0) return out + ".";
  const double days = amount / r.tokens_per_s / 86400, hours = result::gpu_hours(r, amount);
  out += fmt::format("; {} {} take {:.3g} days and {} GPU-hours", in_words(amount), unit, days, in_words(hours));
  if (options.price_per_hour > 0)
    out += fmt::format(", {} at {} an hour", in_words(hours * options.price_per_hour), options.price_per_hour);
  return out + "." + energy(r, amount);
}

// "stage, 3,", or "phase, generation,".
std::string what_is_fullest(const Result& r, const result::StageMemory& stage) {
  const result::ReinforcementPhase* phase = fullest(r).phase;
  return phase != nullptr ? fmt::format("phase, {},", phase->name) : fmt::format("stage, {},", stage.stage);
}

std::string fit_and_limit(const Result& r) {
  const std::string limit = r.limited_by.empty() ? limited_by(r) : r.limited_by;
  if (!r.memory_fits)
    return fmt::format("It does not fit in memory, and the step time is as if it did: {}", lower_first(limit));
  const result::StageMemory* worst = largest_stage(r);
  std::string out = "It fits in memory";
  if (worst != nullptr && r.memory_capacity > 0)
    out += fmt::format(" (the fullest {} needs {} of {} a {}{})", what_is_fullest(r, *worst),
                       format_bytes(Bytes(fullest(r).bytes)), format_bytes(usable_memory(r)), device_noun(r),
                       headroom_words(r));
  if (worst == nullptr) out = "Its memory is not known";
  if (r.host_bytes > 0 && r.host_capacity > 0)
    out += fmt::format(", {} of a host's {}", format_bytes(Bytes(r.host_bytes)), format_bytes(Bytes(r.host_capacity)));
  const std::string what = lower_first(limit);
  const bool article = what.starts_with("pipeline") || what.starts_with("optimizer") || what.starts_with("host");
  return fmt::format("{}, and what limits it is {}{}", out, article ? "the " : "", what);
}

std::string trust(const Result& r) {
  const std::string between = fmt::format("{} and {}", format_time(Time::from_seconds(r.interval_low_s)),
                                          format_time(Time::from_seconds(r.interval_high_s)));
  if (r.source == "measured")
    return fmt::format("This was measured, not simulated: the median of {}; they took between {}.",
                       count(static_cast<double>(r.steps), "step"), between);
  constexpr std::array<std::string_view, 4> kNames = {"exactly measured shapes", "interpolation", "extrapolation",
                                                      "data sheets alone"};
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (r.coverage[i] >= 0.0005)
      parts.push_back(fmt::format("{}{} on {}", percent(r.coverage[i]), parts.empty() ? " rests" : "", kNames[i]));
  std::string out = parts.empty() ? "What the costs rest on is not known"
                                  : fmt::format("Of the simulated busy time {}", fmt::join(parts, ", "));
  for (const std::string& what : r.measured_in) out += fmt::format("; kernels were measured in {}", what);
  if (r.interval_high_s > 0) out += fmt::format("; at the ends of the costs' error intervals a step takes {}", between);
  return out + ".";
}

}  // namespace

std::string key_of(const Result& r, const char* key) {
  const auto found = r.scenario.find(key);
  return found == r.scenario.end() ? "" : found->second;
}

std::int64_t integer_of(const Result& r, const char* key) {
  const std::string text = key_of(r, key);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

std::string in_words(double n) {
  constexpr std::array<std::pair<double, std::string_view>, 3> kScales = {
      {{1e12, " trillion"}, {1e9, " billion"}, {1e6, " million"}}};
  for (const auto& [size, name] : kScales)
    if (n >= size) return fmt::format("{:.4g}{}", n / size, name);
  return grouped(n);
}

double amount_of(const Result& r, const HtmlOptions& options) {
  const bool planned = unit_of(r) == "tokens" && !on_cpu(r);
  return options.tokens > 0 ? options.tokens : planned ? kUsualTokens : 0;
}

std::string unit_of(const Result& r) {
  return r.scenario.empty() || r.scenario.contains("training.seq_len") ? "tokens" : "samples";
}

namespace {

// "out/zero3/measured" -> "zero3, measured"; "out/zero3" -> "zero3".
std::string name_of_directory(const result::StoredResult& run) {
  std::filesystem::path path(run.directory);
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string(), above = path.parent_path().filename().string();
  return name == run.result.source && !above.empty() ? above + ", " + name : name;
}

}  // namespace

std::vector<std::string> labels(const std::vector<result::StoredResult>& runs) {
  const auto repeat = [](const std::vector<std::string>& names, const std::string& name) {
    return std::count(names.begin(), names.end(), name) > 1;
  };
  std::vector<std::string> names;
  for (const auto& run : runs) {
    const Result& r = run.result;
    names.push_back(r.scenario_file.empty() ? r.scenario_name : file_stem(r.scenario_file));
    if (names.back().empty()) names.back() = "result";
  }
  const std::vector<std::string> files = names;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (repeat(files, files[i])) names[i] += ", " + runs[i].result.source;
  // Several plans of one file: by the directories they lie in, if those tell them apart.
  std::vector<std::string> sourced = names;
  const bool ambiguous = std::any_of(sourced.begin(), sourced.end(), [&](const auto& n) { return repeat(sourced, n); });
  if (ambiguous) {
    for (std::size_t i = 0; i < runs.size(); ++i) sourced[i] = name_of_directory(runs[i]);
    const bool apart =
        std::none_of(sourced.begin(), sourced.end(), [&](const auto& n) { return n.empty() || repeat(sourced, n); });
    if (apart) return sourced;
    sourced = names;
  }
  std::map<std::string, int> seen;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (repeat(sourced, sourced[i])) names[i] += fmt::format(" {}", ++seen[sourced[i]]);
  return names;
}

std::vector<std::string> asked(const Result& r) {
  return {trained(r), split(r)};
}

std::vector<std::string> answered(const Result& r, const HtmlOptions& options) {
  std::vector<std::string> sentences = {speed(r, options), fit_and_limit(r), trust(r)};
  if (const std::string input = input_text(r); !input.empty()) sentences.push_back("Input: " + input + ".");
  for (const auto& [label, text] : server_rows(r)) sentences.push_back(label + ": " + text + ".");
  if (r.local_steps.known) sentences.push_back("Local steps: " + local_steps_text(r.local_steps) + ".");
  if (r.first_weights.known) sentences.push_back("First weights: " + first_weights_text(r) + ".");
  if (const std::string epoch = epoch_text(r); !epoch.empty()) sentences.push_back("An epoch: " + epoch + ".");
  for (std::string& sentence : learning_rate_sentences(r)) sentences.push_back(std::move(sentence));
  if (const std::string framework = chosen_framework(r); !framework.empty()) sentences.push_back(framework);
  return sentences;
}

}  // namespace rehearse::reports::html
