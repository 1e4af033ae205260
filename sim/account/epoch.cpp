// See epoch.h.
#include "sim/account/epoch.h"

namespace rehearse::account {

result::Epoch epoch_of(const plan::Scenario& scenario) {
  const plan::Data& data = scenario.data;
  result::Epoch epoch;
  epoch.samples = data.samples;
  if (epoch.samples == 0) return epoch;
  const std::int64_t replicas = scenario.plan.counted(), batch = scenario.training.global_batch / replicas;
  const auto up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  epoch.drop_last = data.drop_last;
  epoch.dropping_steps = data.samples / replicas / batch;
  epoch.padded_steps = up(up(data.samples, replicas), batch);
  epoch.epochs = data.epochs;
  return epoch;
}

}  // namespace rehearse::account
