// rehearse execute --elastic as a user meets it: ranks leave and come while a run goes on, and its losses are those of
// a run that nobody disturbed.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "program.h"

namespace rehearse::e2e {
namespace {

constexpr const char* kTwoByTwo = R"(rehearse: 1
name: two-by-two
model: {family: gpt, layers: 2, hidden: 32, heads: 2, vocab: 256, max_seq_len: 16}
cluster: {topology: dgx-a100, gpus: 4, threads_per_rank: 1}
plan: {micro_batch: 1, pipeline: 2, zero: 1}
training: {global_batch: 8, precision: fp32, lr: 1e-3}
)";

bool without_gloo() {
  return has(run({"execute", "gpt-tiny-ddp", "--steps", "1", "--ranks", "gloo"}).err, "built without Gloo");
}

// Runs kTwoByTwo for `steps` steps with --elastic `range` and a checkpoint every `every`, and meanwhile `disturb`, a
// shell script to which $saved is the folder of checkpoints and $parent the command's process; `after N` waits for a
// checkpoint of step N or later, `said TEXT` until the command has said so.
Outcome elastic(const Folder& folder, int steps, const std::string& range, const std::string& disturb,
                const std::string& ranks = "gloo", const std::string& every = "10") {
  const std::string file = folder.write("two-by-two.yaml", kTwoByTwo);
  const std::string options = " --steps " + std::to_string(steps) + " --elastic " + range;
  return shell(
      "cd '" + (folder / "") + R"sh('; saved=saved
)sh" + kOpenMpi +
      R"sh(until_true() { for try in $(seq 1500); do "$@" && return 0; kill -0 $parent 2> /dev/null || return 1; sleep 0.02; done; }
reached() { for file in "$saved"/step-*/manifest.json; do step=${file%/*}; [ "${step##*step-}" -ge "$1" ] 2> /dev/null && return 0; done; return 1; }
after() { until_true reached "$(printf %010d "$1")"; }
said() { until_true grep -q "$1" err; }
"$REHEARSE" execute two-by-two.yaml --ranks )sh" +
      ranks + " --every " + every + R"sh( --timeout 20 --checkpoint "$saved" )sh" + options + " 2> err & parent=$!\n" +
      disturb + "\nwait $parent; status=$?; cat err >&2; exit $status");
}

std::vector<double> losses(const Folder& folder, const std::string& name, int steps) {
  const std::string step = std::to_string(steps);
  const std::string manifest =
      folder / (name + "/step-" + std::string(10 - step.size(), '0') + step + "/manifest.json");
  if (!std::filesystem::exists(manifest)) return {};
  return nlohmann::json::parse(read(manifest))["losses"].get<std::vector<double>>();
}

void expect_undisturbed(const Folder& folder, int steps) {
  const Outcome whole =
      run({"execute", folder / "two-by-two.yaml", "--steps", std::to_string(steps), "--checkpoint", folder / "whole"});
  ASSERT_EQ(whole.status, 0) << whole.err;
  const std::vector<double> expected = losses(folder, "whole", steps), found = losses(folder, "saved", steps);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t s = 0; s < found.size(); ++s) EXPECT_NEAR(found[s], expected[s], 1e-4 * expected[s]) << "step " << s;
}

TEST(Elastic, RanksLeaveAndComeAtACheckpoint) {
  if (without_gloo()) GTEST_SKIP() << "built without Gloo";
  const Folder folder;
  const Outcome r = elastic(folder, 100000, "2:4", R"sh(after 20; echo 2 > "$saved/ranks"; said "there are 2 ranks now"
echo nine > "$saved/ranks"; said "is not followed"; echo 4 > "$saved/ranks"; said "there are 4 ranks now"
kill -TERM $parent)sh");
  EXPECT_TRUE(has(r.err, "there are 2 ranks now\nrehearse: note: going on from step ")) << r.err;
  EXPECT_TRUE(has(r.err, "saved/ranks: 'nine' is not followed: expected a number of ranks from 2 to 4")) << r.err;
  EXPECT_TRUE(has(r.err, "there are 4 ranks now\nrehearse: note: going on from step ")) << r.err;
  EXPECT_EQ(r.status, 143) << r.err;
}

// No checkpoint is due before the end: what is gone on from is written for the change, at the end of a step, and none
// of the steps until then is done again.
void expect_followed_at_a_step(const std::string& ranks) {
  const Folder folder;
  const Outcome r = elastic(folder, 1200, "2:4", R"sh(until_true test -d "$saved"; touch "$saved/now"; after 1
[ -e "$saved/now" ] && echo "saved/now is still there" >&2
echo 2 > "$saved/ranks"; said "there are 2 ranks now"; echo 4 > "$saved/ranks"; said "there are 4 ranks now")sh",
                            ranks, "100000");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_FALSE(has(r.err, "is still there")) << r.err;
  EXPECT_TRUE(has(r.err, "there are 2 ranks now\nrehearse: note: going on from step ")) << r.err;
  EXPECT_TRUE(has(r.err, "there are 4 ranks now\nrehearse: note: going on from step ")) << r.err;
  EXPECT_FALSE(has(r.err, "going on from step 0 ")) << r.err;
  std::size_t checkpoints = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "saved")) checkpoints += entry.is_directory();
  EXPECT_EQ(checkpoints, 4U) << "asked for, for either change, at the end";
  expect_undisturbed(folder, 1200);
}

TEST(Elastic, RanksLeaveAndComeAtAStep) {
  if (without_gloo()) GTEST_SKIP() << "built without Gloo";
  expect_followed_at_a_step("gloo");
}

TEST(Elastic, OverMpiRanksLeaveAndComeAtAStep) {
  if (const std::string why = without_mpi(); !why.empty()) GTEST_SKIP() << why;
  expect_followed_at_a_step("mpi");
}

TEST(Elastic, WhatIsLeftGoesOnWithoutAKilledRank) {
  if (without_gloo()) GTEST_SKIP() << "built without Gloo";
  const Folder folder;
  const Outcome r =
      elastic(folder, 150, "2:4", R"sh(after 20; kill -KILL $(cut -d ' ' -f 1 /proc/$parent/task/$parent/children))sh");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.err, "was killed by signal 9")) << r.err;
  EXPECT_TRUE(has(r.err, "with 2 of 3 ranks")) << r.err;
  expect_undisturbed(folder, 150);
}

TEST(Elastic, OverMpiRanksLeaveAndComeAtACheckpoint) {
  if (const std::string why = without_mpi(); !why.empty()) GTEST_SKIP() << why;
  const Folder folder;
  const Outcome r = elastic(folder, 100000, "2:4", R"sh(after 20; echo 2 > "$saved/ranks"; said "there are 2 ranks now"
echo 4 > "$saved/ranks"; said "there are 4 ranks now"; kill -TERM $parent)sh",
                            "mpi");
  EXPECT_TRUE(has(r.err, "there are 2 ranks now\nrehearse: note: going on from step ")) << r.err;
  EXPECT_TRUE(has(r.err, "there are 4 ranks now\nrehearse: note: going on from step ")) << r.err;
  EXPECT_FALSE(has(r.err, "ended from outside")) << r.err;
  EXPECT_EQ(r.status, 143) << r.err;
}

// The first of mpirun's processes.
TEST(Elastic, OverMpiWhatIsLeftGoesOnWithoutAKilledRank) {
  if (const std::string why = without_mpi(); !why.empty()) GTEST_SKIP() << why;
  const Folder folder;
  const Outcome r = elastic(folder, 400, "2:4",
                            R"sh(after 20; mpirun=$(cut -d ' ' -f 1 /proc/$parent/task/$parent/children)
kill -KILL $(cat /proc/$mpirun/task/*/children | cut -d ' ' -f 1))sh",
                            "mpi");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.err, "the job of mpirun ended with exit status 137\nrehearse: note: going on from step ")) << r.err;
  EXPECT_TRUE(has(r.err, "with 2 of 3 ranks")) << r.err;
  expect_undisturbed(folder, 400);
}

TEST(Elastic, MpirunStartsAnotherNumber) {
  if (const std::string why = without_mpi(); !why.empty()) GTEST_SKIP() << why;
  const Folder folder;
  const std::string file = folder.write("two-by-two.yaml", kTwoByTwo);
  const auto start = [&](int ranks, int steps) {
    return shell(std::string(kOpenMpi) + "cd '" + (folder / "") + "'; mpirun -n " + std::to_string(ranks) +
                 " \"$REHEARSE\" execute two-by-two.yaml --steps " + std::to_string(steps) +
                 " --ranks mpi --timeout 20 --checkpoint saved --every 10 --elastic 2:4");
  };
  const Outcome four = start(4, 20), two = start(2, 40);
  ASSERT_EQ(four.status, 0) << four.err;
  ASSERT_EQ(two.status, 0) << two.err;
  EXPECT_TRUE(has(two.out, "measured, 2 ranks")) << two.out;
  expect_undisturbed(folder, 40);
}

TEST(Elastic, TheRunEndsWhereTooFewAreLeft) {
  if (without_gloo()) GTEST_SKIP() << "built without Gloo";
  const Folder folder;
  const Outcome r = elastic(folder, 3000, "4:4",
                            R"sh(after 20; kill -KILL $(cut -d ' ' -f 1 /proc/$parent/task/$parent/children))sh");
  EXPECT_EQ(r.status, 1) << r.err;
  EXPECT_TRUE(has(r.err, "rank 0 was killed by signal 9")) << r.err;
  EXPECT_TRUE(has(r.err, "3 ranks left, which cannot perform the plan: --elastic asks for at least 4")) << r.err;
}

TEST(Elastic, ALauncherStartsAnotherNumber) {
  if (without_gloo()) GTEST_SKIP() << "built without Gloo";
  const Folder folder;
  const std::string file = folder.write("two-by-two.yaml", kTwoByTwo);
  const Outcome r = shell("unset LOCAL_RANK MASTER_ADDR MASTER_PORT; cd '" + (folder / "") + R"sh('
ranks() { for rank in $(seq 0 $(($1 - 1))); do
    RANK=$rank WORLD_SIZE=$1 "$REHEARSE" execute two-by-two.yaml --steps 40 --ranks gloo --rendezvous meet --timeout 20 \
      --checkpoint saved --every 10 --elastic 2:4 > out$1.$rank 2> err$1.$rank & pids="$pids $!"
  done; }
pids=; ranks 4
for try in $(seq 1000); do [ -e saved/step-0000000010/manifest.json ] && break; sleep 0.01; done
kill -TERM $pids; wait; rm -rf meet; pids=; ranks 2; wait; cat err2.0; cat out2.0)sh");
  EXPECT_TRUE(has(r.out, "measured, 2 ranks")) << r.out;
  expect_undisturbed(folder, 40);
}

// What torchrun's agents do: ranks with the variables of torchelastic, one of which is killed; the agents end the
// others and start again with as many as there are then, counting restarts.
TEST(Elastic, TorchrunsAgentsStartAnotherNumber) {
  if (without_gloo()) GTEST_SKIP() << "built without Gloo";
  const Folder folder;
  const std::string file = folder.write("two-by-two.yaml", kTwoByTwo);
  const Outcome r = shell("cd '" + (folder / "") + R"sh('
export MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 TORCHELASTIC_MAX_RESTARTS=3 TORCHELASTIC_RUN_ID=job7
agent() { pids=
  for rank in $(seq 0 $(($1 - 1))); do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$1 LOCAL_WORLD_SIZE=$1 GROUP_RANK=0 TORCHELASTIC_RESTART_COUNT=$2 \
      "$REHEARSE" execute two-by-two.yaml --steps 600 --ranks gloo --rendezvous meet --timeout 20 \
      --checkpoint saved --every 10 --elastic 2:4 > out$2.$rank 2> err$2.$rank & pids="$pids $!"
  done; }
newest() { ls saved 2> /dev/null | grep -c step; }
lost_one() { had=$(newest); for try in $(seq 1500); do [ "$(newest)" -ge $((had + 2)) ] && break; sleep 0.02; done
  set -- $pids; kill -KILL $2; for pid in $pids; do wait $pid; echo "status $?"; done; }
agent 4 0; lost_one; agent 2 1; lost_one; agent 4 2
for pid in $pids; do wait $pid; echo "last $?"; done; cat err*.* >&2; cat out2.0)sh");
  EXPECT_TRUE(has(r.out, "status 137")) << r.out << r.err;
  EXPECT_FALSE(has(r.out, "status 0")) << "a rank that lost another ended as if all were done" << r.out << r.err;
  EXPECT_TRUE(has(r.out, "last 0\nlast 0\nlast 0\nlast 0\n")) << r.out << r.err;
  EXPECT_TRUE(has(r.err, "rank 1 ended without a word")) << r.err;
  EXPECT_TRUE(has(r.out, "measured, 4 ranks")) << r.out;
  EXPECT_TRUE(has(r.out, ", which this run went on")) << r.out;
  expect_undisturbed(folder, 600);
}

TEST(Elastic, WhatCannotBeIsRefused) {
  const Folder folder;
  const std::string file = folder.write("two-by-two.yaml", kTwoByTwo);
  const auto refused = [&](const std::string& range, const std::vector<std::string>& more, const std::string& message) {
    std::vector<std::string> words = {"execute", file, "--checkpoint", folder / "saved",
                                      "--every", "5",  "--elastic",    range};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome r = run(words);
    EXPECT_EQ(r.status, 2) << r.err;
    EXPECT_TRUE(has(r.err, message)) << r.err;
  };
  refused("2:4", {}, "--ranks gloo, or mpi");
  refused("4:2", {"--ranks", "gloo"}, "'4:2' is no range of ranks: LEAST:MOST, from 1 to 64");
  refused("2:", {"--ranks", "gloo"}, "'2:' is no range of ranks");
  refused("3", {"--ranks", "gloo"}, "no number of ranks from 3 to 3 can perform the plan");
  refused("5:6", {"--ranks", "gloo"}, "there are 4 ranks, and at least 5 are asked for");
  refused("2:4", {"--ranks", "gloo", "--record-routing", folder / "r.csv"}, "--record-routing keeps");
  refused("2:4", {"--ranks", "gloo", "--set", "training.moments=int8"}, "8-bit moments cannot be cut anew");
  refused("2:4", {"--ranks", "gloo", "--set", "training.optimizer=adafactor"}, "Adafactor's means of tensors in parts");
  refused("2:4",
          {"--ranks", "gloo", "--set", "plan.zero=0", "--set", "plan.pipeline=1", "--set",
           "plan.gradient_compression=[top_k,error_feedback]"},
          "what compressed gradients leave behind");
  refused("1:4", {"--ranks", "gloo", "--set", "plan.pipeline=1", "--set", "plan.zero=0", "--set", "plan.local_steps=4"},
          "with plan.local_steps each rank has parameters of its own");
  const Outcome without = run({"execute", file, "--elastic", "2:4"});
  EXPECT_EQ(without.status, 2);
  EXPECT_TRUE(has(without.err, "--elastic requires --every")) << without.err;
}

}  // namespace
}  // namespace rehearse::e2e
