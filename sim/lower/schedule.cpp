#include "sim/lower/schedule.h"

#include <algorithm>

namespace rehearse::lower {
namespace {

std::vector<ScheduleSlot> one_by_one(int micro_batches) {
  std::vector<ScheduleSlot> slots;
  for (int m = 0; m < micro_batches; ++m) {
    slots.push_back({true, m});
    slots.push_back({false, m});
  }
  return slots;
}

std::vector<ScheduleSlot> gpipe(int micro_batches) {
  std::vector<ScheduleSlot> slots;
  for (int m = 0; m < micro_batches; ++m) slots.push_back({true, m});
  for (int m = micro_batches - 1; m >= 0; --m) slots.push_back({false, m});
  return slots;
}

std::vector<ScheduleSlot> one_f_one_b(int stage, int stages, int micro_batches) {
  const int warm_up = std::min(stages - stage - 1, micro_batches);
  std::vector<ScheduleSlot> slots;
  for (int m = 0; m < warm_up; ++m) slots.push_back({true, m});
  for (int m = 0; m + warm_up < micro_batches; ++m) {
    slots.push_back({true, m + warm_up});
    slots.push_back({false, m});
  }
  for (int m = micro_batches - warm_up; m < micro_batches; ++m) slots.push_back({false, m});
  return slots;
}

// The k-th forward (or backward) of a stage: groups of `stages` micro-batches pass chunk after chunk.
ScheduleSlot interleaved_slot(bool forward, int k, int stages, int chunks) {
  const int in_round = k % (stages * chunks);
  const int chunk = in_round / stages;
  return {forward, k / (stages * chunks) * stages + k % stages, forward ? chunk : chunks - 1 - chunk};
}

std::vector<ScheduleSlot> interleaved(int stage, int stages, int chunks, int micro_batches) {
  const int all = micro_batches * chunks;
  // With one round there is nothing to alternate with: all forwards come first, as in Megatron-LM.
  const int warm_up = micro_batches == stages ? all : std::min((stages - stage - 1) * 2 + (chunks - 1) * stages, all);
  std::vector<ScheduleSlot> slots;
  for (int k = 0; k < warm_up; ++k) slots.push_back(interleaved_slot(true, k, stages, chunks));
  for (int k = 0; k + warm_up < all; ++k) {
    slots.push_back(interleaved_slot(true, k + warm_up, stages, chunks));
    slots.push_back(interleaved_slot(false, k, stages, chunks));
  }
  for (int k = all - warm_up; k < all; ++k) slots.push_back(interleaved_slot(false, k, stages, chunks));
  return slots;
}

}  // namespace

std::vector<ScheduleSlot> schedule_slots(plan::Schedule schedule, int stage, int stages, int chunks,
                                         int micro_batches) {
  if (stages == 1) return one_by_one(micro_batches);
  switch (schedule) {
    case plan::Schedule::sequential:
      return one_by_one(micro_batches);
    case plan::Schedule::gpipe:
      return gpipe(micro_batches);
    case plan::Schedule::one_f_one_b:
      return one_f_one_b(stage, stages, micro_batches);
    case plan::Schedule::interleaved:
      return interleaved(stage, stages, chunks, micro_batches);
  }
  return {};
}

int sample_micro_batches(plan::Schedule schedule, int stage, int stages, int micro_batches) {
  if (schedule == plan::Schedule::interleaved && stages > 1) return std::min(micro_batches, stages);
  const int warm_up = stages > 1 && schedule == plan::Schedule::one_f_one_b ? stages - stage - 1 : 0;
  return std::min(micro_batches, warm_up + 3);
}

}  // namespace rehearse::lower
