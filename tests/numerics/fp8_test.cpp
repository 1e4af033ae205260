// Training with products of 8 bits, performed: every plan against one rank, one rank against fp32 and against a plain
// model that rounds by the formats' definition.
//
// Plans. A cast of the same numbers with the same scale gives the same bits, so what a plan may differ in is which
// tensors have a scale together, and the order of sums in 16 and 32 bits, which puts a number near the middle of two
// 8-bit ones on the other side: 2^-4 (e4m3) or 2^-3 (e5m2) of it. Scales are
//
//   delayed     made of the largest values of all ranks of a stage: one rank's, if what it casts in one micro-batch
//               they cast in one micro-batch each; else a micro-batch of one rank comes after an update that theirs
//               precedes. Before the first update they are 1 everywhere.
//   tensorwise  of a rank's micro-batch (over the tensor group where its sequence is spread): one rank's with the same
//               micro-batches; of weights and activations that are split over tensor ranks, others
//   blocks      of 32 or 128 elements, none of which a plan here splits: one rank's
//   rowwise     of a rank's rows by rows: one rank's where none is split. By columns of a rank's micro-batch, as
//   tensorwise
//
// and with a pipeline all are one rank's. Measured, losses of 20 steps, which fall from 5.53 to 3.70 (with tensor ranks
// to 3.52), are off those of one rank by 3.4e-4 of their size at most with delayed scales, 1.1e-4 with tensorwise ones
// (1.0e-3 over tensor ranks) and 2.2e-4 with scales of blocks; the first one, where all of its casts have the same
// scales, by 9e-8.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "execute/data.h"
#include "execute/performer.h"
#include "tests/numerics/performed.h"
#include "tests/numerics/plain_gpt.h"
#include "tests/numerics/plain_runs.h"
#include "tests/support/lowered.h"

namespace rehearse::numerics {
namespace {

using Assignments = std::vector<std::string>;

const std::string kFp8Gpt =
    "rehearse: 1\n"
    "model: {family: gpt, layers: 2, hidden: 128, heads: 4, ffn_hidden: 256, vocab: 250, max_seq_len: 64}\n"
    "cluster: {topology: local, gpus: 1}\n"
    "plan: {micro_batch: 2}\n"
    "training: {global_batch: 8, precision: fp8, lr: 1e-3, warmup_steps: 4, lr_schedule: cosine, seed: 3}\n";

plan::Scenario performed_scenario(const std::string& text, const Assignments& assignments) {
  plan::Scenario scenario = scenario_from(text, assignments);
  scenario.purpose = plan::Purpose::perform;
  return scenario;
}

execute::Outcome perform_fp8(const std::string& text, const Assignments& assignments, int steps = kPlainSteps,
                             const std::string& data = "") {
  return performed(performed_scenario(text, assignments), steps, data);
}

// The largest relative difference of a step's losses.
double most_apart(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : HUGE_VAL;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(b[i] / a[i] - 1));
  return most;
}

struct Fp8Case {
  std::string name;
  Assignments plan, both = {};  // the latter for the single rank too
  double tolerance = 0;
  bool same_scales = true;  // in the first step
};
std::ostream& operator<<(std::ostream& out, const Fp8Case& c) {
  return out << c.name;
}
std::string fp8_case_name(const testing::TestParamInfo<Fp8Case>& info) {
  return info.param.name;
}

// Of one rank; many cases share it.
const std::vector<double>& one_ranks_losses(const Assignments& assignments) {
  static std::map<Assignments, std::vector<double>> known;
  std::vector<double>& losses = known[assignments];
  if (losses.empty()) losses = perform_fp8(kFp8Gpt, assignments).result.loss;
  return losses;
}

class Fp8Plans : public testing::TestWithParam<Fp8Case> {};

TEST_P(Fp8Plans, TrainAsOneRankDoes) {
  const Fp8Case& c = GetParam();
  Assignments many = c.both;
  many.insert(many.end(), c.plan.begin(), c.plan.end());
  const std::vector<double>& one = one_ranks_losses(c.both);
  const std::vector<double> losses = perform_fp8(kFp8Gpt, many).result.loss;
  EXPECT_LT(most_apart(one, losses), c.tolerance);
  EXPECT_LT(std::abs(losses.front() / one.front() - 1), c.same_scales ? 2e-7 : c.tolerance);
  EXPECT_LT(one.back(), 0.75 * one.front()) << "one rank does not learn";
}

std::vector<Fp8Case> fp8_cases() {
  std::vector<Fp8Case> all;
  for (const std::string recipe : {"delayed", "tensorwise", "blockwise", "mxfp8", "rowwise"}) {
    const std::string key = "training.fp8_recipe=" + recipe;
    const auto add = [&](const std::string& name, Assignments plan, Assignments both = {}) {
      both.push_back(key);
      all.push_back({recipe + "_" + name, std::move(plan), std::move(both)});
      all.back().tolerance = recipe == "delayed" ? 8e-4 : recipe == "tensorwise" ? 3e-4 : 5e-4;
      // Of four micro-batches on one rank, or two, with delayed scaling only the first is cast without a history.
      all.back().same_scales = recipe != "delayed" || name == "pipeline" || name == "zero_bubble";
    };
    // Blocks of 128 divide what two ranks have.
    const auto add_tensor = [&](const std::string& name, Assignments plan) {
      add(name, std::move(plan),
          {"model.hidden=256", "model.ffn_hidden=512", "plan.micro_batch=4", "training.lr=5e-4"});
      all.back().same_scales = false;  // and partial sums are rounded to bf16
      if (recipe == "tensorwise") all.back().tolerance = 2.5e-3;
    };
    add("zero1", {"cluster.gpus=2", "plan.zero=1"});
    add("zero3", {"cluster.gpus=2", "plan.zero=3"});
    add("pipeline", {"cluster.gpus=2", "plan.pipeline=2"});
    if (recipe == "delayed" || recipe == "tensorwise")
      add("any_layout", {"cluster.gpus=2", "plan.pipeline=2"}, {"training.fp8_transposes=false"});
    if (recipe == "delayed" || recipe == "blockwise") {  // scales of tensors, and of blocks
      add("data", {"cluster.gpus=2"});
      add("zero2", {"cluster.gpus=4", "plan.zero=2"});
      add("zero_bubble", {"cluster.gpus=2", "plan.pipeline=2", "plan.schedule=zero_bubble"});
      add("recompute", {"plan.recompute=full"});
      add("fused", {"plan.fused_epilogues=all"});
      add("torch", {"cluster.gpus=2", "plan.zero=3", "framework=torch-fsdp2"}, {"model.dropout=0"});
      add("ends_in_bf16", {"cluster.gpus=2"}, {"model.layers=4", "training.fp8_bf16_layers=1"});
      add_tensor("tensor", {"cluster.gpus=2", "plan.tensor=2"});
    }
    if (recipe == "rowwise") {
      add("data", {"cluster.gpus=2"});
      add("zero_bubble", {"cluster.gpus=2", "plan.pipeline=2", "plan.schedule=zero_bubble"});
      add("recompute", {"plan.recompute=full"});
      add("torch", {"cluster.gpus=2", "plan.zero=3", "framework=torch-fsdp2"}, {"model.dropout=0"});
      add_tensor("torch_sequence_ops", {"cluster.gpus=2", "plan.tensor=2", "plan.sequence_parallel=true",
                                        "plan.recompute=ops", "framework=torch-fsdp2"});
    }
    if (recipe == "blockwise")
      add("dualpipe_v", {"cluster.gpus=2", "plan.pipeline=2", "plan.schedule=dualpipe_v"}, {"model.layers=4"});
    add_tensor("tensor_sequence", {"cluster.gpus=2", "plan.tensor=2", "plan.sequence_parallel=true"});
    if (recipe == "delayed" || recipe == "tensorwise" || recipe == "rowwise")
      add_tensor("async_tensor", {"cluster.gpus=2", "plan.tensor=2", "plan.sequence_parallel=true",
                                  "plan.async_tensor_parallel=true", "plan.overlap_tensor_backward=false"});
    add_tensor("all_three",
               {"cluster.gpus=8", "plan.tensor=2", "plan.sequence_parallel=true", "plan.pipeline=2", "plan.zero=1"});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Recipes, Fp8Plans, testing::ValuesIn(fp8_cases()), fp8_case_name);

// Layers whose products are not GPT's: gated, of queries in groups, without biases; and of patches of images, 64 images
// a micro-batch, whose 640 tokens are whole blocks of 128. Ten steps.
TEST(Fp8, OtherFamiliesTrainOnManyRanksAsOnOne) {
  const std::string llama =
      "rehearse: 1\nmodel: {family: llama, layers: 2, hidden: 128, heads: 4, kv_heads: 2, ffn_hidden: 256, vocab: 250, "
      "max_seq_len: 64}\ncluster: {topology: local, gpus: 1}\nplan: {micro_batch: 2}\n"
      "training: {global_batch: 8, precision: fp8, lr: 3e-4, seed: 3}\n";
  const std::string images =
      "rehearse: 1\nmodel: {family: vit, layers: 2, hidden: 128, heads: 4, image: {channels: 2, size: 12}, patch: 4, "
      "classes: 10}\ncluster: {topology: local, gpus: 1}\nplan: {micro_batch: 64}\n"
      "training: {global_batch: 128, precision: fp8, lr: 1e-4, seed: 3}\n";
  const Assignments zero3 = {"cluster.gpus=2", "plan.zero=3"};
  const Assignments two_stages = {"cluster.gpus=4", "plan.pipeline=2", "plan.zero=1"};
  const std::vector<Assignments> some = {zero3, two_stages};
  const std::vector<Assignments> all = {{"cluster.gpus=2"},
                                        {"cluster.gpus=2", "plan.zero=1"},
                                        {"cluster.gpus=2", "plan.zero=2"},
                                        zero3,
                                        {"cluster.gpus=2", "plan.pipeline=2"},
                                        two_stages};
  for (const std::string& model : {llama, images})
    for (const std::string recipe : {"delayed", "tensorwise", "blockwise", "mxfp8", "rowwise"}) {
      const std::string what = (model == llama ? "llama " : "vit ") + recipe;
      const bool blocks = recipe == "blockwise" || recipe == "mxfp8";
      const Assignments one = {"training.fp8_recipe=" + recipe};
      Assignments alone = one;
      // With as many micro-batches as many ranks have in all, delayed scales would be made more often.
      if (recipe == "delayed") alone.emplace_back(model == llama ? "plan.micro_batch=4" : "plan.micro_batch=128");
      const std::vector<double> expected = perform_fp8(model, alone, 10).result.loss;
      EXPECT_LT(expected.back(), 0.9 * expected.front()) << what << ": one rank does not learn";
      for (const Assignments& plan : recipe == "delayed" ? all : some) {
        Assignments many = one;
        many.insert(many.end(), plan.begin(), plan.end());
        if (plan.back() == "plan.pipeline=2") many.push_back(alone.back());
        const double gap = most_apart(expected, perform_fp8(model, many, 10).result.loss);
        RecordProperty(what + " " + plan.back(), std::to_string(gap));
        EXPECT_LT(gap, blocks ? 3e-4 : 1e-3) << what << " " << testing::PrintToString(plan);
      }
    }
}

// What backward casts once more has the scale of its micro-batch's forward, also where that is another than at its end.
TEST(Fp8, WhatIsCastAgainIsTheSame) {
  const auto losses = [](Assignments plan) {
    plan.insert(plan.end(), {"training.clip=0", "training.lr=3e-3", "training.warmup_steps=0"});
    return perform_fp8(kFp8Gpt, plan, 6).result.loss;
  };
  const std::vector<double> one = losses({}), again = losses({"plan.recompute=full"});
  EXPECT_EQ(one, again);
  const Assignments stages = {"cluster.gpus=2", "plan.pipeline=2", "plan.schedule=interleaved", "model.layers=4"};
  Assignments stages_again = stages;
  stages_again.emplace_back("plan.recompute=full");
  EXPECT_EQ(losses(stages), losses(stages_again));
  // Of several micro-batches ZeRO-3 casts weights in each, others in the first.
  EXPECT_EQ(losses({"cluster.gpus=2", "plan.micro_batch=4", "plan.zero=2"}),
            losses({"cluster.gpus=2", "plan.micro_batch=4", "plan.zero=3"}));
}

// Stages cast what one rank casts, with its scales. Only the squares that make the gradients' norm are added in another
// order, and the gradients of a tied embedding: without them nothing differs.
TEST(Fp8, APipelineHasOneRanksLossesInEveryBit) {
  for (const char* recipe : {"delayed", "tensorwise", "blockwise", "mxfp8", "rowwise"}) {
    const Assignments one = {std::string("training.fp8_recipe=") + recipe, "training.clip=0",
                             "model.tied_embeddings=false"};
    Assignments two = one;
    two.insert(two.end(), {"cluster.gpus=2", "plan.pipeline=2"});
    EXPECT_EQ(perform_fp8(kFp8Gpt, two).result.loss, perform_fp8(kFp8Gpt, one).result.loss) << recipe;
  }
}

// The ranks' largest values are put together: with one micro-batch a rank, scales are those of one rank that has both.
// Scales of each rank's own, as tensorwise ones are, are felt at once.
TEST(Fp8, DelayedScalesAreThoseOfAllRanks) {
  const auto two_steps = [](const Assignments& plan, const std::string& recipe) {
    Assignments all = plan;
    all.push_back("training.fp8_recipe=" + recipe);
    return perform_fp8(kFp8Gpt, all, 2).result.loss;
  };
  const Assignments one = {"plan.micro_batch=8"}, two = {"cluster.gpus=2", "plan.micro_batch=4"};
  EXPECT_LT(most_apart(two_steps(one, "delayed"), two_steps(two, "delayed")), 2e-6);
  EXPECT_GT(most_apart(two_steps(one, "tensorwise"), two_steps(two, "tensorwise")), 1e-5);
}

TEST(Fp8, TwoRunsAreTheSameInEveryBitWhateverTheThreads) {
  for (const char* recipe : {"delayed", "tensorwise", "blockwise", "mxfp8", "rowwise"}) {
    Assignments plan = {std::string("training.fp8_recipe=") + recipe,
                        "model.hidden=256",
                        "model.ffn_hidden=512",
                        "plan.micro_batch=4",
                        "cluster.gpus=4",
                        "plan.tensor=2",
                        "plan.sequence_parallel=true",
                        "plan.zero=1"};
    const execute::Outcome first = perform_fp8(kFp8Gpt, plan, 4), second = perform_fp8(kFp8Gpt, plan, 4);
    EXPECT_EQ(first.result.loss, second.result.loss) << recipe;
    EXPECT_EQ(first.parameters, second.parameters) << recipe;
    plan.push_back("cluster.threads_per_rank=2");
    EXPECT_EQ(perform_fp8(kFp8Gpt, plan, 4).parameters, first.parameters) << recipe;
  }
}

// Measured, 20 steps are 5.2e-4 to 6.6e-4 of fp32's losses off, where bf16's are 5.4e-4. Without training the last loss
// is 49% off.
TEST(Fp8, FollowsTheLossesOfFp32) {
  const std::vector<double> exact = perform_fp8(kFp8Gpt, {"training.precision=fp32"}).result.loss;
  for (const char* recipe : {"delayed", "tensorwise", "blockwise", "mxfp8", "rowwise"}) {
    const std::string key = std::string("training.fp8_recipe=") + recipe;
    const double gap = most_apart(exact, perform_fp8(kFp8Gpt, {key}).result.loss);
    EXPECT_LT(gap, 1.5e-3) << recipe;
    EXPECT_GT(gap, 0) << "was anything rounded?";
    EXPECT_GT(most_apart(exact, perform_fp8(kFp8Gpt, {key, "training.lr=1e-9"}).result.loss), 0.1);
  }
}

// Norms around 1 begin where others do; without weight decay their weights move alike, but for where 1 + w is rounded.
TEST(Fp8, NormsAroundOneTrainAsOthersDo) {
  const Assignments llama = {
      "model={family: llama, layers: 2, hidden: 128, heads: 4, ffn_hidden: 256, vocab: 250, "
      "max_seq_len: 64}",
      "training.weight_decay=0"};
  for (const char* recipe : {"delayed", "tensorwise", "blockwise", "mxfp8", "rowwise"}) {
    Assignments plain = llama;
    plain.push_back(std::string("training.fp8_recipe=") + recipe);
    Assignments around_one = plain;
    around_one.emplace_back("model.zero_centered_norms=true");
    const std::vector<double> one = perform_fp8(kFp8Gpt, plain).result.loss,
                              other = perform_fp8(kFp8Gpt, around_one).result.loss;
    EXPECT_EQ(one.front(), other.front()) << recipe;
    EXPECT_LT(most_apart(one, other), 1e-3) << recipe;
    EXPECT_LT(one.back(), 0.95 * one.front()) << recipe;
  }
}

// Against the plain model, one sequence a micro-batch, so that a tensor has the same scale there. Plain gradient
// descent: Adam would make whole steps of gradients that are rounding noise.
const char* const kFp8Plain = R"(
rehearse: 1
model: {family: gpt, layers: 4, hidden: 24, heads: 6, head_dim: 8, ffn_hidden: 40, vocab: 61, max_seq_len: 18, attention: flash}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 1, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp8, fp8_recipe: tensorwise, optimizer: sgd, lr: 1, momentum: 0,
           weight_decay: 0, clip: 0, seed: 7}
)";

struct PlainRun {
  std::vector<double> losses;
  std::vector<PlainGpt<double>::Parameter> parameters;  // with the first step's gradients
};

// `recipe` tensorwise or rowwise, whose gradients are e4m3.
class Fp8AgainstPlain : public testing::TestWithParam<std::string> {
 protected:
  GptShape shape() const {
    GptShape s = plain_shape(scenario_);
    s.eight_bits = true;
    s.row_scales = GetParam() == "rowwise";
    if (s.row_scales) s.gradient_mantissa = 3, s.gradient_least = -9, s.gradient_most = 448;
    return s;
  }

  PlainRun train(const GptShape& shape) const {
    const plan::Training& t = scenario_.training;
    const auto data = execute::open_data(scenario_.model, t.seq_len, t.seed, tokens_.path());
    PlainGpt<double> model(shape, initial_values(scenario_));
    PlainRun run;
    for (std::int64_t step = 0; step < kPlainSteps; ++step) {
      std::vector<Sequence> batch;
      for (std::int64_t i = 0; i < t.global_batch; ++i)
        batch.push_back(sequence_of(*data, scenario_, step * t.global_batch + i));
      run.losses.push_back(model.loss_and_gradients(batch));
      if (step == 0) run.parameters = model.parameters();
      for (auto& p : model.parameters())
        for (std::size_t i = 0; i < p.value.size(); ++i) p.value[i] -= t.lr * p.gradient[i];
    }
    return run;
  }

  const std::vector<double>& performed_losses() {
    if (losses_.empty()) losses_ = perform_fp8(kFp8Plain, recipe_, kPlainSteps, tokens_.path()).result.loss;
    return losses_;
  }
  // Of the weights of 8-bit products: the smallest, and largest, distance of the first step's gradient, over its norm;
  // the largest of the layer next to the loss, whose gradients have what forward gave of all layers in them.
  struct Apart {
    double least = HUGE_VAL, most = 0, next_to_loss = 0;
  };
  Apart gradients_apart(const PlainRun& run) {
    if (after_.empty()) after_ = perform_fp8(kFp8Plain, recipe_, 1, tokens_.path()).parameters;
    Apart apart;
    for (const auto& p : run.parameters) {
      if (!p.name.starts_with("layer") || !p.name.ends_with(".weight")) continue;
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < p.value.size(); ++i) {
        const double gradient = p.value[i] - static_cast<double>(after_.at(p.name)[i]);
        difference += std::pow(gradient - p.gradient[i], 2), norm += std::pow(p.gradient[i], 2);
      }
      const double distance = std::sqrt(difference / norm);
      apart.most = std::max(apart.most, distance), apart.least = std::min(apart.least, distance);
      if (p.name.starts_with("layer3.mlp")) apart.next_to_loss = std::max(apart.next_to_loss, distance);
    }
    return apart;
  }

  TokenFile tokens_{"tokens8.bin", [token = 1U](unsigned i) mutable {
                      return token = i % 5 == 4 ? i * i % 61 : (token * 17 + 3) % 61;
                    }};
  const Assignments recipe_ = {"training.fp8_recipe=" + GetParam()};
  plan::Scenario scenario_ = performed_scenario(kFp8Plain, recipe_);
  std::vector<double> losses_;
  execute::Parameters after_;
};

// Measured: gradients are 9.5e-7 off, which is the order of sums, and losses 2.9e-4 after 20 steps of rounding what has
// been rounded. With scales of rows, powers of two, one in 16 numbers of bf16 lies in the middle of two of 8 bits, and
// the last bit of a sum decides: gradients next to the loss are 3.5e-7 off, those of the layers before up to 6.7e-3,
// losses 1.3e-3.
constexpr double kGradientTolerance = 4e-6, kLossesTolerance = 8e-4;

TEST_P(Fp8AgainstPlain, GradientsAndLossesAreTheRoundingModels) {
  const PlainRun plain = train(shape());
  const Apart apart = gradients_apart(plain);
  EXPECT_LT(apart.next_to_loss, kGradientTolerance);
  EXPECT_LT(apart.most, shape().row_scales ? 9e-3 : kGradientTolerance);
  EXPECT_LT(most_apart(plain.losses, performed_losses()), shape().row_scales ? 2.5e-3 : kLossesTolerance);
  EXPECT_LT(plain.losses.back(), 0.95 * plain.losses.front()) << "too little is learnt";
}

// Without rounding, with the other format or the other recipe's scales for gradients, with scales so large that numbers
// saturate, or so small that they vanish: measured, a gradient is 4.0e-2 off at least, with scales of tensors a loss
// 1.7e-3.
TEST_P(Fp8AgainstPlain, AnotherFormatOrAnotherScaleIsSeen) {
  GptShape none = shape(), format = shape(), scales = shape(), twice = shape(), less = shape();
  none.eight_bits = false;
  if (format.row_scales)
    format.gradient_mantissa = 2, format.gradient_least = -16, format.gradient_most = 57344;
  else
    format.gradient_mantissa = 3, format.gradient_least = -9, format.gradient_most = 448;
  scales.row_scales = !scales.row_scales;
  twice.scaled = 2;
  less.scaled = 1.0 / 1024;
  for (const GptShape& wrong : {none, format, scales, twice, less}) {
    const PlainRun plain = train(wrong);
    EXPECT_GT(gradients_apart(plain).least, 1e-2);
    EXPECT_TRUE(shape().row_scales || most_apart(plain.losses, performed_losses()) > kLossesTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Fp8AgainstPlain, testing::Values("tensorwise", "rowwise"),
                         [](const auto& given) { return given.param; });

}  // namespace
}  // namespace rehearse::numerics
