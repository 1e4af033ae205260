// Muon (training.optimizer: muon) performed, against the plain GPT with an update written here from the authors'
// formulas (program::Muon has the sources), AdamW of all but the matrices of blocks; and plans against one rank.
#include <gtest/gtest.h>

#include <map>

#include "tests/numerics/plain_gpt.h"
#include "tests/numerics/plain_runs.h"
#include "tests/numerics/plan_runs.h"

namespace rehearse {
namespace {

using numerics::PlainGpt;
using Matrix = std::vector<std::vector<double>>;

const char* const kMuonPlain = R"(
rehearse: 1
model: {family: gpt, layers: 2, hidden: 24, heads: 6, kv_heads: 3, head_dim: 8, ffn_hidden: 40, vocab: 61, max_seq_len: 18, attention: flash}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 2, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, optimizer: muon, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 7}
)";

// What a change to the update does to the losses is to be seen.
struct MuonRule {
  double a = 3.4445, momentum = 0.95, size = 0.2;
  bool nesterov = true, split_qkv = true;
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t k = 0; k < b.size(); ++k)
      for (std::size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}
Matrix transpose(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}
// a A + b B
Matrix sum(double a, const Matrix& x, double b, const Matrix& y) {
  Matrix z = x;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < x[0].size(); ++j) z[i][j] = a * x[i][j] + b * y[i][j];
  return z;
}

Matrix orthogonalised(Matrix x, const MuonRule& rule) {
  const bool tall = x.size() > x[0].size();
  const double size = rule.size * std::sqrt(static_cast<double>(std::max(x.size(), x[0].size())));
  if (tall) x = transpose(x);
  double squares = 0;
  for (const auto& row : x)
    for (const double v : row) squares += v * v;
  x = sum(1 / (std::sqrt(squares) + 1e-7), x, 0, x);
  for (int i = 0; i < 5; ++i) {
    const Matrix a = product(x, transpose(x));
    x = sum(rule.a, x, 1, product(sum(-4.7750, a, 2.0315, product(a, a)), x));
  }
  x = sum(size, x, 0, x);
  return tall ? transpose(x) : x;
}

class PlainMuon {
 public:
  PlainMuon(const plan::Scenario& scenario, const MuonRule& rule) : s_(scenario), rule_(rule) {}

  void update(PlainGpt<double>& model) {
    const plan::Training& t = s_.training;
    double squares = 0;
    for (const auto& p : model.parameters())
      for (const double g : numerics::trains(s_, p.name) ? p.gradient : std::vector<double>()) squares += g * g;
    const double clip = t.clip > 0 ? std::min(1.0, t.clip / (std::sqrt(squares) + 1e-6)) : 1;
    ++step_;
    for (auto& p : model.parameters()) {
      if (!numerics::trains(s_, p.name)) continue;
      for (double& g : p.gradient) g *= clip;
      const bool hidden = p.name.starts_with("layer") && (p.name.ends_with(".weight") || s_.training.lora());
      const std::vector<double> u = hidden ? by_muon(p) : by_adam(p);
      for (std::size_t i = 0; i < u.size(); ++i) p.value[i] -= t.lr * (t.weight_decay * p.value[i] + u[i]);
    }
  }

 private:
  std::vector<double> by_adam(PlainGpt<double>::Parameter& p) const {
    const plan::Training& t = s_.training;
    std::vector<double> u;
    for (std::size_t i = 0; i < p.value.size(); ++i) {
      p.exp_avg[i] = t.beta1 * p.exp_avg[i] + (1 - t.beta1) * p.gradient[i];
      p.exp_avg_sq[i] = t.beta2 * p.exp_avg_sq[i] + (1 - t.beta2) * p.gradient[i] * p.gradient[i];
      u.push_back(p.exp_avg[i] / (1 - std::pow(t.beta1, step_)) /
                  (std::sqrt(p.exp_avg_sq[i] / (1 - std::pow(t.beta2, step_))) + t.eps));
    }
    return u;
  }

  // Rows of the whole tensor that are one matrix: of queries, keys and values each key head's group has its own.
  std::vector<std::vector<std::size_t>> matrices(const std::string& name, std::size_t rows) const {
    std::vector<std::vector<std::size_t>> list(
        rule_.split_qkv && (name.ends_with("qkv.weight") || name.ends_with("qkv.lora_b")) ? 3 : 1);
    const model::Model& m = s_.model;
    const auto head = static_cast<std::size_t>(m.head_dim), queries = static_cast<std::size_t>(m.heads / m.kv_heads);
    for (std::size_t r = 0; r < rows; ++r) {
      const std::size_t in_group = r / head % (queries + 2);
      list[list.size() == 1 || in_group < queries ? 0 : in_group - queries + 1].push_back(r);
    }
    return list;
  }

  std::vector<double> by_muon(PlainGpt<double>::Parameter& p) const {
    const model::Model& m = s_.model;
    const auto elements = static_cast<std::int64_t>(p.value.size());
    const auto cols = static_cast<std::size_t>(s_.training.lora() ? numerics::adapter_columns(s_, p.name, elements)
                                               : p.name.ends_with("proj.weight") ? m.attention_width()
                                               : p.name.ends_with("down.weight") ? m.ffn_hidden
                                                                                 : m.hidden);
    std::vector<double> u(p.value.size());
    for (const auto& rows : matrices(p.name, p.value.size() / cols)) {
      Matrix x;
      for (const std::size_t r : rows) {
        x.emplace_back();
        for (std::size_t c = r * cols; c < (r + 1) * cols; ++c) {
          p.exp_avg[c] = rule_.momentum * p.exp_avg[c] + p.gradient[c];
          x.back().push_back(rule_.nesterov ? p.gradient[c] + rule_.momentum * p.exp_avg[c] : p.exp_avg[c]);
        }
      }
      x = orthogonalised(std::move(x), rule_);
      for (std::size_t i = 0; i < rows.size(); ++i)
        for (std::size_t c = 0; c < cols; ++c) u[rows[i] * cols + c] = x[i][c];
    }
    return u;
  }

  const plan::Scenario& s_;
  MuonRule rule_;
  double step_ = 0;
};

std::vector<double> plain_muon_losses(const plan::Scenario& s, const std::string& file, std::int64_t steps,
                                      const MuonRule& rule = {}) {
  PlainGpt<double> model(numerics::plain_shape(s), numerics::initial_values(s));
  const auto data = execute::open_data(s.model, s.training.seq_len, s.training.seed, file);
  const auto sequence = numerics::sequences(*data, s);
  PlainMuon muon(s, rule);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<numerics::Sequence> batch;
    for (std::int64_t i = 0; i < s.training.global_batch; ++i) batch.push_back(sequence(step, i));
    losses.push_back(model.loss_and_gradients(batch));
    muon.update(model);
  }
  return losses;
}

TEST(Muon, TwentyStepsHaveThePlainModelsLosses) {
  const numerics::TokenFile tokens = numerics::learnable_tokens();
  const std::vector<double> expected =
      plain_muon_losses(scenario_from(kMuonPlain, {}), tokens.path(), numerics::kPlainSteps);
  for (const Assignments& plan : {Assignments{},
                                  {"cluster.gpus=2"},
                                  {"cluster.gpus=2", "plan.pipeline=2"},
                                  {"framework=torch-ddp", "model.dropout=0"}}) {
    const plan::Scenario scenario = scenario_from(kMuonPlain, plan);
    const std::vector<double> losses = performed(scenario, numerics::kPlainSteps, tokens.path()).result.loss;
    numerics::expect_losses(losses, expected);
  }
}

// A and B of adapters are matrices of their own; what is frozen has no part in the gradient's norm.
const Assignments kAdapted = {"training.lora_rank=4", "training.lora_alpha=8", "training.clip=0.02"};

TEST(Muon, OfAdaptersHasThePlainModelsLosses) {
  const numerics::TokenFile tokens = numerics::learnable_tokens();
  const plan::Scenario one = scenario_from(kMuonPlain, kAdapted);
  const std::vector<double> expected = plain_muon_losses(one, tokens.path(), numerics::kPlainSteps);
  for (Assignments plan : {Assignments{},
                           {"cluster.gpus=2", "plan.zero=1"},
                           {"cluster.gpus=2", "plan.pipeline=2"},
                           {"cluster.gpus=2", "plan.tensor=2", "model.kv_heads=6"}}) {
    plan.insert(plan.end(), kAdapted.begin(), kAdapted.end());
    const plan::Scenario scenario = scenario_from(kMuonPlain, plan);
    const std::vector<double> own = scenario.model.kv_heads == one.model.kv_heads
                                        ? expected
                                        : plain_muon_losses(scenario, tokens.path(), numerics::kPlainSteps);
    const std::vector<double> losses = performed(scenario, numerics::kPlainSteps, tokens.path()).result.loss;
    numerics::expect_losses(losses, own, numerics::learnt_share(scenario));
  }
  const std::vector<double> whole =
      plain_muon_losses(one, tokens.path(), numerics::kPlainSteps, {3.4445, 0.95, 0.2, true, false});
  EXPECT_GT(std::abs(whole.back() / expected.back() - 1), 10 * numerics::kPlainTolerance)
      << "three matrices of B are not felt";
}

// What the losses above are held to would show another coefficient, momentum or size, plain momentum, and queries, keys
// and values as one matrix.
TEST(Muon, EveryPartOfTheRuleIsFelt) {
  const numerics::TokenFile tokens = numerics::learnable_tokens();
  const plan::Scenario scenario = scenario_from(kMuonPlain, {});
  const std::vector<double> losses = plain_muon_losses(scenario, tokens.path(), numerics::kPlainSteps);
  for (const MuonRule& rule : {MuonRule{3.45, 0.95, 0.2, true, true}, MuonRule{3.4445, 0.94, 0.2, true, true},
                               MuonRule{3.4445, 0.95, 0.201, true, true}, MuonRule{3.4445, 0.95, 0.2, false, true},
                               MuonRule{3.4445, 0.95, 0.2, true, false}}) {
    const std::vector<double> others = plain_muon_losses(scenario, tokens.path(), numerics::kPlainSteps, rule);
    double most = 0;
    for (std::size_t i = 0; i < losses.size(); ++i) most = std::max(most, std::abs(others[i] / losses[i] - 1));
    EXPECT_GT(most, 10 * numerics::kPlainTolerance);
  }
}

class MuonPlans : public testing::TestWithParam<Case> {};

TEST_P(MuonPlans, TrainAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam());
}

std::vector<Case> muon_cases() {
  const Assignments rule = {"training.optimizer=muon"};
  Assignments adapted = {"training.optimizer=muon", "training.lora_rank=4", "training.lora_alpha=8"};
  Assignments latents = adapted;
  latents.insert(latents.end(), {"model.kv_heads=8", "model.q_lora_rank=12", "model.kv_lora_rank=12",
                                 "model.qk_nope_head_dim=6", "model.qk_rope_head_dim=2", "model.v_head_dim=4"});
  return {{"llama_ddp2", kLlama, grid(2, 1, 1, 0), rule},
          {"llama_pipeline2_data2", kLlama, grid(4, 1, 2, 0), rule},
          {"llama_context2_one_bucket", kLlama, grid(2, 1, 1, 0, {"plan.context=2", "plan.bucket=1GiB"}), rule},
          {"gpt_torch_ddp", kGpt, grid(2, 1, 1, 0, {"framework=torch-ddp"}), rule},
          // Four layers: of three ranks two have a matrix of a shape more than the third, which has zeros.
          {"llama_zero1", kLlama, grid(4, 1, 1, 1), rule},
          {"llama_zero1_of3", kLlama, grid(3, 1, 1, 1), rule},
          {"llama_zero1_buckets", kLlama, grid(2, 1, 1, 1, {"plan.bucket=16KiB"}), rule},
          {"llama_zero2_context2", kLlama, grid(4, 1, 1, 2, {"plan.context=2"}), rule},
          {"llama_zero1_megatron_core", kLlama, grid(4, 1, 2, 1, {"framework=megatron-core"}), rule},
          {"llama_tensor2", kLlama, grid(2, 2, 1, 0), rule},
          {"gpt_tensor4_sequence", kGpt, grid(4, 4, 1, 0, {"plan.sequence_parallel=true"}), rule},
          {"llama_tensor2_zero1_pipeline2", kLlama, grid(8, 2, 2, 1, {"plan.sequence_parallel=true"}), rule},
          {"llama_tensor2_zero1_group", kLlama, grid(8, 2, 1, 1, {"plan.zero_group=2"}), rule},
          // Shards of layers: of four layers each of two ranks makes two orthogonal; of three and of eight some none.
          {"llama_zero3", kLlama, grid(2, 1, 1, 3), rule},
          {"llama_zero3_of3", kLlama, grid(3, 1, 1, 3), rule},
          {"gpt_zero3_group", kGpt, grid(6, 1, 1, 3, {"plan.zero_group=3"}), rule},
          {"llama_zero3_context2", kLlama, grid(4, 1, 1, 3, {"plan.context=2"}), rule},
          {"llama_tensor2_zero3_pipeline2", kLlama, grid(8, 2, 2, 3, {"plan.sequence_parallel=true"}), rule},
          {"gpt_tensor2_zero3", kGpt, grid(4, 2, 1, 3), rule},
          {"llama_zero3_torch_fsdp2", kLlama, grid(3, 1, 1, 3, {"framework=torch-fsdp2"}), rule},
          {"llama_zero3_deepspeed", kLlama, grid(3, 1, 1, 3), {"training.optimizer=muon", "framework=deepspeed"}},
          {"gpt_lora_zero3_of3", kGpt, grid(3, 1, 1, 3), adapted},
          {"gpt_lora_ddp2", kGpt, grid(2, 1, 1, 0), adapted},
          {"gpt_lora_zero1_of3", kGpt, grid(3, 1, 1, 1), adapted},
          {"llama_lora_zero2_context2", kLlama, grid(4, 1, 1, 2, {"plan.context=2"}), adapted},
          {"llama_lora_tensor2_zero1_pipeline2", kLlama, grid(8, 2, 2, 1, {"plan.sequence_parallel=true"}), adapted},
          {"llama_lora_tensor2_zero1_megatron", kLlama, grid(4, 2, 1, 1, {"framework=megatron-core"}), adapted},
          {"llama_lora_latents_tensor2_zero1", kLlama, grid(4, 2, 1, 1), latents},
          {"llama_lora_latents_tensor2_sequence_zero1", kLlama, grid(4, 2, 1, 1, {"plan.sequence_parallel=true"}),
           latents}};
}
INSTANTIATE_TEST_SUITE_P(Plans, MuonPlans, testing::ValuesIn(muon_cases()), name_of_case);

// Matrices of experts are each an expert's own, wherever they are.
TEST(Muon, ExpertsOnTwoRanksTrainAsOnOne) {
  const std::string moe =
      "rehearse: 1\nmodel: {family: moe, layers: 2, hidden: 32, heads: 8, kv_heads: 4, ffn_hidden: 64, vocab: 250, "
      "max_seq_len: 16, experts: 4, experts_per_token: 2, expert_ffn_hidden: 24, shared_experts: 1, aux_loss: 0.05, "
      "capacity_factor: 4}\n" +
      kTraining;
  expect_trains_as_one_rank(
      {"moe", moe, grid(2, 1, 1, 0, {"plan.expert=2", "plan.micro_batch=1"}), {"training.optimizer=muon"}}, 1);
  // In shards of four ranks, of experts' matrices of two, and split over a tensor group.
  expect_trains_as_one_rank({"split",
                             moe,
                             grid(8, 2, 1, 1, {"plan.expert=2", "plan.micro_batch=1", "plan.sequence_parallel=true"}),
                             {"training.optimizer=muon", "model.layers=4"}},
                            1);
  expect_trains_as_one_rank({"shards",
                             moe,
                             grid(8, 2, 1, 3, {"plan.expert=2", "plan.micro_batch=1", "plan.sequence_parallel=true"}),
                             {"training.optimizer=muon", "model.layers=3"}},
                            1);
  // Adapters of experts, and of shared ones beside them.
  const Assignments lora = {"training.optimizer=muon", "model.layers=4", "training.lora_rank=4"};
  for (const Assignments& plan :
       {grid(2, 1, 1, 0, {"plan.expert=2"}), grid(8, 2, 1, 1, {"plan.expert=2", "plan.sequence_parallel=true"}),
        grid(4, 2, 1, 1, {"plan.expert=4", "plan.sequence_parallel=true", "plan.expert_tensor=1"})}) {
    Assignments one_each = plan;
    one_each.emplace_back("plan.micro_batch=1");
    expect_trains_as_one_rank({"adapters", moe, one_each, lora}, 1);
  }
}

// In 16 bits an fp32 copy is updated.
TEST(Muon, InBf16FollowsFp32) {
  const Assignments one = {"training.optimizer=muon", "cluster.gpus=1", "plan.micro_batch=12"};
  Assignments half = one;
  half.insert(half.end(), {"training.precision=bf16", "training.grad_dtype=fp32", "training.reduce_dtype=fp32"});
  const std::vector<double> wide = perform(kLlama, one, 8).result.loss, narrow = perform(kLlama, half, 8).result.loss;
  for (std::size_t s = 0; s < wide.size(); ++s) EXPECT_NEAR(narrow.at(s) / wide[s], 1, 0x1p-9) << s;
  EXPECT_NE(narrow, wide);
}

TEST(Muon, RepeatsBitByBit) {
  const Assignments plan = grid(2, 1, 2, 0, {"training.optimizer=muon"});
  const execute::Outcome one = perform(kLlama, plan, 5), other = perform(kLlama, plan, 5);
  EXPECT_EQ(one.result.loss, other.result.loss);
  EXPECT_EQ(one.parameters, other.parameters);
}

}  // namespace
}  // namespace rehearse
