// Pipeline schedules: in which order a stage runs its forward and backward slots. One function a schedule.
//
//   sequential  F0 B0 F1 B1 ...: one micro-batch in the whole pipeline at a time; a stage is busy 1/p of the step.
//   gpipe       F0 .. F(m-1), B(m-1) .. B0 (Huang et al. 2019, arXiv 1811.06965).
//   1f1b        p - stage - 1 forwards, then one forward, one backward in turn, then the rest (Narayanan et al. 2021,
//               arXiv 2104.04473): at most p micro-batches' activations are kept.
//   interleaved 1f1b over `chunks` model chunks a stage, p micro-batches through a chunk at a time (the same paper,
//               section 2.2, as Megatron-LM's forward_backward_pipelining_with_interleaving orders them).
// The bubble of gpipe and 1f1b is (p - 1) / (m + p - 1) of the step with equal stages and free communication; of
// interleaved (p - 1) / (m v + p - 1) with v chunks.
#pragma once

#include <vector>

#include "sim/plan/plan.h"

namespace rehearse::lower {

struct ScheduleSlot {
  bool forward = true;
  int micro_batch = 0;
  int chunk = 0;
};

std::vector<ScheduleSlot> schedule_slots(plan::Schedule schedule, int stage, int stages, int chunks, int micro_batches);

// Micro-batches that show every neighbourhood of slots a stage has (interleaved: that run every body), however many
// there are.
int sample_micro_batches(plan::Schedule schedule, int stage, int stages, int micro_batches);

}  // namespace rehearse::lower
