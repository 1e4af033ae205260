#include <algorithm>
#include <cmath>
#include <numbers>

#include "execute/rank/kernel_call.h"
#include "sim/plan/cosine_end.h"

namespace rehearse::execute {

double learning_rate(const plan::Training& t, std::int64_t step, std::int64_t steps) {
  if (step < t.warmup_steps) return t.lr * static_cast<double>(step + 1) / static_cast<double>(t.warmup_steps);
  if (t.lr_schedule != "cosine") return t.lr;
  const std::int64_t span = std::max<std::int64_t>(1, steps - 1 - t.warmup_steps);
  const double done = std::min(1.0, static_cast<double>(step - t.warmup_steps) / static_cast<double>(span));
  return t.lr * (plan::kCosineEnd + (1 - plan::kCosineEnd) / 2 * (1 + std::cos(std::numbers::pi * done)));
}

kernels::StepValues step_values(const plan::Training& t, std::int64_t step, std::int64_t steps) {
  const auto updates = static_cast<double>(step + 1);
  return {step, step * t.global_batch, static_cast<float>(learning_rate(t, step, steps)),
          static_cast<float>(1 - std::pow(t.beta1, updates)), static_cast<float>(1 - std::pow(t.beta2, updates))};
}

}  // namespace rehearse::execute
