// The file of `rehearse execute --tensorboard`: a run's steps as curves of TensorBoard.
#pragma once

#include <string>

#include "execute/performer.h"

namespace rehearse::cli {

inline constexpr const char* kEventFile = "events.out.tfevents.rehearse";

// By step (of the training, from 1): `loss`, `step_s` of the slowest rank, and `breakdown/NAME_s`, what a step's time
// went to, the mean over ranks, of parts that any step has. A step's wall time is when its slowest rank was done, the
// last step's being now.
std::string event_file(const execute::Outcome& outcome);

}  // namespace rehearse::cli
