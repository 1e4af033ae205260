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

}  // namespace

std::vector<ScheduleSlot> schedule_slots(plan::Schedule schedule, int stage, int stages, int micro_batches) {
  if (stages == 1) return one_by_one(micro_batches);
  switch (schedule) {
    case plan::Schedule::sequential: return one_by_one(micro_batches);
    case plan::Schedule::gpipe: return gpipe(micro_batches);
    case plan::Schedule::one_f_one_b: return one_f_one_b(stage, stages, micro_batches);
  }
  return {};
}

int sample_micro_batches(plan::Schedule schedule, int stage, int stages, int micro_batches) {
  const int warm_up = stages > 1 && schedule == plan::Schedule::one_f_one_b ? stages - stage - 1 : 0;
  return std::min(micro_batches, warm_up + 3);
}

}  // namespace rehearse::lower
