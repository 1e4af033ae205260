// Pipelines against their closed form: with p equal stages, m micro-batches and free communication the bubble of GPipe
// and 1F1B is (p - 1) / (m + p - 1) of the step (Huang et al. 2019; Narayanan et al. 2021); sequential keeps a stage
// busy 1/p.
#include <gtest/gtest.h>

#include <array>

#include "sim/plan/framework.h"
#include "sim/plan/schedule/schedule.h"
#include "tests/support/simulated.h"

namespace rehearse {
namespace {

constexpr Time kStageForward = Time::from_us(100), kStageBackward = Time::from_us(200);

struct Case {
  std::string schedule;
  int stages, micro_batches;
};

engine::Outcome run(const Case& c, int layers_per_stage = 1, int data = 1, const std::string& framework = "rehearse") {
  const auto scenario = scenario_from(
      "rehearse: 1\nmodel: {family: gpt, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n",
      {"model.layers=" + std::to_string(c.stages * layers_per_stage), "plan.pipeline=" + std::to_string(c.stages),
       "cluster.gpus=" + std::to_string(c.stages * data), "plan.schedule=" + c.schedule, "framework=" + framework,
       "training.global_batch=" + std::to_string(c.micro_batches * data)});
  return simulated(scenario, block_costs(kStageForward, kStageBackward), Communication::free, {}, 2);
}

TEST(PipelineBubble, IsTheClosedForm) {
  for (const char* framework : {"rehearse", "megatron-2021"}) {
    for (const char* schedule : {"gpipe", "1f1b"}) {
      for (const auto& [p, m] : {std::pair{3, 4}, {4, 4}, {2, 1}, {8, 96}, {5, 3}}) {
        const auto outcome = run({schedule, p, m}, 1, 1, framework);
        const double expected = (p - 1.0) / (m + p - 1.0);
        EXPECT_NEAR(share(outcome, result::Share::bubble), expected, 1e-9)
            << framework << " " << schedule << " p=" << p << " m=" << m;
        EXPECT_EQ(outcome.step_time, (kStageForward + kStageBackward) * (m + p - 1));
      }
    }
  }
}

TEST(PipelineBubble, ThreeStagesFourMicroBatchesIsAThirdAndFourByFourThreeSevenths) {
  EXPECT_NEAR(share(run({"gpipe", 3, 4}), result::Share::bubble), 1.0 / 3, 1e-9);
  EXPECT_NEAR(share(run({"gpipe", 4, 4}), result::Share::bubble), 3.0 / 7, 1e-9);
}

TEST(PipelineBubble, SequentialIsBusyOnePthOfTheStep) {
  for (const int p : {2, 3, 4}) {
    const auto outcome = run({"sequential", p, 4});
    EXPECT_NEAR(share(outcome, result::Share::compute), 1.0 / p, 1e-9);
    EXPECT_NEAR(share(outcome, result::Share::bubble), 1 - 1.0 / p, 1e-9);
  }
}

// With tensor parallelism a message is sent in slices that the receiver gathers, so what compute waits for is the
// gather, perhaps behind a host sync and a launch; the time the gather waits for the message is the bubble all the
// same.
TEST(PipelineBubble, IsTheClosedFormWhenTheMessageIsGatheredWhateverTheFramework) {
  int profiles = 0;
  for (const std::string& name : plan::framework_names()) {
    const plan::FrameworkProfile& profile = *plan::find_framework(name);
    if (profile.data_parallel_only || !profile.replicas_as.empty()) continue;
    ++profiles;
    for (const char* schedule : {"1f1b", "gpipe"}) {
      const auto scenario = scenario_from(
          "rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 64, heads: 4, vocab: 128, max_seq_len: 32}\n",
          {"plan.pipeline=4", "plan.tensor=2", "cluster.gpus=8", "training.global_batch=6", "framework=" + name,
           std::string("plan.schedule=") + schedule});
      // Slots so long that all launches of one are a thousandth of it.
      const auto outcome = simulated(scenario, block_costs(Time::from_us(1'000'000), Time::from_us(2'000'000)),
                                     Communication::free, {}, 2, profile.launch_cost);
      EXPECT_NEAR(share(outcome, result::Share::bubble), 3.0 / 9, 1e-3) << name << " " << schedule;
      EXPECT_NEAR(share(outcome, result::Share::compute), 6.0 / 9, 1e-3) << name << " " << schedule;
      EXPECT_LT(share(outcome, result::Share::exposed_tensor), 1e-6) << name << " " << schedule;
    }
  }
  EXPECT_GE(profiles, 2);
}

// With v chunks a stage a slot is 1 / v as long, and so is the bubble: (p - 1) / (m v + p - 1).
TEST(PipelineBubble, OfAnInterleavedScheduleIsDividedByTheChunks) {
  for (const auto& [p, v, m] : {std::array{2, 2, 4}, {4, 2, 8}, {3, 3, 6}, {4, 3, 4}}) {
    const auto scenario =
        scenario_from("rehearse: 1\nmodel: {family: gpt, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n",
                      {"model.layers=" + std::to_string(p * v), "plan.pipeline=" + std::to_string(p),
                       "plan.schedule=interleaved", "plan.chunks=" + std::to_string(v),
                       "cluster.gpus=" + std::to_string(p), "training.global_batch=" + std::to_string(m)});
    const auto outcome = simulated(scenario, block_costs(kStageForward, kStageBackward), Communication::free, {}, 2);
    EXPECT_NEAR(share(outcome, result::Share::bubble), (p - 1.0) / (m * v + p - 1.0), 1e-9)
        << p << " " << v << " " << m;
  }
}

// ZB-H1 (Qi et al. 2023, arXiv 2401.10241): every stage waits (p - 1) (F + B - W) a step, B the input gradients alone.
TEST(PipelineBubble, OfZeroBubbleIsShorterByTheWeightGradients) {
  struct Times {
    int forward, input, weight;
  };
  for (const Times& t : {Times{100, 100, 100}, {100, 120, 90}, {100, 150, 50}}) {
    const GivenCosts costs([&](const program::Op& op) {
      if (ends_with(op.name, "mlp.up.forward")) return Time::from_us(t.forward);
      if (ends_with(op.name, "mlp.up.backward_input")) return Time::from_us(t.input);
      if (ends_with(op.name, "mlp.up.backward_weight")) return Time::from_us(t.weight);
      return Time();
    });
    for (const char* framework : {"rehearse", "megatron-2021"}) {
      for (const auto& [p, m] : {std::pair{2, 2}, {2, 7}, {3, 6}, {4, 4}, {4, 13}, {8, 24}}) {
        const auto scenario =
            scenario_from("rehearse: 1\nmodel: {family: gpt, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n",
                          {"model.layers=" + std::to_string(p), "plan.pipeline=" + std::to_string(p),
                           "plan.schedule=zero_bubble", "cluster.gpus=" + std::to_string(p),
                           std::string("framework=") + framework, "training.global_batch=" + std::to_string(m)});
        const auto outcome = simulated(scenario, costs, Communication::free, {}, 2);
        const int busy = m * (t.forward + t.input + t.weight), bubble = (p - 1) * (t.forward + t.input - t.weight);
        EXPECT_EQ(outcome.step_time, Time::from_us(busy + bubble)) << framework << " p=" << p << " m=" << m;
        EXPECT_NEAR(share(outcome, result::Share::bubble), static_cast<double>(bubble) / (busy + bubble), 1e-9);
      }
    }
  }
}

struct ChunkTimes {
  int forward, input, weight;
};

// What every stage waits a step, with chunks of these times and free communication; the model goes down and back up.
void expect_bubble_of_half_stages(const std::string& schedule, const std::pair<int, int>& stages_and_micro_batches,
                                  const ChunkTimes& t, int bubble_of_a_stage) {
  const GivenCosts costs([&](const program::Op& op) {
    if (ends_with(op.name, "mlp.up.forward")) return Time::from_us(t.forward);
    if (ends_with(op.name, "mlp.up.backward_input")) return Time::from_us(t.input);
    if (ends_with(op.name, "mlp.up.backward_weight")) return Time::from_us(t.weight);
    return Time();
  });
  const auto [p, m] = stages_and_micro_batches;
  for (const char* framework : {"rehearse", "megatron-2021"}) {
    const auto scenario =
        scenario_from("rehearse: 1\nmodel: {family: gpt, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n",
                      {"model.layers=" + std::to_string(2 * p), "plan.pipeline=" + std::to_string(p),
                       "plan.schedule=" + schedule, "cluster.gpus=" + std::to_string(p),
                       std::string("framework=") + framework, "training.global_batch=" + std::to_string(m)});
    const auto outcome = simulated(scenario, costs, Communication::free, {}, 2);
    const int busy = 2 * m * (t.forward + t.input + t.weight), bubble = (p - 1) * bubble_of_a_stage;
    EXPECT_EQ(outcome.step_time, Time::from_us(busy + bubble)) << framework << " p=" << p << " m=" << m;
    EXPECT_NEAR(share(outcome, result::Share::bubble), static_cast<double>(bubble) / (busy + bubble), 1e-9);
  }
}

// Of a chunk's forward F, input gradients B and weight gradients W, B <= F: every stage waits (p - 1) (F + B - W) a
// step, and no longer than (p - 1) F if W exceeds B.
TEST(PipelineBubble, OfDualPipeVIsOfHalfAStage) {
  for (const ChunkTimes& t : {ChunkTimes{100, 100, 100}, {100, 90, 60}, {100, 100, 20}, {100, 60, 80}})
    for (const auto& size : {std::pair{2, 4}, {2, 7}, {3, 6}, {4, 13}, {8, 16}})
      expect_bubble_of_half_stages("dualpipe_v", size, t, t.forward + std::max(0, t.input - t.weight));
}

// Of a stage's forward F, input gradients B and weight gradients W, B <= F: (p / 2 - 1) (F + max(0, B - W)), as
// dualpipe_v's of half as many stages, with whole stages in the place of chunks.
TEST(PipelineBubble, OfDualPipeIsOfHalfTheStages) {
  for (const ChunkTimes& t : {ChunkTimes{100, 100, 100}, {100, 90, 60}, {100, 100, 20}, {100, 60, 80}})
    for (const auto& [p, m] : {std::pair{2, 4}, {2, 10}, {4, 8}, {4, 14}, {6, 12}, {8, 26}}) {
      const GivenCosts costs([&](const program::Op& op) {
        if (ends_with(op.name, "mlp.up.forward")) return Time::from_us(t.forward);
        if (ends_with(op.name, "mlp.up.backward_input")) return Time::from_us(t.input);
        return ends_with(op.name, "mlp.up.backward_weight") ? Time::from_us(t.weight) : Time();
      });
      const auto scenario = scenario_from(
          "rehearse: 1\nmodel: {family: gpt, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n",
          {"model.layers=" + std::to_string(p), "plan.pipeline=" + std::to_string(p), "plan.schedule=dualpipe",
           "cluster.gpus=" + std::to_string(p), "training.global_batch=" + std::to_string(m)});
      const auto outcome = simulated(scenario, costs, Communication::free, {}, 2);
      const int busy = m * (t.forward + t.input + t.weight),
                bubble = (p / 2 - 1) * (t.forward + std::max(0, t.input - t.weight));
      EXPECT_EQ(outcome.step_time, Time::from_us(busy + bubble)) << "p=" << p << " m=" << m;
    }
}

// Where the three are alike it is the way to the last stage alone.
TEST(PipelineBubble, OfZeroBubbleVIsTheWayThere) {
  for (const ChunkTimes& t : {ChunkTimes{100, 100, 100}, {100, 120, 90}, {60, 120, 120}, {100, 150, 50}})
    for (const auto& size : {std::pair{2, 3}, {2, 7}, {3, 5}, {4, 12}, {8, 15}})
      expect_bubble_of_half_stages("zero_bubble_v", size, t, std::max(t.input, 2 * (t.input - t.weight)));
}

// What each schedule's file gives as its closed form is what is simulated.
TEST(PipelineBubble, IsWhatTheSchedulesFileSays) {
  const GivenCosts costs([](const program::Op& op) {
    if (ends_with(op.name, "mlp.up.forward")) return Time::from_us(100);
    if (ends_with(op.name, "mlp.up.backward_input")) return Time::from_us(120);
    return ends_with(op.name, "mlp.up.backward_weight") ? Time::from_us(90) : Time();
  });
  for (const std::string_view name : plan::schedule_names()) {
    const plan::PipelineSchedule& schedule = *plan::find_schedule(name);
    const int p = 4, v = schedule.takes_chunks() || schedule.own_chunks() ? 2 : 1, m = 8;
    const auto scenario =
        scenario_from("rehearse: 1\nmodel: {family: gpt, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n",
                      {"model.layers=" + std::to_string(p * v), "plan.pipeline=" + std::to_string(p),
                       "plan.schedule=" + std::string(name), "plan.chunks=" + std::to_string(v),
                       "cluster.gpus=" + std::to_string(p), "training.global_batch=" + std::to_string(m)});
    const auto outcome = simulated(scenario, costs, Communication::free, {}, 2);
    const plan::PassTimes times{100e-6 * v, 120e-6 * v, 90e-6 * v};
    const double bubble = schedule.bubble(times, {0, p, v}, m);
    EXPECT_NEAR(outcome.step_time.seconds(), m * times.whole() + bubble, 1e-9) << name;
    EXPECT_NEAR(share(outcome, result::Share::bubble), bubble / (m * times.whole() + bubble), 1e-9) << name;
  }
}

TEST(PipelineBubble, DoesNotDependOnReplicasOrLayersPerStage) {
  EXPECT_NEAR(share(run({"1f1b", 4, 8}, 3, 3), result::Share::bubble), 3.0 / 11, 1e-9);
}

TEST(PipelineBubble, FifteenLayersOnThreeStages) {
  const auto outcome = run({"1f1b", 3, 6}, 5);
  EXPECT_EQ(outcome.step_time, (kStageForward + kStageBackward) * 5 * (6 + 3 - 1));
}

}  // namespace
}  // namespace rehearse
