// How many ranks of those that there are perform a plan.
#include "execute/placement/elastic.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "execute/processes/failures.h"
#include "sim/base/diagnostics.h"
#include "sim/base/unfinished.h"
#include "tests/support/lowered.h"

namespace rehearse::execute {
namespace {

TEST(Elastic, ARangeOfRanks) {
  const RankRange range = parse_rank_range("--elastic", "2:8");
  EXPECT_EQ(range.least, 2);
  EXPECT_EQ(range.most, 8);
  EXPECT_EQ(parse_rank_range("--elastic", "4").least, 4);
  for (const char* text : {"", ":", "2:", ":4", "4:2", "0:2", "-1:2", "2:65", "2:4:8", "two", "2 :4", "99999999999"})
    EXPECT_THROW(parse_rank_range("--elastic", text), InputError) << text;
}

TEST(Elastic, ThePlanTakesTheMostThatItCan) {
  const auto powers_of_two = [](int ranks) { return (ranks & (ranks - 1)) == 0; };
  EXPECT_EQ(ranks_to_perform_with({2, 8}, 7, powers_of_two), 4);
  EXPECT_EQ(ranks_to_perform_with({2, 4}, 16, powers_of_two), 4);
  EXPECT_EQ(ranks_to_perform_with({5, 8}, 7, powers_of_two), std::nullopt);
  EXPECT_EQ(ranks_to_perform_with({2, 8}, 0, powers_of_two), std::nullopt);
}

TEST(Elastic, TheFileSaysHowManyThereAre) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/ranks";
  std::vector<std::string> notes;
  Membership members({2, 8}, 4, file, [&](const std::string& text) { notes.push_back(text); });
  const auto write = [&](const std::string& text) { std::ofstream(file, std::ios::trunc) << text; };
  EXPECT_FALSE(members.look());
  write("8\n");
  EXPECT_TRUE(members.look());
  EXPECT_EQ(members.present(), 8);
  members.lost(3);
  EXPECT_FALSE(members.look());  // it is as it was
  EXPECT_EQ(members.present(), 5);
  write("");
  EXPECT_FALSE(members.look());
  write("many");
  EXPECT_FALSE(members.look());
  write("9 ");
  EXPECT_FALSE(members.look());
  EXPECT_EQ(members.present(), 5);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_NE(notes[1].find("'9' is not followed: expected a number of ranks from 2 to 8"), std::string::npos)
      << notes[1];
}

struct Performed {
  std::vector<int> ranks;
  std::string message;
};

// Ranks that end one after another as `failures` say: how many left, 0 for one that failed by itself.
Performed performed(const std::vector<int>& failures, int failures_at_most) {
  Performed out;
  const TemporaryFolder folder;
  ElasticRun run;
  run.range = {2, 8};
  run.first = 8;
  run.folder = folder.path();
  run.steps = 10;
  run.failures_at_most = failures_at_most;
  run.possible = [](int ranks) { return ranks % 2 == 0; };
  run.note = [](const std::string&) {};
  run.perform = [&](int ranks, int starts, const std::function<void()>&) {
    EXPECT_EQ(starts, static_cast<int>(out.ranks.size()));
    out.ranks.push_back(ranks);
    if (out.ranks.size() <= failures.size()) throw RankFailure("ended", failures[out.ranks.size() - 1]);
    return 0;
  };
  try {
    EXPECT_EQ(run_elastic(run), 0);
  } catch (const RankFailure& failure) {
    out.message = failure.what();
  }
  return out;
}

TEST(Elastic, RanksThatLeaveAreMissed) {
  const Performed some = performed({1, 2, 3}, 0);
  EXPECT_EQ(some.ranks, (std::vector{8, 6, 4, 2}));
  EXPECT_EQ(some.message, "");
  const Performed most = performed({7}, 0);
  EXPECT_EQ(most.ranks, std::vector{8});
  EXPECT_EQ(most.message, "ended\n  1 rank left, which cannot perform the plan: --elastic asks for at least 2");
}

TEST(Elastic, RanksThatFailBeginAgainSoOften) {
  EXPECT_EQ(performed({0, 1, 0}, 2).ranks, (std::vector{8, 8, 6, 6}));
  const Performed more = performed({0, 0, 0}, 2);
  EXPECT_EQ(more.ranks, (std::vector{8, 8, 8}));
  EXPECT_EQ(more.message, "ended");
}

// What is each rank's own cannot be held by another number of ranks.
TEST(Elastic, WhatNoOtherNumberOfRanksCanHold) {
  const auto refusal = [](const std::vector<std::string>& plan, int every = 5) -> std::string {
    CheckpointOptions checkpoint;
    checkpoint.folder = "saved", checkpoint.every = every;
    try {
      check_elastic(scenario_from("rehearse: 1\nmodel: {family: gpt, layers: 2, hidden: 64, heads: 4, vocab: 256, "
                                  "max_seq_len: 32}\ncluster: {topology: local, gpus: 4}\n"
                                  "training: {global_batch: 16, precision: fp32, clip: 0}\n",
                                  plan),
                    checkpoint);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_NE(refusal({}, 0).find("--every N"), std::string::npos);
  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{"plan.servers=1"}, "parameter servers do not come and go"},
      {{"plan.local_steps=4"}, "plan.local_steps each rank has parameters of its own"},
      {{"plan.gradient_compression=[top_k, error_feedback]", "plan.gradient_share=0.1"}, "compressed gradients leave"},
      {{"plan.gradient_compression=[top_k, momentum_correction]", "plan.gradient_share=0.1", "training.optimizer=sgd",
        "training.momentum=0.9"},
       "compressed gradients leave"},
      {{"plan.gradient_compression=[power_sgd]", "plan.gradient_rank=2"}, "compressed gradients leave"},
      {{"training.optimizer=adafactor", "plan.zero=1"}, "Adafactor's means"},
      {{"training.optimizer=adafactor", "plan.tensor=2"}, "Adafactor's means"},
      {{"training.moments=int8"}, "8-bit moments"},
  };
  for (const auto& [plan, message] : refused)
    EXPECT_NE(refusal(plan).find(message), std::string::npos) << plan.front() << ": " << refusal(plan);
  EXPECT_EQ(refusal({"training.optimizer=adafactor"}), "") << "of whole tensors";
  EXPECT_EQ(refusal({"plan.gradient_compression=[int8]"}), "") << "a chain that keeps nothing";
}

}  // namespace
}  // namespace rehearse::execute
