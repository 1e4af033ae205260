// training.ignored_token: ranks and micro-batches that have unlike numbers of targets that count train, whatever the
// split, as a plain model does whose loss is the mean over the targets that count in the whole batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "execute/data.h"
#include "tests/numerics/plain_runs.h"

namespace rehearse::numerics {
namespace {

constexpr std::int32_t kIgnored = 60;

const char* const kPadded = R"(
rehearse: 1
model: {family: gpt, layers: 2, hidden: 24, heads: 6, head_dim: 8, ffn_hidden: 40, vocab: 61, max_seq_len: 16}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 2, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 7, ignored_token: 60}
)";

// Sequences that are padded from a place on that differs between them: some hardly, one in six wholly but a token.
TokenFile padded_tokens() {
  return {"padded-tokens.bin", [token = 1U](unsigned i) mutable {
            token = (token * 17 + 3 + i / 5) % 60;
            const unsigned sequence = i / 16, place = i % 16, kept = 16 - sequence * 7 % 6 * 3;
            return place >= kept ? static_cast<unsigned>(kIgnored) : i % 2 == 0 ? 5 : token;
          }};
}

struct PaddedRun {
  std::vector<double> losses;
  std::int64_t fewest = 1 << 20, most = 0;  // targets of a sequence that count
};

PaddedRun plain_losses(const plan::Scenario& scenario, const std::string& data_file) {
  const plan::Training& t = scenario.training;
  const auto data = execute::open_data(scenario.model, t.seq_len, t.seed, data_file);
  PlainGpt<double> model(plain_shape(scenario), initial_values(scenario));
  PaddedRun run;
  for (std::int64_t step = 0; step < kPlainSteps; ++step) {
    std::vector<Sequence> batch;
    double counted = 0, loss = 0;
    for (std::int64_t i = 0; i < t.global_batch; ++i) {
      batch.push_back(sequence_of(*data, scenario, step * t.global_batch + i));
      const std::vector<std::int32_t>& targets = batch.back().targets;
      const auto count =
          static_cast<std::int64_t>(targets.size()) - std::count(targets.begin(), targets.end(), kIgnored);
      run.fewest = std::min(run.fewest, count), run.most = std::max(run.most, count);
      counted += static_cast<double>(count);
    }
    const double factor = static_cast<double>(t.global_batch * t.seq_len) / counted;
    for (Sequence& sequence : batch) {
      const PlainGpt<double>::Values losses = model.token_losses(sequence);
      for (std::size_t k = 0; k < losses.size(); ++k) {
        const bool counts = sequence.targets[k] != kIgnored;
        sequence.factors.push_back(counts ? factor : 0);
        if (counts) loss += losses[k];
      }
    }
    model.loss_and_gradients(batch);
    model.update({t.lr, t.beta1, t.beta2, t.eps, t.weight_decay, t.clip});
    run.losses.push_back(loss / counted);
  }
  return run;
}

class IgnoredTargets : public testing::TestWithParam<PlainCase> {};

TEST_P(IgnoredTargets, TrainAsTheMeanOverThoseThatCount) {
  const TokenFile tokens = padded_tokens();
  plan::Scenario scenario = scenario_from(kPadded, GetParam().assignments);
  scenario.purpose = plan::Purpose::perform;
  const PaddedRun plain = plain_losses(scenario, tokens.path());
  EXPECT_LT(3 * plain.fewest, plain.most) << "ranks have nearly as many targets each";
  expect_losses(performed(scenario, kPlainSteps, tokens.path()).result.loss, plain.losses);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, IgnoredTargets,
    testing::Values(
        PlainCase{"one_rank", {}}, PlainCase{"one_micro_batch", {"plan.micro_batch=8"}},
        PlainCase{"without_clipping", {"training.clip=0"}}, PlainCase{"data4", split(4, {})},
        PlainCase{"data2_zero1", split(2, {"plan.zero=1"})}, PlainCase{"data2_zero2", split(2, {"plan.zero=2"})},
        PlainCase{"data4_zero3_of_2", split(4, {"plan.zero=3", "plan.zero_group=2"})},
        PlainCase{"tensor2", split(2, {"plan.tensor=2"})},
        PlainCase{"tensor2_sequence_data2", split(4, {"plan.tensor=2", "plan.sequence_parallel=true"})},
        PlainCase{"pipeline2_data2", split(4, {"plan.pipeline=2"})},
        PlainCase{"pipeline2_chunks",
                  split(2, {"plan.pipeline=2", "plan.schedule=interleaved", "plan.chunks=2", "model.layers=4"})},
        PlainCase{"pipeline2_dualpipe", split(2, {"plan.pipeline=2", "plan.schedule=dualpipe", "model.layers=4",
                                                  "plan.micro_batch=1", "model.tied_embeddings=false"})},
        PlainCase{"ring2_data2", split(4, {"plan.context=2"})},
        PlainCase{"offloaded", split(2, {"plan.zero=1", "plan.offload_optimizer=true"})},
        PlainCase{"recomputed", {"plan.recompute=full"}},
        PlainCase{"tensor2_pipeline2_data2_zero1", split(8, {"plan.tensor=2", "plan.pipeline=2", "plan.zero=1"})}),
    plain_case_name);

// What has no plain model with such targets: whatever the split, twenty steps have one rank's losses.
struct OneRankCase {
  const char *name, *model, *training;
  std::vector<std::vector<std::string>> plans;
};
void PrintTo(const OneRankCase& c, std::ostream* out) {
  *out << c.name;
}

class IgnoredTargetsOf : public testing::TestWithParam<OneRankCase> {};

TEST_P(IgnoredTargetsOf, HaveOneRanksLosses) {
  const TokenFile tokens = padded_tokens();
  const std::string text = std::string(
                               "rehearse: 1\nmodel: {layers: 2, hidden: 24, heads: 6, head_dim: 8, vocab: 61, "
                               "max_seq_len: 16, ") +
                           GetParam().model +
                           "}\ncluster: {topology: local, gpus: 1}\nplan: {micro_batch: 2, bucket: 8KiB}\n"
                           "training: {global_batch: 8, seq_len: 16, precision: fp32, weight_decay: 0.2, "
                           "clip: 0.5, seed: 7, ignored_token: 60" +
                           GetParam().training + "}\n";
  const std::vector<double> one = performed(scenario_from(text), kPlainSteps, tokens.path()).result.loss;
  for (const std::vector<std::string>& plan : GetParam().plans) {
    SCOPED_TRACE(testing::PrintToString(plan));
    expect_losses(performed(scenario_from(text, plan), kPlainSteps, tokens.path()).result.loss, one, 0.97);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, IgnoredTargetsOf,
    testing::Values(
        OneRankCase{"llama",
                    "family: llama, kv_heads: 2, ffn_hidden: 40",
                    ", lr: 1e-2",
                    {split(2, {}), split(4, {"plan.tensor=2", "plan.sequence_parallel=true", "plan.zero=1"})}},
        OneRankCase{"gathered_keys",
                    "family: llama, ffn_hidden: 40",
                    ", lr: 1e-2",
                    {split(2, {"plan.context=2", "plan.context_kind=all_gather"})}},
        OneRankCase{"experts",
                    "family: moe, experts: 4, experts_per_token: 2, expert_ffn_hidden: 24, capacity_factor: 4",
                    ", lr: 1e-2",
                    {split(2, {"plan.zero=1"}), split(2, {"plan.expert=2", "plan.zero=1"})}},
        OneRankCase{"muon",
                    "family: llama, ffn_hidden: 40",
                    ", lr: 1e-2, optimizer: muon",
                    {split(2, {}), split(2, {"plan.zero=1"})}},
        OneRankCase{"lamb",
                    "family: gpt, ffn_hidden: 40",
                    ", lr: 1e-2, optimizer: lamb",
                    {split(2, {}), split(2, {"plan.zero=1"})}},
        OneRankCase{"adafactor",
                    "family: gpt, ffn_hidden: 40, bias: false",
                    ", lr: 3e-3, optimizer: adafactor",
                    {split(2, {})}},
        OneRankCase{"adapters",
                    "family: llama, ffn_hidden: 40",
                    ", lr: 1e-2, lora_rank: 4, lora_alpha: 8",
                    {split(2, {}), split(2, {"plan.tensor=2"})}}),
    [](const auto& test) { return test.param.name; });

// Where none counts there is no loss, and weights only decay.
TEST(IgnoredTargets, ThatAreAllMakeNoLoss) {
  const TokenFile tokens("nothing-but-padding.bin", [](unsigned) { return static_cast<unsigned>(kIgnored); });
  const plan::Scenario scenario = scenario_from(kPadded, split(2, {"training.weight_decay=0"}));
  const execute::Outcome outcome = performed(scenario, 2, tokens.path());
  for (const double loss : outcome.result.loss) EXPECT_EQ(loss, 0);
}

}  // namespace
}  // namespace rehearse::numerics
