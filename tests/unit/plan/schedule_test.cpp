// What every schedule says of itself against its own slots. The closed form of its bubble is held to the simulation in
// tests/analytic/pipeline_test.cpp.
#include "sim/plan/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace rehearse::plan {
namespace {

struct Size {
  int stages, chunks, micro_batches;
};

// Of a step, those that pass a chunk: all, or with two copies of the model those of one direction.
int passes_of_chunk(const PipelineSchedule& schedule, int micro_batches) {
  return schedule.bidirectional() ? micro_batches / 2 : micro_batches;
}

// Of every schedule: what it can run.
std::vector<Size> sizes_of(const PipelineSchedule& schedule) {
  if (schedule.bidirectional()) return {{2, 2, 4}, {2, 2, 10}, {4, 2, 8}, {4, 2, 26}, {8, 2, 16}, {16, 2, 38}};
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
  EXPECT_EQ(schedule_names(),
            (std::vector<std::string_view>{"sequential", "gpipe", "1f1b", "interleaved", "zero_bubble", "zero_bubble_v",
                                           "dualpipe_v", "dualpipe"}));
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
    EXPECT_EQ(passes.size(), static_cast<std::size_t>(passes_of_chunk(schedule, micro_batches) * place.chunks));
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

// Megatron-LM has all forwards first where there is one round of micro-batches; torch.distributed.pipelining
// alternates.
TEST(Interleaved, OneRoundIsTheFrameworks) {
  for (const int stages : {2, 4, 8})
    for (int stage = 0; stage < stages; ++stage) {
      const int passes = 2 * stages;
      EXPECT_EQ(interleaved_schedule().held({stage, stages, 2}, stages), passes);
      const int first = std::min((stages - 1 - stage) * 2 + stages, passes);  // ScheduleInterleaved1F1B's warm-up
      EXPECT_EQ(interleaved_schedule().held({stage, stages, 2, false, true}, stages), std::min(first + 1, passes));
    }
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

// The paper's table 2: activations of p + 1 micro-batches, on every stage.
TEST(DualPipe, HoldsAPassAStageAndOne) {
  for (const int stages : {2, 4, 8, 16})
    for (const int micro_batches : {2 * stages, 2 * stages + 2, 9 * stages})
      for (int stage = 0; stage < stages; ++stage)
        EXPECT_EQ(dualpipe_schedule().held({stage, stages, 2}, micro_batches), stages + 1);
}

// Even numbers go down the stages, odd ones up, each half in its order; chunk 0 is of the stage's nearer end.
TEST(DualPipe, SendsHalfOfTheMicroBatchesFromEitherEnd) {
  for (int stage = 0; stage < 8; ++stage) {
    std::vector<int> down, up;
    for (const ScheduleSlot& slot : dualpipe_schedule().slots({stage, 8, 2}, 20)) {
      if (!slot.forward()) continue;
      const bool goes_down = slot.micro_batch % 2 == 0;
      EXPECT_EQ(goes_down, (slot.chunk == 0) == (stage < 4));
      (goes_down ? down : up).push_back(slot.micro_batch);
    }
    EXPECT_EQ(down, (std::vector<int>{0, 2, 4, 6, 8, 10, 12, 14, 16, 18}));
    EXPECT_EQ(up, (std::vector<int>{1, 3, 5, 7, 9, 11, 13, 15, 17, 19}));
  }
}

// What a pass waits for, and when it is over: stages run their slots in order, pairs as one slot of `pair` whose
// results are there at its end. Communication is free.
class Timetable {
 public:
  double forward = 1, backward_input = 1, backward_weight = 1, pair = 3;

  double of(const PipelineSchedule& schedule, int stages, int micro_batches) {
    std::vector<std::vector<ScheduleSlot>> slots;
    for (int stage = 0; stage < stages; ++stage)
      slots.push_back(schedule.slots({stage, stages, 2, true}, micro_batches));
    std::vector<std::size_t> next(slots.size());
    std::vector<double> now(slots.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < stages; ++stage) {
        auto& at = next[static_cast<std::size_t>(stage)];
        const auto& own = slots[static_cast<std::size_t>(stage)];
        double& clock = now[static_cast<std::size_t>(stage)];
        while (at < own.size()) {
          const bool paired = own[at].with_next;
          const auto ready = ready_at(own[at], stage, stages);
          const auto also = paired ? ready_at(own[at + 1], stage, stages) : ready;
          if (!ready || !also) break;
          clock = std::max({clock, *ready, *also}) + (paired ? pair : time_of(own[at].kind));
          if (own[at].kind != SlotKind::backward_weight) ends_[{own[at].forward(), stage, own[at].micro_batch}] = clock;
          if (paired) ends_[{false, stage, own[at + 1].micro_batch}] = clock;
          at += paired ? 2 : 1;
          moved = true;
        }
      }
    }
    for (std::size_t stage = 0; stage < slots.size(); ++stage) EXPECT_EQ(next[stage], slots[stage].size());
    return *std::max_element(now.begin(), now.end());
  }

 private:
  double time_of(SlotKind kind) const {
    return kind == SlotKind::forward          ? forward
           : kind == SlotKind::backward       ? backward_input + backward_weight
           : kind == SlotKind::backward_input ? backward_input
                                              : backward_weight;
  }
  std::optional<double> ready_at(const ScheduleSlot& slot, int stage, int stages) const {
    if (slot.kind == SlotKind::backward_weight) return 0;
    const int way = (slot.micro_batch % 2 == 0) == slot.forward() ? -1 : 1, from = stage + way;
    // The last stage of a direction begins the way back with its own forward.
    const bool end = from < 0 || from >= stages;
    if (end && slot.forward()) return 0;
    const auto found = ends_.find({end || slot.forward(), end ? stage : from, slot.micro_batch});
    return found == ends_.end() ? std::nullopt : std::optional(found->second);
  }

  std::map<std::tuple<bool, int, int>, double> ends_;  // forward, stage, micro-batch
};

// DeepSeek-AI 2024, arXiv 2412.19437, table 2: (p / 2 - 1) (F&B + B - 3 W), B with W in it. That
// is of the stages in the middle, which have most pairs.
TEST(DualPipe, WaitsAsLongAsItsAuthorsSay) {
  for (const int stages : {2, 4, 8, 16})
    for (const int micro_batches : {2 * stages, 2 * stages + 6, 6 * stages})
      for (const double pair : {2.0, 2.5, 3.0}) {
        Timetable times;
        times.pair = pair;
        const double busy_pairs = times.of(dualpipe_schedule(), stages, micro_batches);
        int pairs = 0, whole = 0;
        for (const ScheduleSlot& slot : dualpipe_schedule().slots({stages / 2 - 1, stages, 2, true}, micro_batches))
          pairs += slot.with_next ? 1 : 0;
        whole = micro_batches - pairs;
        const double busy = pairs * pair + whole * 3.0, waits = (stages / 2 - 1) * (pair + 2 - 3);
        EXPECT_NEAR(busy_pairs, busy + waits, 1e-9) << stages << " stages, " << micro_batches << ", F&B " << pair;
      }
}

}  // namespace
}  // namespace rehearse::plan
