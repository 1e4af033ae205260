// What is said of epochs, of loading and of learning rates, in the terminal, the page and comparisons.
#include "reports/epoch.h"

#include <gtest/gtest.h>

#include "reports/difference.h"
#include "reports/html/words.h"
#include "reports/limits.h"
#include "reports/tables.h"
#include "stored.h"
#include "tests/support/text.h"

namespace rehearse::reports {
namespace {

// Lines that were wrapped in one piece again.
std::string in_one_line(const std::string& text) {
  std::string out;
  for (const char c : text)
    if ((c != ' ' && c != '\n') || (!out.empty() && out.back() != ' ')) out += c == '\n' ? ' ' : c;
  return out;
}

result::StoredResult of_batch(std::int64_t micro_batches, const std::string& lr) {
  result::StoredResult run = stored();
  run.result.scenario["plan.micro_batches"] = std::to_string(micro_batches);
  if (!lr.empty()) run.result.scenario["training.lr"] = lr;
  return run;
}

TEST(EpochText, SaysStepsBothWaysAndTimes) {
  result::Result r = stored().result;
  EXPECT_EQ(epoch_text(r), "");
  r.step_time_ps = 100'000'000'000;  // 0.1 s
  r.epoch = {50'000, true, 1563, 1562, 0};
  EXPECT_EQ(epoch_text(r), "1,562 steps, the last samples dropped (1,563 padded) of 50,000 samples: 2.603 min");
  r.epoch.drop_last = false;
  r.epoch.epochs = 80;
  EXPECT_EQ(
      epoch_text(r),
      "1,563 steps, padded (1,562 the last samples dropped) of 50,000 samples: 2.605 min; 80 epochs take 3.473 h");
  r.epoch.epochs = 2'000'000;
  EXPECT_TRUE(has(epoch_text(r), "2,000,000 epochs take 3618 days")) << epoch_text(r);
  EXPECT_TRUE(has(in_one_line(summary(r)), "Epoch 1,563 steps, padded")) << summary(r);
}

TEST(InputText, NamesWhatLimits) {
  result::Result r = stored().result;
  EXPECT_EQ(input_text(r), "");
  EXPECT_FALSE(has(summary(r), "Input"));
  r.input = {true, 8, 16, 40'000'000'000, 80'000'000'000, "storage"};
  EXPECT_EQ(
      input_text(r),
      "8 workers a replica, up to 16 micro-batches ahead: one each 40 ms, limited by the storage; a step takes 80 "
      "ms at least");
  r.breakdown_ps[static_cast<std::size_t>(result::Share::exposed_input)] = r.step_time_ps / 2;
  EXPECT_EQ(limited_by(r),
            "Input: 50.0% of the step waits for training examples, by the storage that they are read from.");
  EXPECT_TRUE(has(summary(r), "exposed input"));
  r.what_if = {{"compute", r.step_time_ps, r.step_time_ps, ""}};
  EXPECT_TRUE(limited_by(r).starts_with("Input: ")) << "no lever changes it";
  r.breakdown_ps[static_cast<std::size_t>(result::Share::exposed_input)] = r.step_time_ps / 10;
  r.input.step_ps = r.step_time_ps;
  EXPECT_EQ(limited_by(r),
            "Input: the step is as long as its training examples take to come, by the storage that they are read from.")
      << "of a pipeline only the first stage waits for them";
  r.input.step_ps = r.step_time_ps / 2;
  EXPECT_FALSE(limited_by(r).starts_with("Input: "));
  r.input.step_ps = 80'000'000'000;
  r.input.bound = "process";
  EXPECT_EQ(input_text(r), "the training process loads each micro-batch itself, in 40 ms: 80 ms of a step");
}

TEST(LearningRates, OfABaseBatch) {
  result::Result r = stored().result;
  EXPECT_TRUE(learning_rate_sentences(r).empty());
  r.scenario["training.lr"] = "0.1";
  r.learning_rate = {256, 0.1, 1024};
  r.epoch = {1'281'167, true, 1252, 1251, 0};
  const std::vector<std::string> said = learning_rate_sentences(r);
  ASSERT_EQ(said.size(), 3U);
  EXPECT_EQ(said[0],
            "The batch, 1,024, is 4 times the base batch, 256, whose learning rate is 0.1; training.lr is the same.");
  for (const char* part : {"x 4, 0.4 (Goyal et al. 2017, arXiv 1706.02677", "5 epochs, here 6,255 steps)", "8,192"})
    EXPECT_TRUE(has(said[1], part)) << said[1];
  for (const char* part : {"x 2, 0.2 (", "Malladi et al. 2022, arXiv 2205.10287", "Krizhevsky 2014, arXiv 1404.5997"})
    EXPECT_TRUE(has(said[2], part)) << said[2];
  EXPECT_FALSE(has(said[1], "beyond"));
  r.learning_rate.global_batch = 16'384;
  EXPECT_TRUE(has(learning_rate_sentences(r)[1], "16,384 are beyond that")) << learning_rate_sentences(r)[1];
  EXPECT_TRUE(has(learning_rate_sentences(r)[2], "x 8, 0.8"));
  r.learning_rate.global_batch = 256;
  EXPECT_EQ(learning_rate_sentences(r).size(), 1U);
  bool on_page = false;
  for (const std::string& sentence : html::answered(r, {})) on_page |= has(sentence, "no reason to change");
  EXPECT_TRUE(on_page);
}

TEST(LearningRates, OfTwoResults) {
  const auto one = of_batch(4, "0.1"), four = of_batch(16, "0.1"), changed = of_batch(16, "0.4"),
             silent = of_batch(16, "");
  EXPECT_TRUE(difference(one, one).learning_rate.empty());
  const Difference same = difference(one, four);
  ASSERT_EQ(same.learning_rate.size(), 3U);
  EXPECT_EQ(same.learning_rate[0],
            "The global batch of B is 4 times that of A (32 and 8); the learning rate is not changed (0.1 in both), so "
            "losses are not those of one schedule.");
  EXPECT_TRUE(has(same.learning_rate[1], "learning rate x 4, 0.4 ("));
  EXPECT_TRUE(has(in_one_line(difference_table(same)), "the learning rate is not changed (0.1 in both)"));
  EXPECT_TRUE(has(difference_json(same), "\"learning_rate\": [\n"));
  EXPECT_TRUE(has(difference(one, changed).learning_rate[0], "learning rates are 0.4 and 0.1."));
  EXPECT_TRUE(has(difference(one, silent).learning_rate[0], "do not say both learning rates"));
  EXPECT_TRUE(has(difference(four, one).learning_rate[1], "x 0.25, 0.025"));
}

}  // namespace
}  // namespace rehearse::reports
