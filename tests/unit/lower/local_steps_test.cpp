// plan.local_steps: what the outer step sends, moves and keeps, against hand counts; when its body runs; and that plans
// with it are sound whatever else they are.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "sim/program/work.h"
#include "tests/support/lowered.h"

namespace rehearse::local_steps_test {
namespace {

// 1,000 x 999 weights and 1,000 biases: 10^6 parameters in one bucket.
constexpr const char* kMillion =
    "rehearse: 1\nmodel: {family: mlp, widths: [999, 1000], loss: mse}\n"
    "cluster: {topology: dgx-a100, gpus: 16}\nframework: rehearse\nplan: {local_steps: 8}\n"
    "training: {global_batch: 16, precision: fp32, clip: 0}\n";
constexpr std::int64_t kM = 1'000'000;

struct Outer {
  std::map<std::string, std::int64_t> sent;  // bytes, by kind and group: as the collective has them
  std::int64_t moved = 0;                    // by kernels
  std::int64_t kept = 0, passing = 0;        // states, and what is gone again at its end
  std::int64_t inner_reduces = 0;            // collectives of the bodies that run in every step
};

Outer outer_of(const std::vector<std::string>& assignments) {
  const plan::Scenario scenario = scenario_from(kMillion, assignments);
  const program::Program program = lower::lower(scenario);
  EXPECT_EQ(violations(program, scenario.grid()), "");
  EXPECT_EQ(program::steps_per_round(program), scenario.plan.local_steps);
  const program::Role& role = program.roles.front();
  Outer outer;
  for (const program::Slot& slot : role.slots) {
    const program::Body& body = role.bodies[static_cast<std::size_t>(slot.body)];
    EXPECT_EQ(body.every, body.name == "outer" ? 8 : 1) << body.name;
    for (const program::Op& op : body.ops) {
      const auto* c = std::get_if<program::Collective>(&op.shape);
      if (body.every == 1) {
        outer.inner_reduces += c != nullptr ? 1 : 0;
        continue;
      }
      const program::Work work = program::work_of(role, op);
      outer.moved += work.bytes_read + work.bytes_written;
      if (c != nullptr)
        outer.sent[std::string(program::kind_name(op.shape)) + " " +
                   program.groups[static_cast<std::size_t>(c->group)].name] += program::collective_bytes(op);
    }
  }
  EXPECT_EQ(role.bodies[static_cast<std::size_t>(role.slots.back().body)].name, "outer") << "the last of the step";
  for (const program::Buffer& b : role.buffers) {
    if (b.is_view() || !b.name.starts_with("outer")) continue;
    (b.lifetime == program::Lifetime::persistent ? outer.kept : outer.passing) += b.bytes();
  }
  return outer;
}

using Sent = std::map<std::string, std::int64_t>;

TEST(LocalSteps, WorkersOfOneRankSendAllParametersInFp32) {
  const Outer mean = outer_of({});
  EXPECT_EQ(mean.sent, (Sent{{"all_reduce replica", 4 * kM}}));
  EXPECT_EQ(mean.inner_reduces, 0);
  EXPECT_EQ(mean.kept + mean.passing, 0) << "in place";
  EXPECT_EQ(mean.moved, 8 * kM) << "read and written once";

  const Outer moved = outer_of({"plan.outer_optimizer=nesterov"});
  EXPECT_EQ(moved.sent, mean.sent);
  EXPECT_EQ(moved.kept, 8 * kM);
  EXPECT_EQ(moved.passing, 4 * kM);
  EXPECT_EQ(moved.moved, (3 + 6) * 4 * kM) << "value, outer -> difference; sum, outer, momentum -> these two, values";
  EXPECT_EQ(outer_of({"plan.outer_optimizer=nesterov", "plan.outer_momentum=0"}).kept, 4 * kM);

  const Outer half = outer_of({"training.precision=bf16"});
  EXPECT_EQ(half.sent, mean.sent) << "the fp32 copy";
  EXPECT_EQ(half.moved, (4 + 4 + 2) * kM);
}

// Eight ranks of a node: an eighth of all crosses, in the place of all, and is gathered within the node.
TEST(LocalSteps, WorkersOfANodeSendEachAPart) {
  const Outer moved = outer_of({"plan.local_group=node", "plan.outer_optimizer=nesterov"});
  EXPECT_EQ(moved.sent, (Sent{{"all_reduce replica", 4 * kM / 8}, {"all_gather data", 4 * kM}}));
  EXPECT_EQ(moved.inner_reduces, 1);
  EXPECT_EQ(moved.kept, kM);
  EXPECT_EQ(moved.passing, kM / 2);
  EXPECT_EQ(outer_of({"plan.local_group=node", "training.precision=bf16"}).moved, (8 * kM / 8) + 6 * kM)
      << "the mean of a part, and the cast of all";
}

TEST(LocalSteps, PlansAreSound) {
  const std::string gpt =
      "rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n"
      "cluster: {topology: dgx-a100, gpus: 16}\nplan: {local_steps: 3}\ntraining: {global_batch: 32}\n";
  const std::vector<std::vector<std::string>> splits = {
      {},
      {"plan.local_group=node"},
      {"plan.tensor=2", "plan.pipeline=2"},
      {"plan.tensor=2", "plan.sequence_parallel=true", "plan.local_group=4"},
      {"plan.pipeline=4", "plan.schedule=1f1b", "plan.local_group=2"},
      {"plan.context=2", "plan.local_group=node"}};
  for (const char* framework : {"rehearse", "megatron-core", "torch-ddp"})
    for (const std::vector<std::string>& split : splits)
      for (const char* outer : {"average", "nesterov"})
        for (const char* more :
             {"training.optimizer=adamw", "training.moments=int8", "training.lora_rank=4", "training.optimizer=muon",
              "plan.overlap_grad_reduce=false", "plan.cuda_graphs=layer"}) {
          std::vector<std::string> all = split;
          all.insert(all.end(),
                     {std::string("framework=") + framework, std::string("plan.outer_optimizer=") + outer, more});
          std::string what;
          for (const std::string& one : all) what += one + " ";
          try {
            const plan::Scenario scenario = scenario_from(gpt, all);
            EXPECT_EQ(violations(lower::lower(scenario), scenario.grid()), "") << what;
          } catch (const InputError& error) {  // of the rest of the plan, not of local steps
            EXPECT_EQ(std::string(error.what()).find("plan.local_steps"), std::string::npos) << what << error.what();
          }
        }
}

// Of a replica that steps by its own examples the gradients are the mean over these, the loss its part of all.
TEST(LocalSteps, GradientsAreTheMeanOverAWorkersExamples) {
  const auto scales = [](const std::vector<std::string>& assignments) {
    std::map<bool, double> of_backward;
    const program::Program program = lower::lower(scenario_from(kMillion, assignments));
    for (const program::Body& body : program.roles.front().bodies)
      for (const program::Op& op : body.ops)
        if (const auto* loss = std::get_if<program::MeanSquaredError>(&op.shape))
          of_backward[loss->backward] = loss->scale;
    return of_backward;
  };
  const std::map<bool, double> together = scales({"plan.local_steps=0"});
  EXPECT_DOUBLE_EQ(together.at(true), together.at(false));
  for (const auto& [group, workers] : {std::pair{"replica", 16}, {"node", 2}, {"4", 4}}) {
    const std::map<bool, double> apart = scales({std::string("plan.local_group=") + group});
    EXPECT_DOUBLE_EQ(apart.at(false), together.at(false));
    EXPECT_DOUBLE_EQ(apart.at(true), workers * together.at(true)) << group;
  }
}

}  // namespace
}  // namespace rehearse::local_steps_test
