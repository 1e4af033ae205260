// rehearse execute --checkpoint as a user meets it: a run is resumed, ranks that are killed are started again and lose
// nothing, and what does not fit together is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

TEST(Checkpoint, ARunIsResumed) {
  const Folder folder;
  const auto execute = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"execute", "gpt-tiny-ddp", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome whole = execute({"--steps", "6"});
  ASSERT_EQ(whole.status, 0) << whole.err;
  ASSERT_EQ(execute({"--steps", "3", "--checkpoint", folder / "saved"}).status, 0);
  const Outcome rest = execute({"--steps", "6", "--checkpoint", folder / "saved", "--resume", "--async"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(Json::parse(rest.out)["loss"], Json::parse(whole.out)["loss"]);
  EXPECT_EQ(Json::parse(rest.out)["steps"], 6);
  const Outcome again = execute({"--steps", "6", "--checkpoint", folder / "saved", "--resume"});
  EXPECT_EQ(again.status, 2);
  EXPECT_TRUE(has(again.err, "nothing of 6 steps is left to do")) << again.err;
}

TEST(Checkpoint, WhatDoesNotFitTogetherIsRefused) {
  const Folder folder;
  const auto refused = [&](const std::vector<std::string>& more, const std::string& message) {
    std::vector<std::string> words = {"execute", "gpt-tiny-ddp", "--steps", "2"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome r = run(words);
    EXPECT_EQ(r.status, 2) << r.err;
    EXPECT_TRUE(has(r.err, message)) << r.err;
  };
  refused({"--every", "2"}, "--every requires --checkpoint");
  refused({"--checkpoint-kind", "full"}, "--checkpoint-kind requires --checkpoint");
  refused({"--checkpoint", folder / "none", "--checkpoint-kind", "whole"}, "whole not in {sharded,full,incremental}");
  refused({"--checkpoint", folder / "none", "--checkpoint-kind", "full", "--set", "training.moments=int8"},
          "--checkpoint-kind: error: ");
  refused({"--checkpoint", folder / "none", "--resume"}, "has no checkpoint to resume");
  refused({"--checkpoint", folder / "none", "--max-restarts", "1"}, "--ranks gloo, or mpi");
}

// A parameter server, or a worker, whose process is killed once a checkpoint is there; started again, all steps are
// done.
TEST(Checkpoint, KilledServersOverGlooAreStartedAgain) {
  if (has(run({"execute", "gpt-tiny-ddp", "--steps", "1", "--ranks", "gloo"}).err, "built without Gloo"))
    GTEST_SKIP() << "built without Gloo";
  const Folder folder;
  for (const int process : {6, 2}) {  // server 1, worker 1, in the order of ranks
    const std::string saved = folder / ("saved" + std::to_string(process));
    const Outcome r = shell(
        "unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT; $REHEARSE execute cifar-4-workers-async --set "
        "plan.servers=2 --ranks gloo --steps 400 --checkpoint " +
        saved +
        " --every 10 --keep 2 --timeout 20 --max-restarts 1 --json & parent=$!; "
        "for try in $(seq 3000); do ls " +
        saved + "/*/manifest.json > /dev/null 2>&1 && break; sleep 0.02; done; kill -KILL $(cut -d ' ' -f " +
        std::to_string(process) + " /proc/$parent/task/$parent/children); wait $parent");
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_TRUE(has(r.err, "rank " + std::to_string(process - 1) + " was killed by signal 9")) << r.err;
    if (process == 6) {
      EXPECT_TRUE(has(r.err, "rank 5 (parameter server 1) had applied")) << r.err;
    }
    EXPECT_TRUE(has(r.err, "restart 1 of 1")) << r.err;
    EXPECT_EQ(Json::parse(r.out)["loss"].size(), 400U);
  }
}

// The last of mpirun's processes is server 1. All steps are done by the job that is started after it.
TEST(Checkpoint, AKilledServerOverMpiIsStartedAgain) {
  if (const std::string why = without_mpi(); !why.empty()) GTEST_SKIP() << why;
  const Folder folder;
  const std::string saved = folder / "saved";
  const Outcome r = shell(std::string(kOpenMpi) +
                          "$REHEARSE execute cifar-4-workers-async --set plan.servers=2 "
                          "--ranks mpi --steps 200 --checkpoint " +
                          saved +
                          " --every 10 --keep 2 --timeout 20 --max-restarts 1 --json & parent=$!; "
                          "for try in $(seq 3000); do ls " +
                          saved +
                          "/*/manifest.json > /dev/null 2>&1 && break; sleep 0.02; done; "
                          "mpirun=$(cut -d ' ' -f 1 /proc/$parent/task/$parent/children); "
                          "kill -KILL $(cat /proc/$mpirun/task/*/children | cut -d ' ' -f 6); wait $parent");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.err, "exit status 137\nrehearse: note: starting again from step ")) << r.err;
  EXPECT_TRUE(has(r.err, "restart 1 of 1")) << r.err;
  EXPECT_EQ(Json::parse(r.out)["loss"].size(), 200U);
}

// A short campaign; kills.sh says how to make a long one.
struct Campaign {
  const char *name, *transport, *mode, *kind;
};
std::ostream& operator<<(std::ostream& out, const Campaign& c) {
  return out << c.name;
}
class KilledRanks : public testing::TestWithParam<Campaign> {};

TEST_P(KilledRanks, LoseNothing) {
  const Campaign& c = GetParam();
  if (c.transport == std::string("mpi")) {
    if (const std::string why = without_mpi(); !why.empty()) GTEST_SKIP() << why;
  } else if (has(run({"execute", "gpt-tiny-ddp", "--steps", "1", "--ranks", "gloo"}).err, "built without Gloo")) {
    GTEST_SKIP() << "built without Gloo";
  }
  const Outcome r = shell(std::string(kOpenMpi) + "export REHEARSE STEPS=500 MODE=" + c.mode + " KIND=" + c.kind +
                          "\n" + REHEARSE_SOURCE_DIR + "/tests/e2e/kills.sh " + c.transport + " 1 1");
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_TRUE(has(r.out, ": same")) << r.out;
  EXPECT_FALSE(has(r.out, " 0 restarts")) << r.out;
  EXPECT_EQ(r.err, "");
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, KilledRanks,
                         testing::Values(Campaign{"OverGloo", "gloo", "ranks", "sharded"},
                                         Campaign{"OverMpi", "mpi", "ranks", "sharded"},
                                         Campaign{"Full", "gloo", "ranks", "full"},
                                         Campaign{"Incremental", "gloo", "ranks", "incremental"},
                                         Campaign{"Servers", "gloo", "servers", "sharded"},
                                         Campaign{"ServersOverMpi", "mpi", "servers", "sharded"},
                                         Campaign{"Elastic", "gloo", "elastic", "sharded"},
                                         Campaign{"ElasticOverMpi", "mpi", "elastic", "full"}),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace rehearse::e2e
