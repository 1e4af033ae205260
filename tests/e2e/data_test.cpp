// Section data as a user meets it: the shipped scenario that waits for its storage, epochs, learning rates of two
// results, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "program.h"
#include "tests/support/small_gpt.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

constexpr const char* kScenario = "cnn-imagenet-slow-storage";

std::string in_one_line(const std::string& text) {
  std::string out;
  for (const char c : text)
    if ((c != ' ' && c != '\n') || (!out.empty() && out.back() != ' ')) out += c == '\n' ? ' ' : c;
  return out;
}

TEST(Data, TheShippedScenarioWaitsForItsStorage) {
  const Folder folder;
  const Outcome r = run({"simulate", kScenario, "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_LE(widest(r.out), 80u) << r.out;
  const std::string said = in_one_line(r.out);
  for (const char* part :
       {"Input 8 workers a replica, up to 16 micro-batches ahead: one each 56.32 ms, limited by the storage",
        "Epoch 2,502 steps, the last samples dropped (2,503 padded) of 1,281,167 samples: 2.349 min; 90 epochs take",
        "exposed input 49.2%", "x 2, 0.2 (Goyal",
        "Input: 49.2% of the step waits for training examples, by the storage"})
    EXPECT_TRUE(has(said, part)) << part << "\n" << r.out;
  const Json result = Json::parse(read(folder / "out/result.json"));
  EXPECT_EQ(result["step_time_s"], 0.05632) << "512 x 110 kB / 1 GB/s";
  EXPECT_EQ(result["input"]["bound"], "storage");
  EXPECT_EQ(result["epoch"]["steps"], 2502);
  EXPECT_EQ(result["learning_rate"]["linear_lr"], 0.2);
  EXPECT_EQ(result["scenario"]["data.storage_of"], "cluster");
  EXPECT_TRUE(has(read(folder / "out/ops.csv"), ",exposed_input,"));
  ASSERT_EQ(run({"report", folder / "out"}).status, 0);
  EXPECT_TRUE(has(read(folder / "out/report.html"), "waiting for training examples"));
  const double waits = result["breakdown_s"]["exposed_input"].get<double>() / result["step_time_s"].get<double>();
  const std::string documented =
      "waits for its storage for " + std::to_string(std::lround(100 * waits)) + "% of a step";
  EXPECT_TRUE(has(read(REHEARSE_SOURCE_DIR "/docs/scenario.md"), documented)) << documented;
}

TEST(Data, NothingIsSaidWithoutTheSection) {
  const Folder folder;
  const Outcome r = run({"simulate", "llama2-7b-8xa100", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json result = Json::parse(r.out);
  for (const char* key : {"input", "epoch", "learning_rate"}) EXPECT_FALSE(result.contains(key)) << key;
  EXPECT_FALSE(result["breakdown_s"].contains("exposed_input"));
  for (const auto& [key, value] : result["scenario"].items()) EXPECT_FALSE(key.starts_with("data.")) << key;
  EXPECT_FALSE(result["scenario"].contains("training.base_batch"));
}

TEST(Data, EpochsOfPublishedCount) {
  for (const auto& [gpus, padded, dropping] : {std::tuple{"1", 1563, 1562}, {"2", 782, 781}, {"8", 196, 195}}) {
    const Outcome r = run({"simulate", kScenario, "--json", "--set", "data={samples: 50000, drop_last: false}", "--set",
                           "plan.micro_batch=32", "--set", std::string("cluster.gpus=") + gpus, "--set",
                           "training={precision: bf16}"});
    ASSERT_EQ(r.status, 0) << r.err;
    const Json result = Json::parse(r.out);
    EXPECT_EQ(result["epoch"]["steps_padded"], padded);
    EXPECT_EQ(result["epoch"]["steps_dropping"], dropping);
    EXPECT_EQ(result["epoch"]["steps"], padded);
    EXPECT_NEAR(result["epoch"]["time_s"].get<double>(), padded * result["step_time_s"].get<double>(), 1e-9);
    EXPECT_FALSE(result.contains("input"));
  }
}

TEST(Data, CompareSaysWhatAnotherBatchMeansForTheLearningRate) {
  const Folder folder;
  ASSERT_EQ(run({"simulate", kScenario, "-o", folder / "a"}).status, 0);
  ASSERT_EQ(run({"simulate", kScenario, "--set", "training.global_batch=2048", "-o", folder / "b"}).status, 0);
  const Outcome r = run({"compare", folder / "a", folder / "b"});
  ASSERT_EQ(r.status, 0) << r.err;
  const std::string said = in_one_line(r.out);
  EXPECT_TRUE(has(said, "The global batch of B is 4 times that of A (2,048 and 512); the learning rate is not changed"))
      << r.out;
  EXPECT_TRUE(has(said, "arXiv 1706.02677")) << r.out;
}

// Also of results that say nothing else of data or rates.
TEST(Data, CompareOfPlainResultsSaysThatTheRateIsNotChanged) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", kSmallGpt);
  ASSERT_EQ(run({"simulate", file, "--set", "training.lr=3e-4", "-o", folder / "a"}).status, 0);
  ASSERT_EQ(run({"simulate", file, "--set", "training={lr: 3e-4, global_batch: 64}", "-o", folder / "b"}).status, 0);
  const Outcome r = run({"compare", folder / "a", folder / "b"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(in_one_line(r.out), "the learning rate is not changed (0.0003 in both)")) << r.out;
}

TEST(Data, LoadingIsRefusedWhereItIsPerformedAndOnCpus) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", std::string(kSmallGpt) + "data: {samples: 1000, sample_time: 1ms}\n");
  const Outcome performed = run({"execute", file, "--steps", "1"});
  EXPECT_EQ(performed.status, 2);
  EXPECT_TRUE(has(performed.err, "data: what loading takes is simulated only")) << performed.err;
  EXPECT_TRUE(has(performed.err, file + ":")) << performed.err;
  const Outcome counted = run({"execute", file, "--steps", "3", "--set", "data={samples: 1000}"});
  EXPECT_EQ(counted.status, 0) << counted.err;
  EXPECT_TRUE(has(in_one_line(counted.out), " of 1,000 samples: ")) << counted.out;
  const Outcome long_load = run({"simulate", kScenario, "--set", "data.sample_time=9h"});
  EXPECT_EQ(long_load.status, 2);
  EXPECT_TRUE(has(long_load.err, "expected at most a day")) << long_load.err;
}

}  // namespace
}  // namespace rehearse::e2e
