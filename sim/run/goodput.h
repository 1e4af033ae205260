// What a scenario's run of weeks comes to: its step from its own simulation, failures and checkpoints from its sections
// `failures` and `checkpoint`, the rest by events (weeks.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/result/goodput.h"
#include "sim/run/weeks.h"

namespace rehearse::run {

struct GoodputOptions {
  double days = 0;   // how long it runs; 0: until `units`
  double units = 0;  // tokens, or samples of a model that reads none, to train on
  std::int64_t samples = 1000;
  double price_per_gpu_hour = 0;
  int threads = 1;
  double first_weights_s = 0;  // after each restart, before its first step (result::FirstWeights)
  // Of failures.without_spares: fewer_replicas: the step with so many replicas missing, seconds.
  std::function<double(std::int64_t missing)> step_s_missing;
};

// `step_s`: of the scenario; `devices`: of one host. Throws InputError: no failures, no storage bandwidth, a checkpoint
// whose size does not follow.
result::Goodput goodput_of(const plan::Scenario& scenario, double step_s, std::int64_t devices,
                           const GoodputOptions& options);

// Each trained parameter once: in fp32 4 bytes, else its 2 bytes (1 held in 8 bits) and the fp32 copy's 4; of its
// moments 4 bytes each (AdamW two, SGD with momentum one), 2 or 1 as training.moments says; of Adafactor's means, which
// are short, nothing. With adapters the frozen parameters too, in 16 bits or fp32, where checkpoint.mode is
// incremental: they are written now and then; otherwise whether they are is for the scenario to say (InputError).
double checkpoint_bytes(const plan::Scenario& scenario);

// A run of which so many replicas are missing goes on with whole replicas and the same batch, all alike, as
// `rehearse execute --elastic` does: with the most of them that share its micro-batches evenly. Its step is that of the
// whole run with as many micro-batches a replica: global batches to simulate it with, the least first, since a pipeline
// schedule may take whole rounds of micro-batches only.
std::vector<std::int64_t> batches_with_missing(const plan::Scenario& scenario, std::int64_t missing);

// The devices of a host of the scenario's topology.
std::int64_t devices_of_host(const plan::Scenario& scenario, const std::string& data_root);

}  // namespace rehearse::run
