// What is read, in which order, and what is refused.
#include "execute/data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "sim/base/diagnostics.h"
#include "tests/support/temporary.h"

namespace rehearse::execute {
namespace {

using program::InputKind;

class File {
 public:
  File(const std::string& ending, const std::string& content) : path_(test::temporary_path("data" + ending)) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

model::Model gpt(std::int64_t vocab) {
  model::Model m;
  m.family = model::Family::gpt;
  m.vocab = vocab;
  return m;
}

// Bytes 0, 1, 2, ...: a sequence says where it began.
std::string counting(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += static_cast<char>(i);
  return text;
}

std::vector<std::int32_t> load(Data& data, InputKind kind, const std::vector<std::int64_t>& numbers,
                               std::int64_t elements) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(elements));
  data.load(kind, numbers, elements, out.data());
  return out;
}

TEST(TextData, LaysSequencesSideBySideWithTheNextTokenAsTarget) {
  const File file(".txt", counting(41));
  const auto data = open_data(gpt(256), 4, 1, file.path());
  EXPECT_EQ(data->examples(), 10);
  const auto tokens = load(*data, InputKind::tokens, {0, 1}, 8), targets = load(*data, InputKind::targets, {0, 1}, 8);
  for (int i = 0; i < 2; ++i)
    for (int t = 0; t < 4; ++t) {
      const auto at = static_cast<std::size_t>(t * 2 + i);
      EXPECT_EQ(tokens[at], tokens[static_cast<std::size_t>(i)] + t);
      EXPECT_EQ(targets[at], tokens[at] + 1);
    }
  EXPECT_EQ(tokens[0] % 4, 0);
}

TEST(TextData, AnEpochVisitsEverySequenceOnceAndTheNextInAnotherOrder) {
  const File file(".txt", counting(43));  // the last two bytes are no whole sequence
  const auto data = open_data(gpt(256), 4, 1, file.path());
  std::vector<int> epochs[2];
  for (std::int64_t n = 0; n < 20; ++n) epochs[n / 10].push_back(load(*data, InputKind::tokens, {n}, 4)[0]);
  for (const auto& epoch : epochs) EXPECT_EQ(std::set<int>(epoch.begin(), epoch.end()).size(), 10U);
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST(TextData, TheSeedDecidesTheOrder) {
  const File file(".txt", counting(41));
  const auto a = open_data(gpt(256), 4, 1, file.path()), b = open_data(gpt(256), 4, 1, file.path()),
             c = open_data(gpt(256), 4, 2, file.path());
  const std::vector<std::int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(load(*a, InputKind::tokens, all, 40), load(*b, InputKind::tokens, all, 40));
  EXPECT_NE(load(*a, InputKind::tokens, all, 40), load(*c, InputKind::tokens, all, 40));
}

TEST(TextData, ABinHoldsTokensOfTwoBytes) {
  const File file(".bin", std::string("\x01\x02\x03\x00\x05\x01", 6));
  const auto data = open_data(gpt(600), 2, 1, file.path());
  EXPECT_EQ(load(*data, InputKind::tokens, {0}, 2), (std::vector<std::int32_t>{0x201, 3}));
  EXPECT_EQ(load(*data, InputKind::targets, {0}, 2), (std::vector<std::int32_t>{3, 0x105}));
}

std::string refusal(const model::Model& model, std::int64_t seq_len, const std::string& path) {
  try {
    open_data(model, seq_len, 1, path);
  } catch (const InputError& error) {
    return error.diagnostics().front().message;
  }
  return "";
}

TEST(TextData, RefusesWhatCannotBeTrainedOn) {
  const File text(".txt", counting(41)), odd(".bin", "abc");
  EXPECT_NE(refusal(gpt(256), 41, text.path()).find("too few"), std::string::npos);
  EXPECT_NE(refusal(gpt(40), 4, text.path()).find("token 40 at 40"), std::string::npos);
  EXPECT_NE(refusal(gpt(256), 4, odd.path()).find("3 bytes"), std::string::npos);
  EXPECT_NE(refusal(gpt(256), 4, "/nonexistent").find("no such file"), std::string::npos);
  model::Model mlp;
  mlp.family = model::Family::mlp;
  mlp.widths = {4, 2};
  EXPECT_NE(refusal(mlp, 1, text.path()), "");
}

TEST(MadeData, AnExampleIsNearItsClassesPatternWhoeverLoadsIt) {
  model::Model mlp;
  mlp.family = model::Family::mlp;
  mlp.widths = {16, 3};
  const auto data = open_data(mlp, 1, 5, "");
  std::vector<std::int32_t> labels(30);
  std::vector<float> features(30 * 16);
  std::vector<std::int64_t> numbers;
  for (std::int64_t n = 0; n < 30; ++n) numbers.push_back(n);
  data->load(InputKind::labels, numbers, 30, labels.data());
  data->load(InputKind::features, numbers, 30 * 16, features.data());
  EXPECT_EQ(std::set<std::int32_t>(labels.begin(), labels.end()).size(), 3U);
  // Two examples of one class differ by noise alone: at most 0.5 on either side.
  for (std::size_t i = 0; i < 30; ++i)
    for (std::size_t j = 0; j < i; ++j)
      for (std::size_t f = 0; f < 16 && labels[i] == labels[j]; ++f)
        ASSERT_LE(std::abs(features[i * 16 + f] - features[j * 16 + f]), 1.0F);
  std::vector<float> one(16);
  data->load(InputKind::features, {7}, 16, one.data());
  EXPECT_TRUE(std::equal(one.begin(), one.end(), features.begin() + 7 * 16));
}

// The values are a linear function of the inputs and an error of at most 0.1: over many examples the least squares fit
// leaves (0.1 e)^2, whose mean is 0.01 / 3.
TEST(MadeData, ARegressionsValuesAreLinearInItsInputsButForASmallError) {
  model::Model mlp;
  mlp.family = model::Family::mlp;
  mlp.widths = {2, 1};
  mlp.loss = model::LossKind::mse;
  const auto data = open_data(mlp, 1, 5, "");
  constexpr std::int64_t kExamples = 4000;
  std::vector<std::int64_t> numbers(kExamples);
  for (std::int64_t n = 0; n < kExamples; ++n) numbers[static_cast<std::size_t>(n)] = n;
  std::vector<float> x(2 * kExamples), y(kExamples);
  data->load(InputKind::features, numbers, 2 * kExamples, x.data());
  data->load(InputKind::values, numbers, kExamples, y.data());
  // Normal equations of y = a x0 + b x1.
  double xx = 0, xz = 0, zz = 0, xy = 0, zy = 0, yy = 0;
  for (std::size_t i = 0; i < kExamples; ++i) {
    const double a = x[2 * i], b = x[2 * i + 1], v = y[i];
    EXPECT_GE(a, -1);
    EXPECT_LT(a, 1);
    xx += a * a, xz += a * b, zz += b * b, xy += a * v, zy += b * v, yy += v * v;
  }
  const double determinant = xx * zz - xz * xz;
  const double a = (xy * zz - zy * xz) / determinant, b = (zy * xx - xy * xz) / determinant;
  EXPECT_NEAR((yy - a * xy - b * zy) / kExamples, 0.01 / 3, 0.0003);
  EXPECT_LE(std::abs(a), 1 / std::sqrt(2.0) + 0.01) << "weights of at most 1, over the root of the width";
  EXPECT_GT(a * a + b * b, 0.01) << "there is something to learn";
  // Whoever loads it.
  std::vector<float> one(1), three(3);
  data->load(InputKind::values, {1007}, 1, one.data());
  data->load(InputKind::values, {3, 1007, 9}, 3, three.data());
  EXPECT_EQ(one[0], y[1007]);
  EXPECT_EQ(three[1], y[1007]);
  const auto other = open_data(mlp, 1, 6, "");
  other->load(InputKind::values, {1007}, 1, one.data());
  EXPECT_NE(one[0], y[1007]) << "the seed's";
}

}  // namespace
}  // namespace rehearse::execute
