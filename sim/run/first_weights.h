// The phase before the first step in which rank 0's weights become everybody's (training.first_weights: broadcast), in
// simulated time: its program (sim/account/first_weights.h) alone on the scenario's cluster, with every link that its
// messages share, and without noise.
#pragma once

#include "sim/result/result.h"
#include "sim/run/prepared.h"

namespace rehearse::run {

// Not known where nothing is sent.
result::FirstWeights first_weights_of(const Prepared& prepared);

}  // namespace rehearse::run
