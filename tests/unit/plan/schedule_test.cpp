// What every schedule says of itself against its own slots. The closed form of its bubble is held to the simulation in
// tests/analytic/pipeline_test.cpp.
#include "sim/plan/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace rehearse::plan {
namespace {

struct Size {
  int stages, chunks, micro_batches;
};

// Of every schedule: what it can run.
std::vector<Size> sizes_of(const PipelineSchedule& schedule) {
  if (schedule.takes_chunks()) return {{2, 2, 2}, {2, 2, 6}, {4, 2, 8}, {3, 3, 6}, {4, 3, 4}};
  return {{1, 1, 3}, {2, 1, 1}, {2, 1, 7}, {4, 1, 2}, {4, 1, 4}, {4, 1, 13}, {8, 1, 24}};
}

template <class Visit>
void for_each_stage(Visit visit) {
  for (const std::string_view name : schedule_names()) {
    const PipelineSchedule& schedule = *find_schedule(name);
    for (const Size& c : sizes_of(schedule))
      for (int stage = 0; stage < c.stages; ++stage) {
        SCOPED_TRACE(std::string(name) + " stage " + std::to_string(stage) + " of " + std::to_string(c.stages) + ", " +
                     std::to_string(c.chunks) + " chunks, " + std::to_string(c.micro_batches) + " micro-batches");
        visit(schedule, PipelinePlace{stage, c.stages, c.chunks}, c.micro_batches);
      }
  }
}

TEST(Schedules, AreListedInTheOrderOfTheEnumeration) {
  EXPECT_EQ(schedule_names(),
            (std::vector<std::string_view>{"sequential", "gpipe", "1f1b", "interleaved", "zero_bubble"}));
  EXPECT_EQ(&schedule_of(Schedule::zero_bubble), find_schedule("zero_bubble"));
  EXPECT_EQ(schedule_of(Schedule::gpipe, 1).name(), "sequential") << "with one stage";
  EXPECT_EQ(find_schedule("2f2b"), nullptr);
}

// A pass begins with its forward and is over with its backward, or with the weight part of it.
TEST(Schedules, HoldAsManyPassesAsTheySay) {
  for_each_stage([](const PipelineSchedule& schedule, const PipelinePlace& place, int micro_batches) {
    const SlotKind over = schedule.parts_backward() ? SlotKind::backward_weight : SlotKind::backward;
    int held = 0, most = 0;
    for (const ScheduleSlot& slot : schedule.slots(place, micro_batches)) {
      held += slot.forward() ? 1 : 0;
      most = std::max(most, held);
      held -= slot.kind == over ? 1 : 0;
    }
    EXPECT_EQ(held, 0);
    EXPECT_EQ(schedule.held(place, micro_batches), most);
  });
}

TEST(Schedules, RunEveryPassOnceForwardBeforeBackward) {
  for_each_stage([](const PipelineSchedule& schedule, const PipelinePlace& place, int micro_batches) {
    std::map<std::pair<int, int>, std::vector<SlotKind>> passes;
    for (const ScheduleSlot& slot : schedule.slots(place, micro_batches))
      passes[{slot.micro_batch, slot.chunk}].push_back(slot.kind);
    EXPECT_EQ(passes.size(), static_cast<std::size_t>(micro_batches * place.chunks));
    const std::vector<SlotKind> whole{SlotKind::forward, SlotKind::backward},
        parted{SlotKind::forward, SlotKind::backward_input, SlotKind::backward_weight};
    for (const auto& [pass, kinds] : passes) EXPECT_EQ(kinds, schedule.parts_backward() ? parted : whole);
  });
}

}  // namespace
}  // namespace rehearse::plan
