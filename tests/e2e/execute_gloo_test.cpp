// rehearse execute --ranks gloo as a user meets it: the results of local ranks, processes that a launcher started, and
// how a run ends whose ranks are killed, stopped or interrupted: soon, with one message, and nothing left.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

constexpr char kGlooScenario[] = R"(rehearse: 1
name: small
model: {family: gpt, layers: 2, hidden: 16, heads: 2, vocab: 256, max_seq_len: 8}
cluster: {topology: dgx-a100, gpus: 2}
plan: {micro_batch: 1}
training: {global_batch: 4, precision: fp32, lr: 1e-2}
)";

class ExecuteGloo : public testing::Test {
 protected:
  void SetUp() override {
    const Outcome r = run({"execute", scenario_, "--steps", "1", "--ranks", "gloo"});
    if (has(r.err, "built without Gloo")) GTEST_SKIP() << r.err;
  }

  // Starts four ranks, waits until they train, does `then` (which may use $P, the parent, and $V, the process of rank
  // 3) and waits for the end. Says on standard output what is left: processes, temporary files, results. What an
  // earlier run said is taken away first: it would pass for what this one says.
  Outcome disturb(const std::string& then) {
    // Whoever is left to init may not be reaped by it, as in a container: the dead count only if we should have reaped.
    return shell("exec 3>&2 2>/dev/null; set -m; export TMPDIR=" + folder_ / "" +
                 "; cd $TMPDIR; rm -f err; $REHEARSE execute " + scenario_ +
                 " --set cluster.gpus=4 --set plan.pipeline=2 --steps 1000000 --ranks gloo --timeout 1.5 --log-every 1 "
                 "-o out 2> err & P=$!; until grep -q 'step 3' err; do sleep 0.05; done;"
                 "K=$(cat /proc/$P/task/$P/children); for k in $K; do tr '\\0' '\\n' < /proc/$k/environ |"
                 " grep -qx RANK=3 && V=$k; done; " +
                 then +
                 "; wait $P; S=$?; sleep 0.2; for k in $K; do [ $S = 137 ] && grep -q 'State:.Z' /proc/$k/status ||"
                 " [ ! -d /proc/$k ] || echo process $k; done;"
                 "ls -d rehearse-* out; grep -v '^step ' err >&3; exit $S");
  }

  const Folder folder_;
  const std::string scenario_ = folder_.write("small.yaml", kGlooScenario);
};

TEST_F(ExecuteGloo, LossesAreThoseOfLocalRanksAndTheSameWhenRunAgain) {
  for (const std::vector<std::string>& plan : {std::vector<std::string>{},
                                               {"cluster.gpus=4", "plan.zero=3"},
                                               {"plan.tensor=2", "plan.sequence_parallel=true"},
                                               {"plan.pipeline=2", "plan.schedule=1f1b"},
                                               {"cluster.gpus=8", "plan.tensor=2", "plan.pipeline=2"}}) {
    std::vector<std::string> words = {"execute", scenario_, "--steps", "5", "--json"};
    for (const std::string& key : plan) words.insert(words.end(), {"--set", key});
    const Outcome local = run(words);
    words.insert(words.end(), {"--ranks", "gloo"});
    const Outcome first = run(words), second = run(words);
    ASSERT_EQ(local.status, 0) << local.err;
    ASSERT_EQ(first.status, 0) << first.err;
    EXPECT_EQ(first.err, local.err) << "notes are said once";
    const Json a = Json::parse(local.out), b = Json::parse(first.out), c = Json::parse(second.out);
    ASSERT_EQ(b["loss"].size(), 5u);
    for (std::size_t step = 0; step < 5; ++step)
      EXPECT_NEAR(b["loss"][step].get<double>() / a["loss"][step].get<double>(), 1, 1e-5) << plan.back();
    EXPECT_EQ(b["loss"], c["loss"]);
  }
}

TEST_F(ExecuteGloo, TheRootWritesTheFilesOfAllRanks) {
  const Outcome r = run({"execute", scenario_, "--set", "cluster.gpus=4", "--set", "plan.pipeline=2", "--steps", "3",
                         "--ranks", "gloo", "-o", folder_ / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "Processes")) << r.out;
  const std::string ops = read(folder_ / "out/ops.csv");
  EXPECT_TRUE(has(ops, "\n0/2/")) << ops;
  EXPECT_TRUE(has(ops, "\n2/2/")) << "rank 2 stands for the second stage";
}

TEST_F(ExecuteGloo, ALaunchersProcessesAreTheRanks) {
  const Outcome r = shell("cd " + folder_ / "" + "; mkdir meet; RANK=1 WORLD_SIZE=2 $REHEARSE execute " + scenario_ +
                          " --steps 3 --ranks gloo --rendezvous meet --interface lo > one & "
                          "RANK=0 WORLD_SIZE=2 GLOO_SOCKET_IFNAME=lo REHEARSE_RENDEZVOUS=meet $REHEARSE execute " +
                          scenario_ + " --steps 3 --ranks gloo --json; S=$?; wait; cat one; ls meet; exit $S");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(Json::parse(r.out)["loss"].size(), 3u) << "the other rank and the folder have nothing to say";
}

TEST_F(ExecuteGloo, ARankWhoseOthersDoNotComeSaysSo) {
  const Outcome r = shell("cd " + folder_ / "" + "; RANK=1 WORLD_SIZE=2 $REHEARSE execute " + scenario_ +
                          " --ranks gloo --rendezvous meet --timeout 0.5; S=$?; ls meet; exit $S");
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(has(r.err, "rank 1 waited 0.5 s in meet for rank 0, which did not come")) << r.err;
  EXPECT_EQ(r.out, "");
}

TEST_F(ExecuteGloo, OfALaunchersProcessesTheLowestThatIsLeftTells) {
  const Outcome r =
      shell("cd " + folder_ / "" + "; for r in 0 1 2; do RANK=$r WORLD_SIZE=3 $REHEARSE execute " + scenario_ +
            " --set cluster.gpus=3 --set training.global_batch=6 --steps 1000000 --log-every 1 --ranks gloo "
            "--rendezvous meet 2> err$r & P[$r]=$!; done; until grep -q 'step 3' err0; do sleep 0.05; done;"
            "kill -KILL ${P[0]}; wait ${P[1]}; S=$?; wait ${P[2]}; cat err1 err2; ls meet; exit $S");
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(r.out.rfind("rehearse: error: rank 0 ended without a word\n  rank 0 (stage0) was in ", 0), 0u) << r.out;
  EXPECT_EQ(r.out.find("rehearse: error"), r.out.rfind("rehearse: error")) << "told twice";
}

TEST_F(ExecuteGloo, WhatDoesNotFitTogetherIsRefused) {
  const auto refused = [&](const std::string& prefix, const std::string& options, const std::string& message) {
    const Outcome r = shell(prefix + " $REHEARSE execute " + scenario_ + " --steps 1 " + options);
    EXPECT_EQ(r.status, 2) << options;
    EXPECT_TRUE(has(r.err, message)) << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  };
  refused("", "--ranks gloo --interface none0", "no interface 'none0'");
  refused("", "--ranks gloo --rendezvous x", "set RANK and WORLD_SIZE");
  refused("", "--interface lo", "only with --ranks gloo");
  refused("RANK=0 WORLD_SIZE=2", "--ranks gloo", "--rendezvous DIR");
  refused("RANK=0 WORLD_SIZE=3", "--ranks gloo --rendezvous x", "3");
  refused("", "--ranks gloo --data none.txt", "no such file");
}

TEST_F(ExecuteGloo, RanksThatWereNotStartedAlikeAreRefused) {
  const std::string other_text = folder_.write("other.txt", std::string(40'000, 'x'));
  const std::string other_model = folder_.write("model.yaml", [] {
    std::string text = kGlooScenario;
    return text.replace(text.find("layers: 2"), 9, "layers: 4");
  }());
  struct Case {
    std::string scenario, options, told;
  };
  for (const Case& c :
       {Case{scenario_, "--set training.seq_len=4", "training.seq_len: 8 on ranks 0 and 2, 4 on rank 1"},
        Case{scenario_, "--set training.lr=2e-2", "training.lr: 0.01 on ranks 0 and 2, 0.02 on rank 1"},
        Case{scenario_, "--set training.precision=bf16", "training.precision: fp32 on ranks 0 and 2, bf16 on rank 1"},
        Case{scenario_, "--set plan.zero=3", "plan.zero: 0 on ranks 0 and 2, 3 on rank 1"},
        Case{other_model, "", "model.layers: 2 on ranks 0 and 2, 4 on rank 1"},
        Case{scenario_, "--steps 7", "--steps: 20 on ranks 0 and 2, 7 on rank 1"},
        Case{scenario_, "--data " + other_text, "    40000 bytes, "}}) {
    const Outcome r =
        shell("cd " + folder_ / "" + "; start() { RANK=$1 WORLD_SIZE=3 $REHEARSE execute $2 --set cluster.gpus=3 " +
              "--set training.global_batch=6 --ranks gloo --rendezvous meet --interface lo $3 >out$1 2>err$1; " +
              "echo $? >status$1; }; start 0 " + scenario_ + " & start 2 " + scenario_ + " & start 1 " + c.scenario +
              " '" + c.options + "' & wait; cat status? out?; cat err? >&2; ls meet; rm -r meet");
    EXPECT_EQ(r.out, "2\n2\n2\n") << c.told << r.err;
    EXPECT_EQ(r.err.rfind("rehearse: error: rank 1 was not started as the others\n", 0), 0u) << r.err;
    EXPECT_TRUE(has(r.err, c.told)) << r.err;
    for (std::size_t at = 0, end = 0; (end = r.err.find('\n', at)) != std::string::npos; at = end + 1)
      EXPECT_LE(end - at, 80u) << r.err;
  }
}

TEST_F(ExecuteGloo, ParameterServersAreToBeOrderedAlike) {
  const Outcome r =
      shell("cd " + folder_ / "" +
            "; start() { RANK=$1 WORLD_SIZE=3 $REHEARSE execute regression-stale --set cluster.gpus=2 "
            "--set training.global_batch=16 --steps 3 --ranks gloo --rendezvous meet --interface lo $2 >out$1 2>err$1; "
            "echo $? >status$1; }; start 0 --as-simulated & start 1 & start 2 --as-simulated & wait; cat status? out?; "
            "cat err? >&2");
  EXPECT_EQ(r.out, "2\n2\n2\n") << r.err;
  EXPECT_TRUE(has(r.err,
                  "rank 1 was not started as the others\n  --as-simulated: given on ranks 0 and 2, not given on "
                  "rank 1\n"))
      << r.err;
}

// The order comes from keys that may differ otherwise.
TEST_F(ExecuteGloo, ParameterServersAreToHaveOneOrder) {
  const Outcome r =
      shell("cd " + folder_ / "" +
            "; start() { RANK=$1 WORLD_SIZE=3 $REHEARSE execute regression-stale --set cluster.gpus=2 --set "
            "training.global_batch=16 --set 'noise.rank_step={uniform: [0.2, 5]}' --set noise.seed=$2 --steps 40 "
            "--ranks gloo --rendezvous meet --interface lo --as-simulated >out$1 2>err$1; echo $? >status$1; }; "
            "start 0 1 & start 1 77 & start 2 1 & wait; cat status? out?; cat err? >&2");
  EXPECT_EQ(r.out, "2\n2\n2\n") << r.err;
  EXPECT_TRUE(has(r.err, "rank 1 was not started as the others\n  simulated order:")) << r.err;
}

TEST_F(ExecuteGloo, ALinkPlantedInTheRendezvousIsNotFollowed) {
  folder_.write("foreign", "precious");
  const Outcome r = shell("cd " + folder_ / "" + "; mkdir -p meet/rehearse-ranks; ln -s $PWD/foreign " +
                          "meet/rehearse-ranks/board; RANK=0 WORLD_SIZE=2 $REHEARSE execute " + scenario_ +
                          " --ranks gloo --rendezvous meet --timeout 1");
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "is a symbolic link")) << r.err;
  EXPECT_EQ(read(folder_ / "foreign"), "precious");
}

TEST_F(ExecuteGloo, ALaunchersProcessesWithoutRanksAreRefused) {
  const auto refused = [&](const std::string& variables, const std::string& flag) {
    const Outcome r = shell(variables + " $REHEARSE execute " + scenario_ + " --steps 1");
    EXPECT_EQ(r.status, 2) << variables;
    EXPECT_TRUE(has(r.err, variables.substr(0, variables.find(' '))) && has(r.err, flag)) << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << "an error is a line: " << r.err;
    EXPECT_FALSE(has(r.err, "\\x")) << r.err;
    EXPECT_EQ(r.out, "");
  };
  refused("RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost", "--ranks gloo");
  refused("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", "--ranks mpi");
  refused("SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=7 SLURM_STEP_ID=0", "--ranks gloo");
  const Outcome asked = shell("RANK=1 WORLD_SIZE=2 $REHEARSE execute " + scenario_ + " --steps 1 --ranks local");
  EXPECT_EQ(asked.status, 0) << asked.err;
  const Outcome alone = shell("RANK=0 WORLD_SIZE=1 $REHEARSE execute " + scenario_ + " --steps 1");
  EXPECT_EQ(alone.status, 0) << alone.err;
  for (const std::string command : {"calibrate -o c.json", "validate --local", "demo"}) {
    const Outcome r = shell("cd " + folder_ / "" + "; RANK=1 WORLD_SIZE=2 timeout 20 $REHEARSE " + command);
    EXPECT_EQ(r.status, 2) << command;
    EXPECT_TRUE(has(r.err, "RANK=1, WORLD_SIZE=2")) << r.err;
  }
}

// The board of the ranks is mapped: where there was no room for it, a write to it used to end the process.
TEST_F(ExecuteGloo, AFullTemporaryFolderIsAnErrorThatSaysSo) {
  const Outcome r = shell("cd " + folder_ / "" +
                          "; mkdir full; unshare -m bash -c 'mount -t tmpfs -o size=64k none full || exit 99; " +
                          "dd if=/dev/zero of=full/x bs=1k count=52 2>/dev/null; TMPDIR=full $REHEARSE execute " +
                          scenario_ + " --steps 1 --ranks gloo; S=$?; rm full/x; ls full; exit $S'");
  if (r.status == 99 || has(r.err, "unshare")) GTEST_SKIP() << "cannot mount: " << r.err;
  EXPECT_EQ(r.status, 1) << r.err;
  EXPECT_TRUE(has(r.err, "No space left on device")) << r.err;
  EXPECT_TRUE(has(r.err, "full/rehearse-")) << r.err;
  EXPECT_EQ(r.out, "");
}

TEST_F(ExecuteGloo, ALimitOfFilesIsAnErrorThatSaysSo) {
  const Outcome r = shell("cd " + folder_ / "" + "; mkdir t; ulimit -f 8; TMPDIR=$PWD/t $REHEARSE execute " +
                          scenario_ + " --steps 1 --ranks gloo; S=$?; ls t; exit $S");
  EXPECT_EQ(r.status, 1) << r.err;
  EXPECT_TRUE(has(r.err, "ulimit -f") && has(r.err, "8192 bytes")) << r.err;
  EXPECT_EQ(r.out, "");
}

TEST_F(ExecuteGloo, AKilledRankIsNamedAndNothingIsLeft) {
  const Outcome r = disturb("kill -KILL $V");
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(r.out, "");
  EXPECT_EQ(r.err.rfind("rehearse: error: rank 3 was killed by signal 9", 0), 0u) << r.err;
  EXPECT_TRUE(has(r.err, "rank 3 (stage1) was in ")) << r.err;
  EXPECT_TRUE(has(r.err, " waited for rank 3")) << r.err;
}

TEST_F(ExecuteGloo, AStoppedRankIsNamedAfterTheTimeout) {
  const Outcome r = disturb("kill -STOP $V");
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(r.out, "");
  EXPECT_TRUE(has(r.err, "waited 1.5 s for rank ")) << r.err;
  EXPECT_TRUE(has(r.err, "rank 3 (stage1) was in ")) << r.err;
  EXPECT_EQ(r.err.find("rehearse: error"), r.err.rfind("rehearse: error")) << r.err;
}

TEST_F(ExecuteGloo, AnInterruptEndsAllProcesses) {
  struct Case {
    const char* signal;
    int status;
    const char* text;
  };
  for (const Case& c : {Case{"INT", 130, "rehearse: interrupted\n"}, Case{"TERM", 143, "rehearse: ended by SIGTERM\n"},
                        Case{"HUP", 129, "rehearse: ended by SIGHUP\n"}})
    for (const char* target : {" $P", " -- -$P"}) {  // the parent; everyone, as a terminal does
      const Outcome r = disturb(std::string("kill -") + c.signal + target);
      EXPECT_EQ(r.status, c.status) << c.signal << target;
      EXPECT_EQ(r.out, "");
      EXPECT_EQ(r.err, c.text);
    }
}

TEST_F(ExecuteGloo, ARankThatIsToldToEndIsNamed) {
  const Outcome r = disturb("kill -TERM $V");
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(r.out, "");
  EXPECT_EQ(r.err.rfind("rehearse: error: rank 3 was ended by SIGTERM", 0), 0u) << r.err;
}

// As torchrun and srun end what they have started; before all have met, too.
TEST_F(ExecuteGloo, ALaunchersProcessesThatAreToldToEndLeaveNothing) {
  const std::string start = "cd " + folder_ / "" +
                            "; set -m; for r in 0 1; do RANK=$r WORLD_SIZE=2 $REHEARSE execute " + scenario_ +
                            " --steps 1000000 --log-every 1 --ranks gloo --rendezvous meet -o out 2>err$r & P[$r]=$!; ";
  const std::string end = "kill -TERM ${P[@]}; for p in ${P[@]}; do wait $p; echo $?; done; ls meet; ls -d out";
  const Outcome running = shell(start + "done; until grep -q 'step 3' err0; do sleep 0.05; done; " + end);
  EXPECT_EQ(running.out, "143\n143\n");
  const Outcome meeting =
      shell(start + "break; done; until [ -e meet/rehearse-ranks/board ]; do sleep 0.05; done; " + end);
  EXPECT_EQ(meeting.out, "143\n");
}

TEST_F(ExecuteGloo, RanksEndWithTheirParent) {
  const Outcome r = disturb("kill -KILL $P");
  EXPECT_EQ(r.status, 137);
  EXPECT_EQ(r.out, "");
}

}  // namespace
}  // namespace rehearse::e2e
