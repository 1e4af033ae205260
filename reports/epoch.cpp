// See epoch.h.
#include "reports/epoch.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "reports/batch.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

using result::Result;

constexpr double kSame = 1e-9;  // relative: rates that are written alike

std::string whole(double value) {
  return grouped(value);
}

// Seconds as people say them; what simulated time cannot hold, in days.
std::string long_time(double seconds) {
  constexpr double kDay = 86400;
  return seconds < 2 * kDay ? format_time(Time::from_seconds(seconds)) : fmt::format("{:.4g} days", seconds / kDay);
}

std::string keyed(const Result& r, const char* key) {
  const auto found = r.scenario.find(key);
  return found == r.scenario.end() ? "" : found->second;
}

std::optional<double> lr_of(const Result& r) {
  const std::string text = keyed(r, "training.lr");
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0)) return {};
  return value;
}

bool same_rate(double a, double b) {
  return std::abs(a - b) <= kSame * std::max(std::abs(a), std::abs(b));
}

// "x 4, 0.4".
std::string scaled_rate(double factor, std::optional<double> rate) {
  return fmt::format("x {:.4g}", factor) + (rate ? fmt::format(", {:.4g}", *rate * factor) : "");
}

// The two rules for a batch `to` in the place of `from`, whose rate was `rate`; `epoch_steps` 0: not known.
std::vector<std::string> scaling_rules(double from, double to, std::optional<double> rate, std::int64_t epoch_steps) {
  const double k = to / from;
  std::string linear = fmt::format(
      "Linear scaling: learning rate {} (Goyal et al. 2017, arXiv 1706.02677: SGD with momentum, with a warm-up over "
      "the first {} epochs{}).",
      scaled_rate(k, rate), kWarmupEpochs,
      epoch_steps > 0 ? fmt::format(", here {} steps", whole(static_cast<double>(epoch_steps) * kWarmupEpochs)) : "");
  linear += to > kLinearUpTo ? fmt::format(" There it held up to about {} images of ImageNet: {} are beyond that.",
                                           whole(kLinearUpTo), whole(to))
                             : fmt::format(" There it held up to about {} images of ImageNet.", whole(kLinearUpTo));
  return {linear,
          fmt::format("Square-root scaling: learning rate {} (for adaptive optimizers as AdamW, Malladi et al. 2022, "
                      "arXiv 2205.10287; Krizhevsky 2014, arXiv 1404.5997).",
                      scaled_rate(std::sqrt(k), rate))};
}

}  // namespace

std::string epoch_text(const Result& r) {
  const result::Epoch& e = r.epoch;
  if (e.samples == 0) return "";
  const auto n = [](std::int64_t value) { return whole(static_cast<double>(value)); };
  const double seconds = static_cast<double>(r.step_time_ps) * 1e-12 * static_cast<double>(e.steps());
  std::string text =
      e.drop_last
          ? fmt::format("{} steps, the last samples dropped ({} padded)", n(e.dropping_steps), n(e.padded_steps))
          : fmt::format("{} steps, padded ({} the last samples dropped)", n(e.padded_steps), n(e.dropping_steps));
  text += fmt::format(" of {} samples: {}", n(e.samples), long_time(seconds));
  if (e.epochs > 0)
    text += fmt::format("; {} epoch{} take{} {}", n(e.epochs), e.epochs == 1 ? "" : "s", e.epochs == 1 ? "s" : "",
                        long_time(seconds * static_cast<double>(e.epochs)));
  return text;
}

std::string local_steps_text(const result::LocalSteps& l) {
  if (!l.known) return "";
  const auto time = [](std::int64_t ps) { return format_time(Time::from_ps(ps)); };
  const std::string end = fmt::format("{}, which ends with the outer step ({}) of {} workers", time(l.outer_ps),
                                      l.outer, whole(static_cast<double>(l.workers)));
  if (l.steps == 1) return fmt::format("every step is of {}", end);
  return fmt::format("the step is the mean over a round of {}: {} of {}, then one of {}",
                     whole(static_cast<double>(l.steps)), whole(static_cast<double>(l.steps - 1)), time(l.inner_ps),
                     end);
}

std::string first_weights_text(const Result& r) {
  const result::FirstWeights& f = r.first_weights;
  if (!f.known) return "";
  std::string ways;
  for (const std::string& way : f.ways) ways += (ways.empty() ? " by " : ", ") + way;
  return fmt::format("broadcast before the first step, once: {}, {} to each rank in {} message{}{}",
                     format_time(Time::from_ps(f.time_ps)), format_bytes(Bytes(f.bytes)),
                     whole(static_cast<double>(f.messages)), f.messages == 1 ? "" : "s", ways);
}

std::string input_text(const Result& r) {
  const result::Input& i = r.input;
  if (!i.known) return "";
  const std::string each = format_time(Time::from_ps(i.micro_batch_ps)), step = format_time(Time::from_ps(i.step_ps));
  if (i.bound == "process")
    return fmt::format("the training process loads each micro-batch itself, in {}: {} of a step", each, step);
  return fmt::format(
      "{} worker{} a replica, up to {} micro-batches ahead: one each {}, limited by {}; a step takes {} "
      "at least",
      i.workers, i.workers == 1 ? "" : "s", i.ahead, each, i.bound == "storage" ? "the storage" : "the workers", step);
}

std::vector<std::string> learning_rate_sentences(const Result& r) {
  const result::LearningRate& l = r.learning_rate;
  if (l.base_batch <= 0 || l.global_batch <= 0) return {};
  const auto from = static_cast<double>(l.base_batch), to = static_cast<double>(l.global_batch);
  if (l.base_batch == l.global_batch)
    return {fmt::format("The batch is the base batch, {}: no reason to change the learning rate.", whole(to))};
  const std::optional<double> base = l.base_lr > 0 ? std::optional(l.base_lr) : std::nullopt;
  std::string head =
      fmt::format("The batch, {}, is {:.4g} times the base batch, {}", whole(to), to / from, whole(from));
  if (base) head += fmt::format(", whose learning rate is {:.4g}", *base);
  if (const std::optional<double> now = lr_of(r); now && base)
    head += same_rate(*now, *base) ? "; training.lr is the same" : fmt::format("; training.lr is {:.4g}", *now);
  std::vector<std::string> out{head + "."};
  for (std::string& rule : scaling_rules(from, to, base, r.epoch.samples > 0 ? r.epoch.steps() : 0))
    out.push_back(std::move(rule));
  return out;
}

std::vector<std::string> learning_rate_sentences(const Result& first, const Result& second,
                                                 const std::string& first_label, const std::string& second_label) {
  const std::int64_t from = batch_of(first).global(), to = batch_of(second).global();
  if (from <= 0 || to <= 0 || from == to) return {};
  const auto a = static_cast<double>(from), b = static_cast<double>(to);
  std::string head = fmt::format("The global batch of {} is {:.4g} times that of {} ({} and {})", second_label, b / a,
                                 first_label, whole(b), whole(a));
  const std::optional<double> rate = lr_of(first), other = lr_of(second);
  if (!rate || !other)
    head += "; the results do not say both learning rates.";
  else if (same_rate(*rate, *other))
    head += fmt::format("; the learning rate is not changed ({:.4g} in both), so losses are not those of one schedule.",
                        *rate);
  else
    head += fmt::format("; learning rates are {:.4g} and {:.4g}.", *other, *rate);
  std::vector<std::string> out{head};
  for (std::string& rule : scaling_rules(a, b, rate, second.epoch.samples > 0 ? second.epoch.steps() : 0))
    out.push_back(std::move(rule));
  return out;
}

}  // namespace rehearse::reports
