// What tests of plans against a plain model share: cases, a file of tokens, values to begin with, and how near losses
// must come.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "execute/data.h"
#include "execute/rank/initial_values.h"
#include "sim/plan/scenario.h"
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

// By a parameter's name and an element's index, as the Performer draws them.
inline std::function<float(const std::string&, std::int64_t)> initial_values(const plan::Scenario& scenario) {
  const double deep = 0.02 / std::sqrt(2.0 * static_cast<double>(scenario.model.layers));
  return [seed = scenario.training.seed, deep, m = scenario.model](const std::string& name, std::int64_t index) {
    using Kind = program::Init::Kind;
    if (name.ends_with(".lora_a")) {  // uniform, by the product's input
      const std::int64_t in = name.ends_with(".proj.lora_a")   ? m.attention_width()
                              : name.ends_with(".down.lora_a") ? m.ffn_hidden
                                                               : m.hidden;
      float drawn = 0;
      execute::draw_values(Kind::uniform, 1 / std::sqrt(static_cast<double>(in)), name, seed, index, 1, &drawn);
      return drawn;
    }
    const bool residual = name.ends_with(".proj.weight") || name.ends_with(".down.weight");
    const Kind kind = name.ends_with("gamma") ? Kind::ones : name.ends_with("weight") ? Kind::normal : Kind::zeros;
    float value = 0;
    execute::draw_values(kind, residual ? deep : 0.02, name, seed, index, 1, &value);
    return value;
  };
}

// Tokens below 61 that a model can learn: each follows from the one before, mostly.
inline TokenFile learnable_tokens() {
  return {"tokens.bin",
          [token = 1U](unsigned i) mutable { return token = i % 5 == 4 ? i * i % 61 : (token * 17 + 3) % 61; }};
}

inline PlainGpt<double>::Data sequences(execute::Data& data, const plan::Scenario& scenario) {
  return [&data, batch = scenario.training.global_batch, n = scenario.training.seq_len](std::int64_t step,
                                                                                        std::int64_t index) {
    Sequence sequence{std::vector<std::int32_t>(static_cast<std::size_t>(n)),
                      std::vector<std::int32_t>(static_cast<std::size_t>(n))};
    data.load(program::InputKind::tokens, {step * batch + index}, n, sequence.tokens.data());
    data.load(program::InputKind::targets, {step * batch + index}, n, sequence.targets.data());
    return sequence;
  };
}

// `learnt`: the last loss is below that share of the first.
inline void expect_losses(const std::vector<double>& losses, const std::vector<double>& expected, double learnt = 0.9) {
  ASSERT_EQ(losses.size(), expected.size());
  EXPECT_LT(expected.back(), learnt * expected.front()) << "too little is learnt for the curves to say much";
  for (std::size_t s = 0; s < expected.size(); ++s)
    EXPECT_NEAR(losses[s], expected[s], kPlainTolerance * expected[s]) << "step " << s;
}

}  // namespace rehearse::numerics
