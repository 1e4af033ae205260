// See forward_pass.h.
#include "sim/run/reinforcement/forward_pass.h"

#include "sim/engine/engine.h"
#include "sim/run/device_kinds.h"
#include "sim/run/prepared.h"
#include "sim/run/reinforcement/phases.h"

namespace rehearse::run {

ForwardPass forward_pass(plan::Scenario scenario, std::int64_t cached, int steps, const Options& options) {
  make_forward_only(scenario, cached);
  Options own = options;
  own.steps = steps, own.record = false, own.samples = 0;
  own.progress = nullptr, own.phase = nullptr;
  const Prepared prepared(scenario, own);
  const engine::Outcome outcome = prepared.simulate(prepared.engine_options());
  ForwardPass pass;
  pass.cost.seconds = outcome.step_time.seconds();
  for (std::size_t i = 0; i < pass.cost.shares.size(); ++i)
    pass.cost.shares[i] = Time::from_ps(outcome.breakdown_ps[i]).seconds();
  double busy = 0;
  for (const double s : outcome.coverage_busy_s) busy += s;
  for (std::size_t i = 0; i < pass.coverage.size() && busy > 0; ++i)
    pass.coverage[i] = outcome.coverage_busy_s[i] / busy;
  if (outcome.busy_s > 0)
    pass.low = outcome.busy_low_s / outcome.busy_s, pass.high = outcome.busy_high_s / outcome.busy_s;
  pass.stages = stages_of(prepared.machine(), scenario, prepared.program(), prepared.arenas());
  return pass;
}

}  // namespace rehearse::run
