// The losses of a training, by step. With multi-token prediction (model.mtp_depth) ranks report those of the model and
// of each module apart, none weighted, and the loss that is trained on is their weighted sum.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "sim/model/model.h"

namespace rehearse::execute {

struct TrainingLosses {
  std::vector<double> of_steps;            // what is trained on
  std::vector<std::vector<double>> parts;  // none, or of the model and of each module: each by step

  // Of a model: `parts` are there, and what is not known of steps before is no number.
  void make_parts(const model::Model& m) {
    if (m.mtp_depth > 0) parts.resize(static_cast<std::size_t>(1 + m.mtp_depth));
    for (auto& part : parts) part.resize(of_steps.size(), std::numeric_limits<double>::quiet_NaN());
  }

  // Of one step, as reported: one number without modules. DeepSeek-AI 2024 (arXiv 2412.19437), equation 25.
  void add(const model::Model& m, const std::vector<double>& reported) {
    double sum = reported.front();
    for (std::size_t k = 1; k < reported.size(); ++k)
      sum += m.mtp_loss_weight / static_cast<double>(m.mtp_depth) * reported[k];
    of_steps.push_back(sum);
    for (std::size_t k = 0; k < parts.size(); ++k) parts[k].push_back(reported[k]);
  }

  // The first `steps` alone.
  TrainingLosses until(std::int64_t steps) const {
    const auto first = [&](const std::vector<double>& all) {
      return std::vector<double>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(steps));
    };
    TrainingLosses out{first(of_steps), {}};
    for (const auto& part : parts) out.parts.push_back(first(part));
    return out;
  }
};

// "model", "mtp1", ...
inline std::string loss_part_name(std::size_t part) {
  return part == 0 ? "model" : "mtp" + std::to_string(part);
}

}  // namespace rehearse::execute
