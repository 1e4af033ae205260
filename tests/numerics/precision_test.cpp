// Training in 16 bits: every plan follows a single rank of the same precision, bf16 and fp16 follow fp32, and the loss
// scale of fp16 skips the steps that overflow on every rank alike.
//
// Tolerances. A 16-bit number is off by at most u of itself, 2^-8 (bf16) or 2^-11 (fp16); parameters have fp32 copies,
// so nothing adds up over the steps but what the gradients say. A split adds in another order: partial sums of tensor
// ranks and of micro-batches are rounded before they are added, which puts a logit off by about u of its size. Rounding
// errors are as good as random, and a loss is the mean over 192 tokens: its error is about u / sqrt(192) = u / 14 of
// the logits' share in it, and losses are to agree to u / 16 (measured: at most u / 46). Parameters differ by what Adam
// makes of gradients that are off: a whole step where a small one's sign turns; over all elements the distance is to
// stay below u (measured: 0.7 u at most).
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/numerics/performed.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

using Assignments = std::vector<std::string>;

const std::string kGpt =
    "rehearse: 1\n"
    "model: {family: gpt, layers: 4, hidden: 32, heads: 4, vocab: 250, max_seq_len: 16, tied_embeddings: true}\n"
    "training: {global_batch: 12, lr: 1e-3, warmup_steps: 4, lr_schedule: cosine, seed: 3}\n";
const std::string kLlama =
    "rehearse: 1\n"
    "model: {family: llama, layers: 4, hidden: 32, heads: 8, kv_heads: 4, ffn_hidden: 64, vocab: 250, max_seq_len: "
    "16}\n"
    "training: {global_batch: 12, lr: 1e-3, warmup_steps: 4, lr_schedule: cosine, seed: 3}\n";
const std::string kCnn =
    "rehearse: 1\n"
    "model: {family: cnn, image: {channels: 2, size: 8}, convolutions: [{channels: 6, kernel: 3, pool: 2}, "
    "{channels: 8, kernel: 3, pool: 1}], widths: [24, 5]}\n"
    "training: {global_batch: 12, optimizer: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.001, clip: 0.5}\n";

double unit_roundoff(const std::string& precision) {
  return precision == "bf16" ? 0x1p-8 : 0x1p-11;
}

Assignments with(Assignments all, const Assignments& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
Assignments in(const std::string& precision, const Assignments& more = {}) {
  return with({"training.precision=" + precision, "training.grad_dtype=fp32", "training.reduce_dtype=fp32"}, more);
}
Assignments one_rank() {
  return {"cluster.gpus=1", "plan.micro_batch=12"};
}

execute::Outcome perform(const std::string& text, const Assignments& assignments, int steps = 20) {
  return performed(scenario_from(text, assignments), steps);
}

// Of one rank; many cases are compared with it.
const execute::Outcome& one_ranks_outcome(const std::string& text, const Assignments& assignments) {
  static std::map<std::pair<std::string, Assignments>, execute::Outcome> known;
  const auto [found, is_new] = known.try_emplace({text, assignments});
  if (is_new) found->second = perform(text, with(assignments, one_rank()));
  return found->second;
}

double mean_of_last_5(const std::vector<double>& losses) {
  return std::accumulate(losses.end() - 5, losses.end(), 0.0) / 5;
}

double distance(const execute::Parameters& expected, const execute::Parameters& actual) {
  double difference = 0, norm = 0;
  for (const auto& [name, values] : expected) {
    const auto& other = actual.at(name);
    const std::size_t n = std::min(values.size(), other.size());  // the vocabulary's padding depends on the split
    for (std::size_t i = 0; i < n; ++i) {
      difference += std::pow(double{values[i]} - double{other[i]}, 2);
      norm += std::pow(double{values[i]}, 2);
    }
  }
  return std::sqrt(difference / norm);
}

// The largest relative difference of a step's losses.
double apart(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : HUGE_VAL;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(b[i] / a[i] - 1));
  return most;
}

struct Case {
  std::string name, precision, text;
  Assignments plan, training = {};  // the latter for the single rank too
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}
std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

Assignments grid(int gpus, int tensor, int pipeline, int zero, const Assignments& more = {}) {
  return with({"cluster.gpus=" + std::to_string(gpus), "plan.tensor=" + std::to_string(tensor),
               "plan.pipeline=" + std::to_string(pipeline), "plan.zero=" + std::to_string(zero), "plan.bucket=8KiB"},
              more);
}

class Precisions : public testing::TestWithParam<Case> {};

TEST_P(Precisions, TrainAsOneRankDoes) {
  const Case& c = GetParam();
  const Assignments both = in(c.precision, c.training);
  const execute::Outcome& one = one_ranks_outcome(c.text, both);
  const execute::Outcome many = perform(c.text, with(both, c.plan));
  const double u = unit_roundoff(c.precision);
  EXPECT_LT(apart(one.result.loss, many.result.loss), u / 16);
  EXPECT_LT(distance(one.parameters, many.parameters), u);
  EXPECT_LT(mean_of_last_5(one.result.loss), one.result.loss.front()) << "one rank does not learn";
  for (const auto& state : many.loss_scales) EXPECT_EQ(state, one.loss_scales.front());
  EXPECT_EQ(many.loss_scales.empty(), c.precision == "bf16");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string p : {"bf16", "fp16"}) {
    const auto add = [&](const std::string& name, const std::string& text, const Assignments& plan,
                         const Assignments& training = {}) {
      all.push_back({p + "_" + name, p, text, plan, training});
    };
    const Assignments dropout = {"model.dropout=0.1"};
    const Assignments half = {"training.grad_dtype=" + p, "training.reduce_dtype=" + p};
    add("accumulation", kGpt, grid(1, 1, 1, 0), dropout);
    add("ddp2", kGpt, grid(2, 1, 1, 0));
    add("ddp2_llama", kLlama, grid(2, 1, 1, 0));
    add("ddp2_cnn", kCnn, grid(2, 1, 1, 0));
    add("ddp2_half_gradients", kGpt, grid(2, 1, 1, 0), half);
    add("zero1", kGpt, grid(2, 1, 1, 1));
    add("zero2_half_reduce", kGpt, grid(4, 1, 1, 2), {"training.reduce_dtype=" + p});
    add("zero3", kGpt, grid(4, 1, 1, 3), dropout);
    add("zero3_llama_half_gradients", kLlama, grid(4, 1, 1, 3), half);
    add("zero1_bf16_moments", kGpt, grid(4, 1, 1, 1), {"training.moments=bf16"});
    const Assignments lora = {"training.lora_rank=4"};
    add("zero3_lora", kLlama, grid(2, 1, 1, 3), lora);
    add("2x2x2_zero1_lora", kGpt, grid(8, 2, 2, 1, {"plan.sequence_parallel=true"}), lora);
    add("torch_ddp2_lora", kLlama, grid(2, 1, 1, 0), with(lora, {"framework=torch-ddp"}));
    add("zero1_cnn", kCnn, grid(4, 1, 1, 1));
    add("tensor2", kGpt, grid(2, 2, 1, 0), dropout);
    add("tensor2_sequence", kLlama, grid(2, 2, 1, 0, {"plan.sequence_parallel=true"}));
    add("tensor2_unfused_selective", kGpt, grid(2, 2, 1, 0, {"plan.recompute=selective"}),
        with(dropout, {"model.attention=unfused"}));
    add("pipeline2", kGpt, grid(2, 1, 2, 0), dropout);
    add("pipeline2_gpipe_full", kLlama, grid(2, 1, 2, 0, {"plan.schedule=gpipe", "plan.recompute=full"}));
    add("interleaved", kGpt, grid(2, 1, 2, 0, {"plan.schedule=interleaved", "plan.chunks=2"}));
    add("megatron_2x2x2", kGpt,
        grid(8, 2, 2, 1, {"framework=megatron-2021", "plan.sequence_parallel=true", "plan.micro_batch=2"}), dropout);
    add("2x2x2_zero1", kLlama, grid(8, 2, 2, 1, {"plan.sequence_parallel=true"}));
    add("2x2x2_zero3", kGpt, grid(8, 2, 2, 3), dropout);
    // Whose shards are the fp32 parameters themselves.
    const Assignments fsdp = {"framework=torch-fsdp"};
    add("fsdp4", kGpt, grid(4, 1, 1, 3), with(dropout, fsdp));
    add("fsdp2_llama", kLlama, grid(2, 1, 1, 3), {"framework=torch-fsdp2"});
    add("fsdp2_lamb", kGpt, grid(2, 1, 1, 3), with(fsdp, {"training.optimizer=lamb"}));
    add("fsdp2_adafactor", kLlama, grid(2, 1, 1, 3), with(fsdp, {"training.optimizer=adafactor"}));
    add("fsdp_hybrid4", kGpt, grid(4, 1, 1, 3, {"plan.zero_group=2"}), fsdp);
    add("torch_ddp2", kGpt, grid(2, 1, 1, 0), {"framework=torch-ddp"});
    add("torch_ddp2_llama", kLlama, grid(2, 1, 1, 0), {"framework=torch-ddp"});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Plans, Precisions, testing::ValuesIn(cases()), name_of_case);

// With fp32 master weights 40 steps have fp32's losses: measured, 3.5e-4 off at most in bf16, 3.4e-5 in fp16, whether
// the gradients are kept and sent in fp32 or in 16 bits.
TEST(Precision, FollowsTheLossesOfFp32) {
  for (const std::string& text : {kGpt, kLlama}) {
    const auto losses = [&](const std::string& p, const Assignments& more = {}) {
      return perform(text, with(in(p, more), one_rank()), 40).result.loss;
    };
    const std::vector<double> exact = losses("fp32");
    EXPECT_LT(mean_of_last_5(exact), 0.95 * exact.front());
    for (const std::string p : {"bf16", "fp16"}) {
      const std::vector<double> fp32_gradients = losses(p);
      EXPECT_LT(apart(exact, fp32_gradients), unit_roundoff(p) / 4) << text;
      EXPECT_GT(apart(exact, fp32_gradients), 0) << "was anything rounded?";
      EXPECT_LT(apart(exact, losses(p, {"training.grad_dtype=" + p, "training.reduce_dtype=" + p})),
                unit_roundoff(p) / 4)
          << text;
    }
  }
}

// What bf16 moments change in 40 steps of fp32 products: measured, 4.7e-5 of a loss. (The cnn's losses, which fall to a
// quarter in the last of these steps, are 1.4% apart on the way.)
TEST(Precision, MomentsOfBf16FollowTheLossesOfFp32) {
  for (const std::string& text : {kGpt, kLlama}) {
    const auto losses = [&](const std::string& moments) {
      return perform(text, with(in("fp32", {"training.moments=" + moments}), one_rank()), 40).result.loss;
    };
    const std::vector<double> exact = losses("fp32"), rounded = losses("bf16");
    EXPECT_LT(apart(exact, rounded), unit_roundoff("bf16") / 16) << text;
    EXPECT_GT(apart(exact, rounded), 0) << "was anything rounded?";
  }
}

class LossScale : public testing::TestWithParam<Case> {};

// A scale of 2^39 overflows: steps are skipped and halve it until they do not. All ranks say the same, no step counts
// both as skipped and as one that the scale has stood, and two runs are the same in every bit.
TEST_P(LossScale, SkipsStepsThatOverflowAndGoesOn) {
  const Case& c = GetParam();
  const Assignments all = in("fp16", with(c.plan, with(c.training, {"training.loss_scale=549755813888"})));
  const execute::Outcome once = perform(c.text, with(all, {"training.warmup_steps=0"}), 1);
  const execute::Outcome twice = perform(c.text, with(all, {"training.warmup_steps=0"}), 2);
  EXPECT_EQ(once.parameters, twice.parameters) << "a skipped step changes nothing";

  constexpr int kSteps = 50;
  const execute::Outcome first = perform(c.text, all, kSteps), second = perform(c.text, all, kSteps);
  ASSERT_EQ(static_cast<int>(first.loss_scales.size()), first.result.ranks);
  for (const auto& state : first.loss_scales) EXPECT_EQ(state, first.loss_scales.front());
  const double skipped = 39 - std::log2(first.loss_scales.front()[0]);
  EXPECT_LE(first.loss_scales.front()[1], kSteps - skipped);
  EXPECT_GT(first.loss_scales.front()[1], 5);
  EXPECT_GT(skipped, 5);
  EXPECT_LT(skipped, 35);
  for (const double loss : first.result.loss) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_LT(mean_of_last_5(first.result.loss), first.result.loss.front());
  EXPECT_EQ(first.result.loss, second.result.loss);
  EXPECT_EQ(first.parameters, second.parameters);
  EXPECT_EQ(first.loss_scales, second.loss_scales);
}

std::vector<Case> loss_scale_cases() {
  const Assignments half = {"training.grad_dtype=fp16", "training.reduce_dtype=fp16"};
  return {{"one_rank", "fp16", kGpt, one_rank()},
          {"one_rank_without_clipping", "fp16", kCnn, with(one_rank(), {"training.clip=0"})},
          {"ddp2", "fp16", kGpt, grid(2, 1, 1, 0)},
          {"ddp2_half_gradients", "fp16", kGpt, grid(2, 1, 1, 0), half},
          {"zero3", "fp16", kLlama, grid(4, 1, 1, 3)},
          {"tensor2", "fp16", kGpt, grid(2, 2, 1, 0)},
          {"pipeline2", "fp16", kGpt, grid(2, 1, 2, 0)},
          {"2x2x2_zero1", "fp16", kGpt, grid(8, 2, 2, 1, {"plan.sequence_parallel=true", "framework=megatron-2021"})}};
}
INSTANTIATE_TEST_SUITE_P(Plans, LossScale, testing::ValuesIn(loss_scale_cases()), name_of_case);

// Powers of two divide out: until something overflows, a scale leaves the first loss alone and training follows.
TEST(Precision, TheLossScaleGrowsAndDoesNotShowInTheLosses) {
  const Assignments all = with(in("fp16"), one_rank());
  const auto run = [&](const Assignments& more) { return perform(kGpt, with(all, more), 12); };
  const execute::Outcome steady = run({"training.loss_scale=1024"});
  const execute::Outcome growing = run({"training.loss_scale=1024", "training.loss_scale_interval=3"});
  EXPECT_EQ(steady.loss_scales.front(), (std::vector<float>{1024, 12}));
  EXPECT_EQ(growing.loss_scales.front(), (std::vector<float>{1024 * 16, 0}));
  EXPECT_LT(apart(steady.result.loss, growing.result.loss), unit_roundoff("fp16"));
}

TEST(Precision, TwoRunsOfBf16AreTheSameInEveryBit) {
  for (const Assignments& plan : {grid(4, 1, 1, 3), grid(8, 2, 2, 1, {"plan.sequence_parallel=true"})}) {
    const execute::Outcome first = perform(kGpt, in("bf16", plan), 6), second = perform(kGpt, in("bf16", plan), 6);
    EXPECT_EQ(first.result.loss, second.result.loss);
    EXPECT_EQ(first.parameters, second.parameters);
  }
}

}  // namespace
}  // namespace rehearse
