// training.first_weights: broadcast. Only the first of the ranks that hold the same draws its weights: what the others
// train with has come from it, or they would train with whatever their memory held. In fp32, and where the optimizer
// keeps an fp32 copy that is sent, every bit is as if each had drawn its own.
#include "sim/base/half.h"
#include "tests/numerics/plan_runs.h"

namespace rehearse {
namespace {

const std::string kMoe =
    "rehearse: 1\n"
    "model: {family: moe, layers: 2, hidden: 32, heads: 4, vocab: 250, max_seq_len: 16, ffn_hidden: 64, experts: 4, "
    "experts_per_token: 2, expert_ffn_hidden: 64, buffer_factor: 4}\n" +
    kTraining;

class FirstWeights : public testing::TestWithParam<Case> {};

TEST_P(FirstWeights, AreRankZerosOnAllRanks) {
  const Case& c = GetParam();
  Assignments sent = c.plan;
  sent.emplace_back("training.first_weights=broadcast");
  const execute::Outcome drawn = perform(c.text, c.plan, 3), broadcast = perform(c.text, sent, 3);
  EXPECT_EQ(broadcast.result.loss, drawn.result.loss);
  EXPECT_EQ(broadcast.parameters, drawn.parameters);
  EXPECT_FALSE(drawn.result.first_weights.known);
  EXPECT_TRUE(broadcast.result.first_weights.known);
  EXPECT_GT(broadcast.result.first_weights.time_ps, 0);
}

INSTANTIATE_TEST_SUITE_P(Plans, FirstWeights,
                         testing::Values(Case{"replicas", kGpt, grid(4, 1, 1, 0)},
                                         Case{"zero1", kLlama, grid(2, 1, 1, 1)},
                                         Case{"zero3", kLlama, grid(4, 1, 1, 3)},
                                         Case{"zero3_in_groups", kGpt, grid(4, 1, 1, 3, {"plan.zero_group=2"})},
                                         Case{"tensor_and_pipeline", kGpt, grid(8, 2, 2, 2)},
                                         Case{"experts", kMoe, grid(4, 1, 1, 1, {"plan.expert=2"})},
                                         Case{"bf16", kLlama, grid(2, 1, 1, 1, {"training.precision=bf16"})}),
                         name_of_case);

// A rank is sent all that it holds: of replicas the whole model, in one message as long as that is less than 250 MiB.
TEST(FirstWeightsSent, OfReplicasAreTheModelInFp32) {
  const execute::Outcome r = perform(kGpt, grid(2, 1, 1, 0, {"training.first_weights=broadcast"}), 1);
  std::int64_t elements = 0;
  for (const auto& [name, values] : r.parameters) elements += static_cast<std::int64_t>(values.size());
  EXPECT_EQ(r.result.first_weights.bytes, 4 * elements);
  EXPECT_EQ(r.result.first_weights.messages, 1);
  EXPECT_FALSE(perform(kGpt, grid(1, 1, 1, 0, {"training.first_weights=broadcast"}), 1).result.first_weights.known)
      << "nobody to send to";
}

// DeepSpeed casts the model before: the optimizer's fp32 copies begin as what 16 bits hold, and each parameter is a
// message.
TEST(FirstWeightsSent, OfAModelThatIsCastBeforeHaveSixteenBits) {
  const Assignments plan = grid(2, 1, 1, 1, {"training.precision=bf16", "training.lr=0", "framework=deepspeed"});
  Assignments drawn = plan;
  drawn.emplace_back("training.first_weights=seeded");
  const execute::Outcome sent = perform(kGpt, plan, 1), own = perform(kGpt, drawn, 1);
  bool rounded = false;
  for (const auto& [name, values] : own.parameters)
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float expected = float_of_bf16(bf16_of_float(values[i]));
      rounded |= expected != values[i];
      ASSERT_EQ(sent.parameters.at(name)[i], expected) << name;
    }
  EXPECT_TRUE(rounded);
  EXPECT_EQ(sent.result.first_weights.messages, static_cast<std::int64_t>(own.parameters.size()));
}

}  // namespace
}  // namespace rehearse
