// Adafactor (training.optimizer: adafactor) performed, against the plain GPT with an update written here from the
// paper's algorithms 4 and 5 (Shazeer and Stern 2018, arXiv 1804.04235), and plans against one rank. Models have no
// biases: a key's bias has no gradient but what rounding leaves, which Adafactor, with 1e-30 where Adam has 1e-8, makes
// updates of full size of. They change no loss by themselves, but their part of the tensor's clipping does.
#include <gtest/gtest.h>

#include <map>

#include "tests/numerics/plain_gpt.h"
#include "tests/numerics/plain_runs.h"
#include "tests/numerics/plan_runs.h"

namespace rehearse {
namespace {

using numerics::PlainGpt;

const char* const kPlain = R"(
rehearse: 1
model: {family: gpt, layers: 2, hidden: 24, heads: 6, head_dim: 8, ffn_hidden: 40, vocab: 61, max_seq_len: 18, attention: flash, bias: false}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 2, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, optimizer: adafactor, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 7}
)";

// Columns of a matrix; 0: a vector. Weights are [out, in].
std::int64_t columns(const std::string& name, const plan::Scenario& s, std::size_t elements) {
  const model::Model& m = s.model;
  if (name.find(".lora_") != std::string::npos)
    return numerics::adapter_columns(s, name, static_cast<std::int64_t>(elements));
  if (!name.ends_with("weight")) return 0;
  if (name.ends_with("proj.weight")) return m.heads * m.head_dim;
  return name.ends_with("down.weight") ? m.ffn_hidden : m.hidden;
}

// What a change to the update does to the losses is to be seen.
struct Rule {
  double decay_power = -0.8, threshold = 1;
  bool normalised = true;  // the rows' means by their mean
};

class PlainAdafactor {
 public:
  PlainAdafactor(const plan::Scenario& scenario, const Rule& rule) : s_(scenario), rule_(rule) {}

  void update(PlainGpt<double>& model) {
    const plan::Training& t = s_.training;
    double squares = 0;
    for (const auto& p : model.parameters())
      for (const double g : numerics::trains(s_, p.name) ? p.gradient : std::vector<double>()) squares += g * g;
    const double clip = t.clip > 0 ? std::min(1.0, t.clip / (std::sqrt(squares) + 1e-6)) : 1;
    const double beta = 1 - std::pow(++step_, rule_.decay_power);
    for (auto& p : model.parameters()) {
      if (!numerics::trains(s_, p.name)) continue;
      for (double& g : p.gradient) g *= clip;
      const std::vector<double> u = updates(p, beta);
      double sum = 0;
      for (const double x : u) sum += x * x;
      const double by = std::max(1.0, std::sqrt(sum / static_cast<double>(u.size())) / rule_.threshold);
      for (std::size_t i = 0; i < u.size(); ++i) p.value[i] -= t.lr * (t.weight_decay * p.value[i] + u[i] / by);
    }
  }

 private:
  std::vector<double> updates(const PlainGpt<double>::Parameter& p, double beta) {
    const auto follow = [&](double& mean, double now) { mean = beta * mean + (1 - beta) * now; };
    const auto n = p.value.size(), cols = static_cast<std::size_t>(columns(p.name, s_, p.value.size()));
    std::vector<double> u = p.gradient, &row = rows_[p.name], &col = cols_[p.name];
    const auto square = [&](std::size_t i) { return p.gradient[i] * p.gradient[i] + 1e-30; };
    if (cols == 0) {
      col.resize(n);
      for (std::size_t i = 0; i < n; ++i) {
        follow(col[i], square(i));
        u[i] /= std::sqrt(col[i]);
      }
      return u;
    }
    const std::size_t rows = n / cols;
    row.resize(rows), col.resize(cols);
    double mean = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::size_t c = 0; c < cols; ++c) sum += square(r * cols + c);
      follow(row[r], sum / static_cast<double>(cols));
      mean += row[r] / static_cast<double>(rows);
    }
    for (std::size_t c = 0; c < cols; ++c) {
      double sum = 0;
      for (std::size_t r = 0; r < rows; ++r) sum += square(r * cols + c);
      follow(col[c], sum / static_cast<double>(rows));
    }
    for (std::size_t i = 0; i < n; ++i)
      u[i] /= std::sqrt(row[i / cols] * col[i % cols] / (rule_.normalised ? mean : 1));
    return u;
  }

  const plan::Scenario& s_;
  Rule rule_;
  double step_ = 0;
  std::map<std::string, std::vector<double>> rows_, cols_;
};

std::vector<double> plain_losses(const plan::Scenario& s, const std::string& file, const Rule& rule = {}) {
  PlainGpt<double> model(numerics::plain_shape(s), numerics::initial_values(s));
  const auto data = execute::open_data(s.model, s.training.seq_len, s.training.seed, file);
  const auto sequence = numerics::sequences(*data, s);
  PlainAdafactor adafactor(s, rule);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < numerics::kPlainSteps; ++step) {
    std::vector<numerics::Sequence> batch;
    for (std::int64_t i = 0; i < s.training.global_batch; ++i) batch.push_back(sequence(step, i));
    losses.push_back(model.loss_and_gradients(batch));
    adafactor.update(model);
  }
  return losses;
}

TEST(Adafactor, TwentyStepsHaveThePlainModelsLosses) {
  const numerics::TokenFile tokens = numerics::learnable_tokens();
  for (const Assignments& plan : {Assignments{},
                                  {"cluster.gpus=2"},
                                  {"cluster.gpus=2", "plan.pipeline=2"},
                                  {"cluster.gpus=2", "plan.zero=1"},
                                  {"cluster.gpus=4", "plan.zero=3"},
                                  {"cluster.gpus=4", "plan.tensor=2", "plan.zero=2", "model.vocab=62"},
                                  {"framework=torch-ddp", "model.dropout=0"}}) {
    const plan::Scenario scenario = scenario_from(kPlain, plan);
    const std::vector<double> losses = performed(scenario, numerics::kPlainSteps, tokens.path()).result.loss;
    numerics::expect_losses(losses, plain_losses(scenario, tokens.path()));
  }
}

// A and B of adapters are matrices of their own.
TEST(Adafactor, OfAdaptersHasThePlainModelsLosses) {
  const numerics::TokenFile tokens = numerics::learnable_tokens();
  for (Assignments plan : {Assignments{}, {"cluster.gpus=2", "plan.zero=1"}, {"cluster.gpus=2", "plan.tensor=2"}}) {
    plan.insert(plan.end(), {"training.lora_rank=4", "training.lora_alpha=8", "training.clip=0.02", "model.vocab=62"});
    const plan::Scenario scenario = scenario_from(kPlain, plan);
    const std::vector<double> losses = performed(scenario, numerics::kPlainSteps, tokens.path()).result.loss;
    numerics::expect_losses(losses, plain_losses(scenario, tokens.path()), numerics::learnt_share(scenario));
  }
}

// What the losses above are held to would show another decay, another threshold, means that are not normalised.
TEST(Adafactor, EveryPartOfTheRuleIsFelt) {
  const numerics::TokenFile tokens = numerics::learnable_tokens();
  const plan::Scenario scenario = scenario_from(kPlain, {});
  const std::vector<double> losses = plain_losses(scenario, tokens.path());
  for (const Rule& rule : {Rule{-0.75, 1, true}, Rule{-0.8, 1.05, true}, Rule{-0.8, 1, false}}) {
    const std::vector<double> others = plain_losses(scenario, tokens.path(), rule);
    double most = 0;
    for (std::size_t i = 0; i < losses.size(); ++i) most = std::max(most, std::abs(others[i] / losses[i] - 1));
    EXPECT_GT(most, 20 * numerics::kPlainTolerance);
  }
}

class AdafactorPlans : public testing::TestWithParam<Case> {};

TEST_P(AdafactorPlans, TrainAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam());
}

std::vector<Case> adafactor_cases() {
  std::vector<Case> cases;
  const Assignments rule = {"training.optimizer=adafactor", "model.bias=false"};
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}}) {
    cases.push_back({name + "_ddp2", text, grid(2, 1, 1, 0), rule});
    cases.push_back({name + "_ddp4_one_bucket", text, grid(4, 1, 1, 0, {"plan.bucket=1GiB"}), rule});
    cases.push_back({name + "_pipeline2_data2", text, grid(4, 1, 2, 0), rule});
    cases.push_back({name + "_context2", text, grid(2, 1, 1, 0, {"plan.context=2"}), rule});
    cases.push_back({name + "_torch_ddp", text, grid(2, 1, 1, 0, {"framework=torch-ddp"}), rule});
  }
  const Assignments tied = {rule[0], rule[1], "model.tied_embeddings=true"};
  cases.push_back({"gpt_tied_pipeline2", kGpt, grid(2, 1, 2, 0), tied});
  cases.push_back({"gpt_tied_pipeline2_zero2", kGpt, grid(4, 1, 2, 2), tied});
  // What ranks have parts of.
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}}) {
    for (const int zero : {1, 2, 3})
      cases.push_back({name + "_zero" + std::to_string(zero), text, grid(3, 1, 1, zero), rule});
    cases.push_back({name + "_tensor2", text, grid(2, 2, 1, 0), rule});
    cases.push_back({name + "_tensor2_sequence_zero1", text, grid(4, 2, 1, 1, {"plan.sequence_parallel=true"}), rule});
    cases.push_back({name + "_tensor2_pipeline2_zero2", text, grid(8, 2, 2, 2), rule});
    cases.push_back({name + "_tensor2_zero3", text, grid(4, 2, 1, 3), rule});
    cases.push_back({name + "_hybrid", text, grid(4, 1, 1, 3, {"plan.zero_group=2"}), rule});
    cases.push_back({name + "_fsdp2", text, grid(2, 1, 1, 3, {"framework=torch-fsdp2"}), rule});
    cases.push_back({name + "_context2_zero1", text, grid(4, 1, 1, 1, {"plan.context=2"}), rule});
  }
  cases.push_back({"llama_adapters_tensor2_zero1", kLlama, grid(4, 2, 1, 1), {rule[0], "training.lora_rank=4"}});
  return cases;
}

// Each expert's matrix is one by itself, on whatever ranks it lies.
std::vector<Case> adafactor_expert_cases() {
  const Assignments rule = {"training.optimizer=adafactor"};
  const std::string moe =
      "rehearse: 1\n"
      "model: {family: moe, layers: 2, hidden: 32, heads: 8, kv_heads: 4, expert_ffn_hidden: 48, vocab: 250, "
      "max_seq_len: 16, experts: 4, experts_per_token: 2, aux_loss: 0, buffer_factor: 2}\n" +
      kTraining;
  return {{"experts_ddp2", moe, grid(2, 1, 1, 0), rule},
          {"experts_zero1", moe, grid(2, 1, 1, 1), rule},
          {"experts_zero3", moe, grid(2, 1, 1, 3), rule},
          {"experts_tensor2", moe, grid(2, 2, 1, 0), rule},
          {"expert2", moe, grid(2, 1, 1, 0, {"plan.expert=2"}), rule},
          {"expert2_zero1", moe, grid(4, 1, 1, 1, {"plan.expert=2"}), rule},
          {"expert2_tensor2_zero2", moe, grid(4, 2, 1, 2, {"plan.expert=2"}), rule},
          {"expert2_pipeline2_zero1", moe, grid(8, 1, 2, 1, {"plan.expert=2"}), rule}};
}
INSTANTIATE_TEST_SUITE_P(Experts, AdafactorPlans, testing::ValuesIn(adafactor_expert_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Plans, AdafactorPlans, testing::ValuesIn(adafactor_cases()), name_of_case);

// In 16 bits an fp32 copy is updated.
TEST(Adafactor, InBf16FollowsFp32) {
  const Assignments one = {"training.optimizer=adafactor", "cluster.gpus=1", "plan.micro_batch=12"};
  Assignments half = one;
  half.insert(half.end(), {"training.precision=bf16", "training.grad_dtype=fp32", "training.reduce_dtype=fp32"});
  const std::vector<double> wide = perform(kGpt, one).result.loss, narrow = perform(kGpt, half).result.loss;
  for (std::size_t s = 0; s < wide.size(); ++s) EXPECT_NEAR(narrow.at(s) / wide[s], 1, 0x1p-10) << s;
  EXPECT_NE(narrow, wide);
}

TEST(Adafactor, RepeatsBitByBit) {
  const Assignments plan = grid(4, 1, 2, 0, {"training.optimizer=adafactor"});
  const execute::Outcome one = perform(kLlama, plan), other = perform(kLlama, plan);
  EXPECT_EQ(one.result.loss, other.result.loss);
  EXPECT_EQ(one.parameters, other.parameters);
}

}  // namespace
}  // namespace rehearse
