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
  if (schedule.own_chunks()) return {{2, 2, 4}, {2, 2, 7}, {3, 2, 6}, {4, 2, 8}, {4, 2, 21}, {8, 2, 16}};
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
        if (schedule.alternates(c.stages))
          visit(schedule, PipelinePlace{stage, c.stages, c.chunks, true}, c.micro_batches);
      }
  }
}

TEST(Schedules, AreListedInTheOrderOfTheEnumeration) {
  EXPECT_EQ(schedule_names(), (std::vector<std::string_view>{"sequential", "gpipe", "1f1b", "interleaved",
                                                             "zero_bubble", "zero_bubble_v", "dualpipe_v"}));
  EXPECT_EQ(&schedule_of(Schedule::zero_bubble), find_schedule("zero_bubble"));
  EXPECT_EQ(&schedule_of(Schedule::dualpipe_v), find_schedule("dualpipe_v"));
  EXPECT_EQ(schedule_of(Schedule::gpipe, 1).name(), "sequential") << "with one stage";
  EXPECT_EQ(find_schedule("2f2b"), nullptr);
}

// A pass begins with its forward and is over with its backward, or with the weight part of it.
TEST(Schedules, HoldAsManyPassesAsTheySay) {
  for_each_stage([](const PipelineSchedule& schedule, const PipelinePlace& place, int micro_batches) {
    int held = 0, most = 0;
    for (const ScheduleSlot& slot : schedule.slots(place, micro_batches)) {
      held += slot.forward() ? 1 : 0;
      most = std::max(most, held);
      held -= slot.kind == SlotKind::backward_weight || slot.kind == SlotKind::backward ? 1 : 0;
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
    for (const auto& [pass, kinds] : passes) EXPECT_EQ(kinds, kinds.size() == 2 ? whole : parted);
  });
}

// No pair is of a micro-batch's own forward and backward through a chunk.
TEST(Schedules, PairForwardsWithBackwardsOfOtherPasses) {
  int pairs = 0;
  for_each_stage([&](const PipelineSchedule& schedule, const PipelinePlace& place, int micro_batches) {
    if (!place.pairs) return;
    const std::vector<ScheduleSlot> slots = schedule.slots(place, micro_batches);
    EXPECT_FALSE(slots.back().with_next);
    for (std::size_t i = 1; i < slots.size(); ++i) {
      if (!slots[i - 1].with_next) continue;
      ++pairs;
      EXPECT_TRUE(slots[i - 1].forward());
      EXPECT_EQ(slots[i].kind, SlotKind::backward);
      EXPECT_NE(std::pair(slots[i].micro_batch, slots[i].chunk),
                std::pair(slots[i - 1].micro_batch, slots[i - 1].chunk));
    }
  });
  EXPECT_GT(pairs, 50);
}

// The whole model passes the first stage at both ends, and the last stage passes it on to itself.
TEST(DualPipeV, GoesDownTheStagesAndBackUp) {
  const PipelineSchedule& schedule = dualpipe_v_schedule();
  std::vector<int> stages;
  for (int part = 0; part < 8; ++part) stages.push_back(schedule.stage_of(part, 4));
  EXPECT_EQ(stages, (std::vector<int>{0, 1, 2, 3, 3, 2, 1, 0}));
  for (int part = 0; part < 8; ++part) EXPECT_EQ(interleaved_schedule().stage_of(part, 4), part % 4);
}

// No more than the first stage of 1f1b, of half as large chunks.
TEST(ZeroBubbleV, HoldsTwoPassesAStage) {
  for (const int stages : {2, 4, 8, 16})
    for (const int micro_batches : {2 * stages - 1, 2 * stages + 1, 9 * stages})
      for (int stage = 0; stage < stages; ++stage)
        EXPECT_EQ(zero_bubble_v_schedule().held({stage, stages, 2}, micro_batches), 2 * stages);
}

// With fewer micro-batches than fill the pipeline too.
TEST(ZeroBubbleV, TakesAnyNumberOfMicroBatches) {
  for (const int micro_batches : {1, 2, 3, 8})
    for (int stage = 0; stage < 4; ++stage)
      EXPECT_EQ(zero_bubble_v_schedule().slots({stage, 4, 2}, micro_batches).size(),
                static_cast<std::size_t>(6 * micro_batches));
}

// Its authors' table: what p + 1 stages of half the size hold, whichever stage it is, however many micro-batches.
TEST(DualPipeV, HoldsTwoPassesAStageAndOne) {
  for (const int stages : {2, 4, 8, 16})
    for (const int micro_batches : {2 * stages, 2 * stages + 1, 9 * stages})
      for (int stage = 0; stage < stages; ++stage)
        EXPECT_EQ(dualpipe_v_schedule().held({stage, stages, 2}, micro_batches), 2 * stages + 1);
}

}  // namespace
}  // namespace rehearse::plan
