// LAMB (training.optimizer: lamb) performed, against the plain GPT with an update written here from the authors'
// formulas (program::Lamb has the source); and plans against one rank.
#include <gtest/gtest.h>

#include "tests/numerics/plain_gpt.h"
#include "tests/numerics/plain_runs.h"
#include "tests/numerics/plan_runs.h"

namespace rehearse {
namespace {

using numerics::PlainGpt;

const char* const kLambPlain = R"(
rehearse: 1
model: {family: gpt, layers: 2, hidden: 24, heads: 6, kv_heads: 3, head_dim: 8, ffn_hidden: 40, vocab: 61, max_seq_len: 18, attention: flash}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 2, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, optimizer: lamb, lr: 0.1, weight_decay: 0.1, clip: 0.5, seed: 7}
)";

// `ratio`: the trust ratio, without which it is AdamW with another place for weight decay.
std::vector<double> plain_lamb_losses(const plan::Scenario& s, const std::string& file, std::int64_t steps,
                                      bool ratio = true) {
  const plan::Training& t = s.training;
  PlainGpt<double> model(numerics::plain_shape(s), numerics::initial_values(s));
  const auto data = execute::open_data(s.model, t.seq_len, t.seed, file);
  const auto sequence = numerics::sequences(*data, s);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<numerics::Sequence> batch;
    for (std::int64_t i = 0; i < t.global_batch; ++i) batch.push_back(sequence(step, i));
    losses.push_back(model.loss_and_gradients(batch));
    double squares = 0;
    for (const auto& p : model.parameters())
      for (const double g : numerics::trains(s, p.name) ? p.gradient : std::vector<double>()) squares += g * g;
    const double clip = t.clip > 0 ? std::min(1.0, t.clip / (std::sqrt(squares) + 1e-6)) : 1;
    const auto now = static_cast<double>(step + 1);
    for (auto& p : model.parameters()) {
      if (!numerics::trains(s, p.name)) continue;
      std::vector<double> u;
      double weights = 0, updates = 0;
      for (std::size_t i = 0; i < p.value.size(); ++i) {
        const double g = clip * p.gradient[i];
        p.exp_avg[i] = t.beta1 * p.exp_avg[i] + (1 - t.beta1) * g;
        p.exp_avg_sq[i] = t.beta2 * p.exp_avg_sq[i] + (1 - t.beta2) * g * g;
        u.push_back(p.exp_avg[i] / (1 - std::pow(t.beta1, now)) /
                        (std::sqrt(p.exp_avg_sq[i] / (1 - std::pow(t.beta2, now))) + t.eps) +
                    t.weight_decay * p.value[i]);
        weights += p.value[i] * p.value[i];
        updates += u.back() * u.back();
      }
      const double r = ratio && weights > 0 && updates > 0 ? std::sqrt(weights / updates) : 1;
      for (std::size_t i = 0; i < u.size(); ++i) p.value[i] -= t.lr * r * u[i];
    }
  }
  return losses;
}

TEST(Lamb, TwentyStepsHaveThePlainModelsLosses) {
  const numerics::TokenFile tokens = numerics::learnable_tokens();
  const plan::Scenario one = scenario_from(kLambPlain, {});
  const std::vector<double> expected = plain_lamb_losses(one, tokens.path(), numerics::kPlainSteps);
  for (const Assignments& plan :
       {Assignments{}, {"cluster.gpus=2", "plan.zero=2"}, {"cluster.gpus=2", "plan.pipeline=2"}}) {
    const plan::Scenario scenario = scenario_from(kLambPlain, plan);
    numerics::expect_losses(performed(scenario, numerics::kPlainSteps, tokens.path()).result.loss, expected, 0.95);
  }
  const std::vector<double> without = plain_lamb_losses(one, tokens.path(), numerics::kPlainSteps, false);
  EXPECT_GT(std::abs(without.back() / expected.back() - 1), 1e-3) << "the trust ratio is not felt";
}

// A and B of adapters are tensors of their own.
TEST(Lamb, OfAdaptersHasThePlainModelsLosses) {
  const numerics::TokenFile tokens = numerics::learnable_tokens();
  const Assignments adapted = {"training.lora_rank=4", "training.lora_alpha=8", "training.clip=0.02",
                               "training.lr=0.04"};
  const std::vector<double> expected =
      plain_lamb_losses(scenario_from(kLambPlain, adapted), tokens.path(), numerics::kPlainSteps);
  for (Assignments plan : {Assignments{}, {"cluster.gpus=2", "plan.zero=2"}, {"cluster.gpus=2", "plan.pipeline=2"}}) {
    plan.insert(plan.end(), adapted.begin(), adapted.end());
    const plan::Scenario scenario = scenario_from(kLambPlain, plan);
    numerics::expect_losses(performed(scenario, numerics::kPlainSteps, tokens.path()).result.loss, expected,
                            numerics::learnt_share(scenario));
  }
}

class LambPlans : public testing::TestWithParam<Case> {};
TEST_P(LambPlans, TrainAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam());
}

std::vector<Case> lamb_cases() {
  const Assignments lamb = {"training.optimizer=lamb", "training.lr=1e-2"};
  std::vector<Case> cases = {
      {"ddp3", kGpt, grid(3, 1, 1, 0), lamb},
      {"tensor2", kGpt, grid(2, 2, 1, 0), lamb},
      {"tensor2_sequence_zero1", kLlama, grid(4, 2, 1, 1, {"plan.sequence_parallel=true"}), lamb},
      {"tensor2_zero3", kGpt, grid(4, 2, 1, 3), lamb},
      {"pipeline2_zero2", kGpt, grid(4, 1, 2, 2), lamb},
      {"tied_pipeline4", kGpt, grid(4, 1, 4, 0), lamb},
      {"hybrid", kLlama, grid(4, 1, 1, 3, {"plan.zero_group=2"}), lamb}};
  Assignments lora = lamb;
  lora.insert(lora.end(), {"training.lora_rank=4", "training.lora_alpha=8"});
  cases.push_back({"lora_ddp3", kGpt, grid(3, 1, 1, 0), lora});
  cases.push_back({"lora_tensor2_zero3", kLlama, grid(4, 2, 1, 3, {"plan.sequence_parallel=true"}), lora});
  cases.push_back({"lora_pipeline2_zero1", kGpt, grid(4, 1, 2, 1), lora});
  for (const int zero : {1, 2, 3}) cases.push_back({"zero" + std::to_string(zero), kGpt, grid(2, 1, 1, zero), lamb});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Plans, LambPlans, testing::ValuesIn(lamb_cases()), name_of_case);

}  // namespace
}  // namespace rehearse
