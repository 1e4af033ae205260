// How many steps an epoch is. As PyTorch counts it: DistributedSampler gives each of the R replicas floor(N / R) of the
// N samples (drop_last) or ceil(N / R), some of which are then there twice; DataLoader makes batches of b =
// global_batch / R samples of these, and drops what does not fill the last one, or has it smaller. So floor(floor(N /
// R) / b) or ceil(ceil(N / R) / b) steps, where one step is all micro-batches that are accumulated.
#pragma once

#include "sim/plan/scenario.h"
#include "sim/result/result.h"

namespace rehearse::account {

// samples 0 where the scenario does not say how many there are.
result::Epoch epoch_of(const plan::Scenario& scenario);

}  // namespace rehearse::account
