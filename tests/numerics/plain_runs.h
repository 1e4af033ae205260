// What tests of plans against a plain model share: cases, a file of tokens, values to begin with, and how near losses
// must come.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "execute/data.h"
#include "execute/rank/initial_values.h"
#include "sim/plan/performed_keys.h"
#include "sim/plan/scenario.h"
#include "tests/numerics/performed.h"
#include "tests/numerics/plain_gpt.h"
#include "tests/support/temporary.h"

namespace rehearse::numerics {

inline constexpr int kPlainSteps = 20;
// Relative. fp32 rounding leaves 3e-7 on one rank; a weight decay of 0.19 for 0.2 is 9e-4 away, clipping at 0.55 for
// 0.5 2e-5.
inline constexpr double kPlainTolerance = 5e-6;

struct PlainCase {
  std::string name;
  std::vector<std::string> assignments;
};
inline std::ostream& operator<<(std::ostream& out, const PlainCase& c) {
  return out << c.name;
}
inline std::string plain_case_name(const testing::TestParamInfo<PlainCase>& tested) {
  return tested.param.name;
}
inline std::vector<std::string> split(std::int64_t gpus, std::vector<std::string> more) {
  more.push_back("cluster.gpus=" + std::to_string(gpus));
  return more;
}

// 4,000 tokens below 256; token(i) is the i-th.
class TokenFile {
 public:
  TokenFile(const std::string& name, const std::function<unsigned(unsigned)>& token)
      : path_(test::temporary_path(name)) {
    std::ofstream file(path_, std::ios::binary);
    for (unsigned i = 0; i < 4000; ++i) file.put(static_cast<char>(token(i))).put(0);
  }
  ~TokenFile() { std::filesystem::remove(path_); }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// By a parameter's name and an element's index, as the Performer draws them; drawn a block of elements at a time.
inline std::function<float(const std::string&, std::int64_t)> initial_values(const plan::Scenario& scenario) {
  constexpr std::int64_t kBlock = 4096;
  const double deep = 0.02 / std::sqrt(2.0 * static_cast<double>(scenario.model.layers));
  const auto draw = [seed = scenario.training.seed, deep, m = scenario.model](const std::string& name,
                                                                              std::int64_t first, float* out) {
    using Kind = program::Init::Kind;
    if (name.ends_with(".lora_a")) {  // uniform, by the product's input
      const std::int64_t in = name.ends_with(".proj.lora_a")           ? m.attention_width()
                              : name.ends_with(".experts.down.lora_a") ? m.expert_ffn_hidden
                              : name.ends_with(".shared.down.lora_a")  ? m.shared_experts * m.shared_ffn_hidden
                              : name.ends_with(".q_up.lora_a")         ? m.q_lora_rank
                              : name.ends_with(".kv_up.lora_a")        ? m.kv_lora_rank
                              : name.ends_with(".down.lora_a")         ? m.ffn_hidden
                                                                       : m.hidden;
      return execute::draw_values(Kind::uniform, 1 / std::sqrt(static_cast<double>(in)), name, seed, first, kBlock,
                                  out);
    }
    if (name.find(".mixer.conv.") != std::string::npos)
      return execute::draw_values(Kind::uniform, 1 / std::sqrt(static_cast<double>(m.mamba_conv)), name, seed, first,
                                  kBlock, out);
    for (const auto& [of_heads, kind] :
         {std::pair{".dt_bias", Kind::step}, std::pair{".a_log", Kind::decay}, std::pair{".mixer.d", Kind::ones}})
      if (name.ends_with(of_heads)) return execute::draw_values(kind, 0, name, seed, first, kBlock, out);
    const bool residual =
        name.ends_with(".mixer.out.weight") || name.ends_with(".proj.weight") || name.ends_with(".down.weight");
    const Kind gamma = m.zero_centered_norms ? Kind::zeros : Kind::ones;
    const bool drawn = name.ends_with("weight") || name.ends_with(".sinks");
    const Kind kind = name.ends_with("gamma") ? gamma : drawn ? Kind::normal : Kind::zeros;
    execute::draw_values(kind, residual ? deep : 0.02, name, seed, first, kBlock, out);
  };
  struct Block {
    std::string name;
    std::int64_t first = -1;
    std::vector<float> values = std::vector<float>(kBlock);
  };
  return [draw, block = Block{}](const std::string& name, std::int64_t index) mutable {
    if (const std::int64_t first = index / kBlock * kBlock; block.name != name || block.first != first) {
      draw(name, first, block.values.data());
      block.name = name, block.first = first;
    }
    return block.values[static_cast<std::size_t>(index - block.first)];
  };
}

// Tokens below 61 that a model can learn: each follows from the one before, mostly.
inline TokenFile learnable_tokens() {
  return {"tokens.bin",
          [token = 1U](unsigned i) mutable { return token = i % 5 == 4 ? i * i % 61 : (token * 17 + 3) % 61; }};
}

// The example of that number, counted from the first step's first.
inline Sequence sequence_of(execute::Data& data, const plan::Scenario& scenario, std::int64_t number) {
  const std::int64_t n = scenario.training.seq_len;
  Sequence sequence{std::vector<std::int32_t>(static_cast<std::size_t>(n)),
                    std::vector<std::int32_t>(static_cast<std::size_t>(n))};
  data.load(program::InputKind::tokens, {number}, n, sequence.tokens.data());
  data.load(program::InputKind::targets, {number}, n, sequence.targets.data());
  return sequence;
}

inline PlainGpt<double>::Data sequences(execute::Data& data, const plan::Scenario& scenario) {
  return [&](std::int64_t step, std::int64_t index) {
    return sequence_of(data, scenario, step * scenario.training.global_batch + index);
  };
}

// The tokens of a sequence by the rank that routes them.
std::vector<std::vector<std::int64_t>> token_shards(const plan::Scenario& scenario);
// The plain GPT of a scenario: all that it can be of the model and of training, and of the plan whose ranks drop tokens
// where experts have a capacity.
GptShape plain_shape(const plan::Scenario& scenario);
// What it reads of the plan, to be known by beside read_of().
std::string shards_text(const GptShape& shape);

// `learnt`: the last loss is below that share of the first.
inline void expect_losses(const std::vector<double>& losses, const std::vector<double>& expected, double learnt = 0.9) {
  ASSERT_EQ(losses.size(), expected.size());
  EXPECT_LT(expected.back(), learnt * expected.front()) << "too little is learnt for the curves to say much";
  for (std::size_t s = 0; s < expected.size(); ++s)
    EXPECT_NEAR(losses[s], expected[s], kPlainTolerance * expected[s]) << "step " << s;
}

// What a plain model can read of a scenario and of its data: model and training, whatever the plan, and all tokens.
inline std::string read_of(const plan::Scenario& scenario, const std::string& data_file) {
  std::string text;
  for (const auto& [key, value] : plan::performed_keys(scenario))
    if (key.starts_with("model.") || key.starts_with("training.")) text += fmt::format("{}: {}\n", key, value);
  std::ifstream file(data_file, std::ios::binary);
  return text.append(std::istreambuf_iterator<char>(file), {});
}

// A plain model's losses, worked out once for all tests of a process that read the same of their scenarios.
template <class Train>
const std::vector<double>& trained_once(const std::string& read, const Train& train) {
  static std::map<std::string, std::vector<double>> known;
  const auto [found, is_new] = known.try_emplace(read);
  if (is_new) found->second = train();
  return found->second;
}

// Tokens below 61, of which every second is the same, so that there is something to learn in twenty steps.
inline TokenFile alternating_tokens() {
  return {"alternating-tokens.bin", [token = 1U](unsigned i) mutable {
            token = (token * 17 + 3 + i / 5) % 61;
            return i % 2 == 0 ? 5 : token;
          }};
}

// Of twenty steps of `model` on the tokens of a file, whose examples example_of(data, scenario, number) gives; what it
// reads of the plan is in `of_plan`.
template <class Model, class Shape, class ExampleOf>
const std::vector<double>& plain_losses_of(const Shape& shape, const plan::Scenario& scenario,
                                           const ExampleOf& example_of, const TokenFile& tokens,
                                           const std::string& of_plan) {
  const plan::Training& t = scenario.training;
  return trained_once(read_of(scenario, tokens.path()) + of_plan, [&] {
    const auto data = execute::open_data(scenario.model, t.seq_len, t.seed, tokens.path());
    return Model(shape, initial_values(scenario))
        .train(kPlainSteps, t.global_batch, {t.lr, t.beta1, t.beta2, t.eps, t.weight_decay, t.clip},
               [&](std::int64_t step, std::int64_t index) {
                 return example_of(*data, scenario, step * t.global_batch + index);
               });
  });
}

// Of low-rank adaptation adapters alone are.
inline bool trains(const plan::Scenario& scenario, const std::string& parameter) {
  return !scenario.training.lora() || parameter.find(".lora_") != std::string::npos;
}
// Columns of an adapter's matrix of `elements`.
inline std::int64_t adapter_columns(const plan::Scenario& scenario, const std::string& parameter,
                                    std::int64_t elements) {
  const std::int64_t rank = scenario.training.lora_rank;
  return parameter.ends_with(".lora_a") ? elements / rank : rank;
}

// With a frozen table of small numbers logits cannot grow far.
inline double learnt_share(const plan::Scenario& scenario) {
  return scenario.training.lora() ? 0.99 : 0.9;
}

// The Performer's losses are those.
template <class Model, class Shape, class ExampleOf>
void expect_losses_of(const Shape& shape, const plan::Scenario& scenario, const ExampleOf& example_of,
                      const TokenFile& tokens = alternating_tokens(), const std::string& of_plan = "") {
  const std::vector<double>& expected = plain_losses_of<Model>(shape, scenario, example_of, tokens, of_plan);
  expect_losses(performed(scenario, kPlainSteps, tokens.path()).result.loss, expected, learnt_share(scenario));
}

// Of the plain GPT, whose shape is plain_shape().
void expect_plain_gpt_losses(const plan::Scenario& scenario, const TokenFile& tokens);

// Parameters for a model's own check.
inline float waves(const std::string& name, std::int64_t i) {
  const double wave = std::sin(static_cast<double>(i + 3) * 1.7 + static_cast<double>(name.size()));
  return static_cast<float>(0.3 * wave + (name.ends_with("gamma") ? 1 : 0));
}

// The plain model's own gradients: a step of `step` either way, of some elements of each parameter.
template <class Model, class Batch>
void expect_gradients_of_differences(Model& model, const Batch& batch, double step) {
  model.loss_and_gradients(batch);
  auto analytic = model.parameters();
  for (auto& [name, p] : model.parameters())
    for (std::size_t i = 0; i < p.value.size(); i += 3) {
      const double kept = p.value[i];
      p.value[i] = kept + step;
      const double above = model.loss_and_gradients(batch);
      p.value[i] = kept - step;
      const double below = model.loss_and_gradients(batch);
      p.value[i] = kept;
      EXPECT_NEAR(analytic.at(name).gradient[i], (above - below) / (2 * step), 1e-7) << name << " " << i;
    }
}

}  // namespace rehearse::numerics
