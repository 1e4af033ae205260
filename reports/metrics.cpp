// See metrics.h.
#include "reports/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace rehearse::reports {
namespace {

// A label's value: backslash, quote and line feed are escaped.
std::string metric_label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

std::string metric_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// A histogram, whose buckets Prometheus wants to count all that lie below.
std::string staleness_lines(const TrainingProgress& p, const std::string& label) {
  if (p.staleness.empty()) return "";
  std::string out =
      "# HELP rehearse_staleness_updates How many updates old gradients were when they were applied.\n"
      "# TYPE rehearse_staleness_updates histogram\n";
  std::int64_t below = 0, sum = 0;
  const auto bucket = [&](const std::string& edge) {
    out += fmt::format("rehearse_staleness_updates_bucket{{scenario=\"{}\",le=\"{}\"}} {}\n", label, edge, below);
  };
  for (std::size_t k = 0; k < p.staleness.size(); ++k) {
    below += p.staleness[k], sum += static_cast<std::int64_t>(k) * p.staleness[k];
    bucket(fmt::format("{}", k));
  }
  bucket("+Inf");
  return out + fmt::format(
                   "rehearse_staleness_updates_sum{{scenario=\"{0}\"}} {1}\n"
                   "rehearse_staleness_updates_count{{scenario=\"{0}\"}} {2}\n",
                   label, sum, below);
}

}  // namespace

std::string prometheus_text(const TrainingProgress& p) {
  const std::string label = metric_label(p.scenario);
  std::string out;
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help, double value) {
    out += fmt::format("# HELP rehearse_{0} {1}\n# TYPE rehearse_{0} {2}\nrehearse_{0}{{scenario=\"{3}\"}} {4}\n", name,
                       help, type, label, metric_number(value));
  };
  add("steps_total", "counter", "Optimizer steps done.", static_cast<double>(p.step));
  add("steps_planned", "gauge", "Optimizer steps that the run will have done.", static_cast<double>(p.steps));
  add("ranks", "gauge", "Ranks of the run.", static_cast<double>(p.ranks));
  add("loss", "gauge", "Training loss of the last step.", p.loss);
  if (!p.loss_parts.empty())
    out +=
        "# HELP rehearse_loss_part Loss of the model, and of each module of multi-token prediction, of the last "
        "step, not weighted.\n# TYPE rehearse_loss_part gauge\n";
  for (const auto& [part, loss] : p.loss_parts)
    out += fmt::format("rehearse_loss_part{{scenario=\"{}\",part=\"{}\"}} {}\n", label, metric_label(part),
                       metric_number(loss));
  out += staleness_lines(p, label);
  if (p.step_s <= 0) return out;
  add("step_seconds", "gauge", "Mean time of a step since the last look.", p.step_s);
  add("examples_per_second", "gauge", "Sequences or samples trained on, a second.", p.examples_per_s);
  if (p.tokens_per_s > 0) add("tokens_per_second", "gauge", "Tokens trained on, a second.", p.tokens_per_s);
  return out;
}

}  // namespace rehearse::reports
