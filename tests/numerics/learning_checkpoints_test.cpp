// Reinforcement learning that is performed, gone on from its checkpoints: tokens, probabilities, losses and parameters
// are those of the run that nobody interrupted, bit for bit by the same plan; what is torn or of another run is refused
// with its name.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "execute/checkpoint/folder.h"
#include "execute/placement/placement.h"
#include "sim/base/diagnostics.h"
#include "tests/numerics/learning_case.h"
#include "tests/numerics/plain_runs.h"

namespace rehearse::numerics {
namespace {

namespace fs = std::filesystem;

struct SavedFolder {
  std::string path = test::temporary_path("learning-checkpoints");
  SavedFolder() = default;
  ~SavedFolder() { fs::remove_all(path); }
  SavedFolder(const SavedFolder&) = delete;
  SavedFolder& operator=(const SavedFolder&) = delete;
};

execute::LearningOptions saving(const SavedFolder& folder) {
  execute::LearningOptions options;
  options.checkpoint.folder = folder.path, options.checkpoint.every = 1;
  return options;
}

// All of it is written for so many of kSteps steps, and no more is done.
void interrupt_after(const Case& of, const SavedFolder& folder, int steps) {
  execute::LearningOptions options = saving(folder);
  options.on_step = [steps](int step, const execute::LearningStep&) {
    if (step + 1 == steps) throw std::domain_error("enough");
  };
  EXPECT_THROW(learn(of, kSteps, options), std::domain_error);
}

Learnt resumed(const Case& of, const SavedFolder& folder) {
  execute::LearningOptions options = saving(folder);
  options.checkpoint.resume = true;
  return learn(of, kSteps, options);
}

std::string refusal(const Case& of, const SavedFolder& folder) {
  try {
    resumed(of, folder);
  } catch (const InputError& error) {
    const Diagnostic& d = error.diagnostics().front();
    return d.file + ": " + d.message;
  }
  return "";
}

class ResumedLearning : public testing::TestWithParam<PlainCase> {};

TEST_P(ResumedLearning, IsTheUninterruptedRunBitForBit) {
  const Case of(GetParam().assignments);
  const Learnt whole = learn(of);
  const SavedFolder folder;
  interrupt_after(of, folder, 2);
  const Learnt again = resumed(of, folder);
  EXPECT_EQ(again.outcome.first_step, 2);
  ASSERT_EQ(again.rollouts.size(), 2U);
  for (std::size_t step = 0; step < 2; ++step) {
    for (std::size_t i = 0; i < whole.rollouts[step].sequences.size(); ++i) {
      const execute::Response &is = again.rollouts[step].sequences[i], &was = whole.rollouts[step + 2].sequences[i];
      ASSERT_EQ(is.tokens, was.tokens) << "step " << step << " sequence " << i;
      EXPECT_EQ(is.chosen, was.chosen);
      EXPECT_EQ(is.reference, was.reference);
      EXPECT_EQ(is.reward, was.reward);
      EXPECT_EQ(is.values, was.values);
    }
    EXPECT_EQ(again.losses[step], whole.losses[step + 2]) << "step " << step;
    EXPECT_EQ(again.value_losses[step], whole.value_losses[step + 2]) << "step " << step;
  }
  EXPECT_EQ(again.outcome.parameters, whole.outcome.parameters);
  EXPECT_EQ(again.outcome.critic, whole.outcome.critic);
  EXPECT_EQ(again.outcome.result.loss, whole.outcome.result.loss);
  EXPECT_EQ(again.outcome.result.reinforcement.rewards, whole.outcome.result.reinforcement.rewards);
  EXPECT_EQ(again.outcome.result.reinforcement.distances, whole.outcome.result.reinforcement.distances);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, ResumedLearning,
    testing::Values(PlainCase{"One", {}}, PlainCase{"WithoutReference", {"reinforcement.reference=false"}},
                    PlainCase{"Bf16", {"training.precision=bf16"}}, PlainCase{"Data2Zero1", split(2, {"plan.zero=1"})},
                    PlainCase{"Data2Zero3", split(2, {"plan.zero=3"})},
                    PlainCase{"Pipeline2", split(2, {"plan.pipeline=2", "plan.micro_batch=1"})},
                    PlainCase{"Apart", {"reinforcement.generation.gpus=2"}},
                    PlainCase{"Context2", split(2, {"plan.context=2", "plan.context_kind=ring"})},
                    PlainCase{"Critic", split(2, {"plan.zero=1", "reinforcement.algorithm=ppo"})},
                    PlainCase{
                        "CriticAndRewardModelAlone",
                        {"reinforcement.algorithm=ppo", "reinforcement.reference=false", "reinforcement.reward=same"}},
                    PlainCase{"Schedule", {"training.lr_schedule=cosine", "training.warmup_steps=3"}}),
    plain_case_name);

// Cut anew for another grid: what rounding leaves.
class LearningCheckpoints : public testing::TestWithParam<PlainCase> {};

TEST_P(LearningCheckpoints, AreCutForAnotherGrid) {
  const std::string algorithm = "reinforcement.algorithm=" + GetParam().name;
  const Case one({algorithm}), two(split(2, {"plan.tensor=2", "reinforcement.generation.tensor=2", algorithm}));
  const Learnt whole = learn(one);
  const SavedFolder folder;
  interrupt_after(one, folder, 2);
  const Learnt again = resumed(two, folder);
  ASSERT_EQ(again.rollouts.size(), 2U);
  for (std::size_t step = 0; step < 2; ++step) {
    for (std::size_t i = 0; i < whole.rollouts[step].sequences.size(); ++i) {
      const execute::Response &is = again.rollouts[step].sequences[i], &was = whole.rollouts[step + 2].sequences[i];
      ASSERT_EQ(is.tokens, was.tokens);
      for (std::size_t t = 0; t < was.reference.size(); ++t) EXPECT_NEAR(is.reference[t], was.reference[t], 1e-4);
    }
    for (std::size_t u = 0; u < again.losses[step].size(); ++u)
      EXPECT_NEAR(again.losses[step][u], whole.losses[step + 2][u], 1e-4);
    for (std::size_t u = 0; u < again.value_losses[step].size(); ++u)
      EXPECT_NEAR(again.value_losses[step][u], whole.value_losses[step + 2][u], 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, LearningCheckpoints, testing::Values(PlainCase{"grpo", {}}, PlainCase{"ppo", {}}),
                         plain_case_name);

TEST(SavedLearning, TornAndForeignOnesAreRefusedByName) {
  const Case of;
  const SavedFolder folder;
  interrupt_after(of, folder, 2);
  EXPECT_NE(refusal(Case({"reinforcement.clip=0.3"}), folder).find("is of another run: reinforcement.clip is 0.1"),
            std::string::npos);
  EXPECT_NE(refusal(Case({"training.seed=8"}), folder).find("training.seed"), std::string::npos);
  // The second file is the reference's: of one rank.
  for (const char* name : {"rank-0000.state", "rank-0001.state", "manifest.json"}) {
    const std::string file = folder.path + "/step-0000000002/" + name;
    std::string bytes;
    {
      std::ifstream in(file, std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(in), {});
    }
    ASSERT_GT(bytes.size(), 100U) << name;
    const auto write = [&file](const std::string& content) {
      std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
    };
    write(bytes.substr(0, bytes.size() / 2));
    EXPECT_NE(refusal(of, folder).find(name), std::string::npos) << "cut";
    std::string damaged = bytes;
    damaged[damaged.size() - 40] = static_cast<char>(damaged[damaged.size() - 40] ^ 1);
    write(damaged);
    EXPECT_NE(refusal(of, folder).find(name), std::string::npos) << "damaged";
    write(bytes);
  }
  EXPECT_EQ(refusal(of, folder), "");
}

// What says how a critic learns is of those that have one.
TEST(SavedLearning, KeysOfACriticAreComparedWhereThereIsOne) {
  const auto with_gamma = [](const char* gamma) {
    return Case({"reinforcement.algorithm=ppo", std::string("reinforcement.gamma=") + gamma});
  };
  const SavedFolder folder, without;
  interrupt_after(with_gamma("0.9"), folder, 1);
  EXPECT_NE(refusal(with_gamma("0.8"), folder).find("is of another run: reinforcement.gamma is 0.9"),
            std::string::npos);
  interrupt_after(Case(), without, 1);
  std::ifstream in(without.path + "/step-0000000001/manifest.json");
  const std::string manifest(std::istreambuf_iterator<char>(in), {});
  EXPECT_NE(manifest.find("reinforcement.clip"), std::string::npos);
  EXPECT_EQ(manifest.find("reinforcement.gamma"), std::string::npos) << "it would be no other run's";
}

// Of three written the last two stay, and without a manifest there is none.
TEST(SavedLearning, TheLastAreKeptAndAnUnfinishedOneIsNone) {
  const Case of;
  const SavedFolder folder;
  execute::LearningOptions options = saving(folder);
  options.checkpoint.keep = 2;
  learn(of, 3, options);
  EXPECT_EQ(execute::checkpoints_in(folder.path), (std::vector<std::int64_t>{2, 3}));
  fs::remove(folder.path + "/step-0000000003/manifest.json");
  const Learnt again = resumed(of, folder);
  EXPECT_EQ(again.outcome.first_step, 2);
  EXPECT_EQ(again.outcome.result.steps, kSteps - 2);
}

// Killed when its last step is saved: what there is to say of the run takes a step, so it goes on from the one before,
// which is the step that is told.
TEST(SavedLearning, AfterTheLastStepThereIsOneToGoOnFrom) {
  const Case of;
  const SavedFolder folder;
  execute::LearningOptions options = saving(folder);
  options.checkpoint.keep = 1;
  options.on_step = [](int step, const execute::LearningStep&) {
    if (step + 1 == kSteps) throw std::domain_error("enough");
  };
  EXPECT_THROW(learn(of, kSteps, options), std::domain_error);
  EXPECT_EQ(execute::checkpoints_in(folder.path), (std::vector<std::int64_t>{kSteps - 1, kSteps}));
  std::string notes;
  const auto note = [&notes](const std::string& text) { notes += text; };
  execute::start_again({folder.path, kSteps, 1, note}, [](int restarts) {
    if (restarts == 0) throw execute::RankFailure("killed");
    return 0;
  });
  EXPECT_NE(notes.find("starting again from step " + std::to_string(kSteps - 1)), std::string::npos) << notes;
  options.on_step = nullptr;
  options.checkpoint.restarts = 1;
  const Learnt again = learn(of, kSteps, options);
  EXPECT_EQ(again.outcome.first_step, kSteps - 1);
  EXPECT_EQ(again.outcome.result.steps, 1);
  EXPECT_EQ(execute::checkpoints_in(folder.path), std::vector<std::int64_t>{kSteps}) << "at the end";
}

// How the phases that only read weights are performed is no part of what is saved, of states that no other plan has a
// place for either.
TEST(SavedLearning, OfExactPlansLeaveOtherPhasesFree) {
  const auto on_two = [](std::vector<std::string> more) {
    more.insert(more.end(), {"training.moments=int8", "model.hidden=64", "model.heads=8", "model.ffn_hidden=128"});
    return split(2, std::move(more));
  };
  const Case of(on_two({}));
  const SavedFolder folder;
  interrupt_after(of, folder, 2);
  EXPECT_NE(refusal(Case(on_two({"plan.bucket=4KiB"})), folder).find("cannot be cut anew"), std::string::npos);
  const Case other(on_two({"reinforcement.generation.sequences=3", "reinforcement.scoring_micro_batch=4"}));
  EXPECT_EQ(refusal(other, folder), "");
}

}  // namespace
}  // namespace rehearse::numerics
