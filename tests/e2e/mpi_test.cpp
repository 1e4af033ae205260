// rehearse execute --ranks mpi as a user meets it, under mpirun: the losses of ranks that are threads, one voice, and
// ranks that are killed or stopped. Skipped where there is no MPI.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

constexpr char kTiny[] = R"(rehearse: 1
name: tiny
model: {family: gpt, layers: 4, hidden: 16, heads: 2, vocab: 256, max_seq_len: 8}
cluster: {topology: dgx-a100, gpus: 2}
plan: {micro_batch: 1}
training: {global_batch: 8, precision: fp32, lr: 1e-2}
)";

// As root, with more ranks than cores, without ssh, in containers; Open MPI itself leaks.
constexpr char kMpirun[] =
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
    "OMPI_MCA_plm=isolated OMPI_MCA_btl_vader_single_copy_mechanism=none "
    "LSAN_OPTIONS=detect_leaks=0\n"
    "unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT\n";

Outcome under_mpirun(int ranks, const std::string& arguments, const std::string& variables = "") {
  return shell(std::string(kMpirun) + variables + " mpirun -n " + std::to_string(ranks) + " \"$REHEARSE\" execute " +
               arguments + " --ranks mpi");
}

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun (openmpi-bin)";
    if (has(run({"execute", "gpt-tiny-ddp", "--ranks", "mpi"}).err, "built without MPI"))
      GTEST_SKIP() << "built without MPI (libopenmpi-dev)";
  }

  const Folder folder_;
  const std::string scenario_ = folder_.write("tiny.yaml", kTiny);
};

struct MpiCase {
  const char* name;
  int ranks;
  const char* set;
};
class MpiPlans : public Mpi, public testing::WithParamInterface<MpiCase> {};

TEST_P(MpiPlans, HaveTheLossesOfThreads) {
  const MpiCase& c = GetParam();
  const std::string arguments = scenario_ + " --steps 4 --json --set cluster.gpus=" + std::to_string(c.ranks) + c.set;
  const Outcome threads = shell("\"$REHEARSE\" execute " + arguments);
  const Outcome processes = under_mpirun(c.ranks, arguments + " -o " + (folder_ / "out"));
  ASSERT_EQ(threads.status, 0) << threads.err;
  ASSERT_EQ(processes.status, 0) << processes.err;
  EXPECT_EQ(processes.err, threads.err) << "notes are said once";
  ASSERT_TRUE(Json::accept(processes.out)) << "one rank prints, and prints once:\n" << processes.out;
  // Bit by bit: sums are added in group order however numbers travel.
  EXPECT_EQ(Json::parse(processes.out)["loss"], Json::parse(threads.out)["loss"]);
  EXPECT_EQ(processes.out, read(folder_ / "out/result.json"));
}

INSTANTIATE_TEST_SUITE_P(
    All, MpiPlans,
    testing::Values(MpiCase{"data_2", 2, ""}, MpiCase{"zero3_4", 4, " --set plan.zero=3"},
                    MpiCase{"tensor_2", 2, " --set plan.tensor=2"},
                    MpiCase{"sequence_parallel_4", 4, " --set plan.tensor=2 --set plan.sequence_parallel=true"},
                    MpiCase{"pipeline_2", 2, " --set plan.pipeline=2 --set plan.schedule=1f1b"},
                    MpiCase{"all_8", 8, " --set plan.tensor=2 --set plan.pipeline=2 --set plan.zero=1"}),
    [](const auto& plan) { return std::string(plan.param.name); });

// Parameter servers are the processes behind the workers'. In the order that is simulated, values at the servers,
// losses and what each server did are those of threads, bit by bit; without it what is decided by ranks' order is.
struct ServedCase {
  const char* name;
  const char* plan;
  bool ordered;
  bool acts;  // the order is of all that servers do, not of who makes a step
};
class MpiServers : public Mpi, public testing::WithParamInterface<ServedCase> {};

TEST_P(MpiServers, DoWhatThreadsDo) {
  const ServedCase& c = GetParam();
  const std::string arguments = "cifar-4-workers-async --steps 8 --json --set plan.servers=2 " + std::string(c.plan) +
                                (c.ordered ? " --as-simulated" : "");
  const Outcome threads =
      shell("\"$REHEARSE\" execute " + arguments + " --checkpoint " + (folder_ / "a") + " -o " + (folder_ / "threads"));
  const Outcome processes =
      under_mpirun(6, arguments + " --checkpoint " + (folder_ / "b") + " -o " + (folder_ / "processes"));
  ASSERT_EQ(threads.status, 0) << threads.err;
  ASSERT_EQ(processes.status, 0) << processes.err;
  ASSERT_TRUE(Json::accept(processes.out)) << processes.out;
  EXPECT_EQ(Json::parse(processes.out)["loss"], Json::parse(threads.out)["loss"]);
  for (const char* server : {"0", "1"}) {
    const std::string file = std::string("/step-0000000008/rank-000") + server + ".state";
    EXPECT_EQ(read(folder_ / ("b" + file)), read(folder_ / ("a" + file))) << "values of server " << server;
  }
  if (c.acts) {
    EXPECT_EQ(read(folder_ / "processes/servers.csv"), read(folder_ / "threads/servers.csv"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MpiServers,
    testing::Values(ServedCase{"asynchronous", "", true, true},
                    ServedCase{"bounded", "--set plan.consistency=bounded --set plan.staleness=1", true, true},
                    ServedCase{"synchronous", "--set plan.consistency=synchronous", false, false},
                    ServedCase{"one_spare",
                               "--set plan.consistency=synchronous --set plan.backup_workers=1 --set "
                               "training.global_batch=96",
                               true, false}),
    [](const auto& plan) { return std::string(plan.param.name); });

TEST_F(Mpi, ServersWithoutAProcessEachAreRefused) {
  const Outcome less = under_mpirun(4, "cifar-4-workers-async");
  EXPECT_EQ(less.status, 2);
  EXPECT_TRUE(has(less.err, "4 workers and 1 parameter servers, but MPI counts 4 processes (mpirun -n 5 rehearse"))
      << less.err;
}

TEST_F(Mpi, AMistakeIsToldOnceAndExits2) {
  const Outcome missing = under_mpirun(3, folder_ / "none.yaml");
  EXPECT_EQ(missing.status, 2);
  EXPECT_TRUE(has(missing.err, "no such file")) << missing.err;
  EXPECT_EQ(missing.err.find("no such file"), missing.err.rfind("no such file")) << missing.err;
  const Outcome data = under_mpirun(2, scenario_ + " --data " + (folder_ / "none.txt"));
  EXPECT_EQ(data.status, 2);
  EXPECT_EQ(data.err.find("no such file"), data.err.rfind("no such file")) << data.err;
}

TEST_F(Mpi, AnotherNumberOfProcessesThanRanksExits2) {
  const Outcome more = under_mpirun(3, scenario_);
  EXPECT_EQ(more.status, 2);
  EXPECT_TRUE(has(more.err, "the scenario has 2 ranks, but MPI counts 3 processes")) << more.err;
  const Outcome alone = shell(std::string(kMpirun) + "\"$REHEARSE\" execute " + scenario_ + " --ranks mpi");
  EXPECT_EQ(alone.status, 2);
  EXPECT_TRUE(has(alone.err, "mpirun -n 2 rehearse execute")) << alone.err;
}

// Each process a shell first, which knows its rank as $OMPI_COMM_WORLD_RANK.
Outcome as_shells(int ranks, const std::string& script) {
  return shell(std::string(kMpirun) + "export REHEARSE; mpirun -n " + std::to_string(ranks) + " sh -c '" + script +
               "'");
}

TEST_F(Mpi, RanksThatWereNotStartedAlikeExit2) {
  const Outcome lr = as_shells(
      2, "exec $REHEARSE execute " + scenario_ + " --ranks mpi --set training.lr=0.0$((OMPI_COMM_WORLD_RANK+1))");
  EXPECT_EQ(lr.status, 2) << lr.err;
  EXPECT_TRUE(has(lr.err, "ranks 0 and 1 were not started alike\n  training.lr: 0.01 on rank 0, 0.02 on rank 1\n"))
      << lr.err;
  // Of other groups: they must not be made before.
  const Outcome plan = as_shells(4, "[ $OMPI_COMM_WORLD_RANK = 2 ] && T=2; exec $REHEARSE execute " + scenario_ +
                                        " --ranks mpi --set cluster.gpus=4 --set plan.tensor=${T:-1}");
  EXPECT_EQ(plan.status, 2) << plan.err;
  EXPECT_TRUE(has(plan.err, "rank 2 was not started as the others\n  plan.tensor: 1 on ranks 0, 1 and 3, 2 on rank 2"))
      << plan.err;
}

TEST_F(Mpi, ARankThatDoesNotComeIsNamed) {
  const Outcome r = as_shells(3, "[ $OMPI_COMM_WORLD_RANK = 1 ] && exec sleep 60; exec $REHEARSE execute " + scenario_ +
                                     " --ranks mpi --set cluster.gpus=3 --set training.global_batch=6 --timeout 3");
  EXPECT_NE(r.status, 0);
  EXPECT_NE(r.status, 124) << "hung";
  EXPECT_TRUE(has(r.err, "waited 3 s for rank 1 to start MPI")) << r.err;
}

TEST_F(Mpi, WithoutRanksItIsRefused) {
  const Outcome r = as_shells(2, "exec $REHEARSE execute " + scenario_);
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "OMPI_COMM_WORLD_SIZE=2") && has(r.err, "--ranks mpi")) << r.err;
}

TEST_F(Mpi, LaunchersThatDisagreeExit2) {
  const Outcome r = under_mpirun(2, scenario_, "RANK=0 WORLD_SIZE=4");
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "two launchers disagree") && has(r.err, "WORLD_SIZE=4") &&
              has(r.err, "OMPI_COMM_WORLD_SIZE=2"))
      << r.err;
}

// Sends `signal` to `rank` once step `mark` of `steps` was made; the outcome of mpirun. What an earlier run said is
// taken away first: it would pass for what this one says.
Outcome disturb(const Folder& folder, const std::string& run, const std::string& signal, int rank, int mark = 3,
                int steps = 1'000'000) {
  const std::string job = "REHEARSE_TEST_JOB=" + (folder / "job");
  return shell(
      std::string(kMpirun) + "export " + job + "\nrm -f \"" + (folder / "err") + "\"\nmpirun -n " + run + " --steps " +
      std::to_string(steps) + " --log-every 1 --timeout 3 --ranks mpi -o " + (folder / "out") + " 2>\"" +
      (folder / "err") + "\" &\njob=$!\nuntil grep -qs '^step " + std::to_string(mark) + " ' \"" + (folder / "err") +
      "\"; do kill -0 $job || exit 99; sleep 0.1; done\n"
      "for p in /proc/[0-9]*; do\n"
      "  { tr '\\0' '\\n' <$p/environ; } 2>/dev/null | { grep -qx 'OMPI_COMM_WORLD_RANK=" +
      std::to_string(rank) + "' && :; } || continue\n  grep -qz '^" + job + "' $p/environ && kill -" + signal +
      " ${p#/proc/}\ndone\nwait $job; status=$?\ngrep -v '^step' \"" + (folder / "err") + "\" >&2; exit $status");
}

std::string pipelined(const std::string& scenario) {
  return "4 \"$REHEARSE\" execute " + scenario + " --set cluster.gpus=4 --set plan.pipeline=2";
}

TEST_F(Mpi, ARankThatIsKilledIsNamed) {
  for (const int rank : {2, 0}) {
    const Outcome r = disturb(folder_, pipelined(scenario_), "KILL", rank);
    EXPECT_NE(r.status, 0);
    EXPECT_NE(r.status, 124) << "hung";
    const std::string name = "rank " + std::to_string(rank);
    // mpirun, which names the rank itself, gives the others a second for their last words: on a busy machine too
    // little.
    if (has(r.err, "rehearse: error"))
      EXPECT_TRUE(has(r.err, name + " ended without a word") &&
                  has(r.err, name + " (stage" + (rank == 2 ? "1" : "0") + ") was in"))
          << r.err;
    else
      EXPECT_TRUE(has(r.err, "process " + name + " with PID")) << r.err;
    EXPECT_EQ(folder_.files(), (std::vector<std::string>{"err", "tiny.yaml"})) << "a result of a run that failed";
  }
}

TEST_F(Mpi, ARankThatIsStoppedIsNamedAtTheDeadline) {
  const Outcome r = disturb(folder_, pipelined(scenario_), "STOP", 3);
  EXPECT_NE(r.status, 0);
  EXPECT_NE(r.status, 124) << "hung";
  EXPECT_TRUE(has(r.err, "waited 3 s for rank")) << r.err;
  EXPECT_TRUE(has(r.err, "rank 3 does not answer")) << r.err;
}

// Rank 4 is a parameter server, rank 2 a worker that its server waits for; a loss is told before the last step of all.
constexpr char kServed[] = "5 \"$REHEARSE\" execute cifar-4-workers-async --set plan.consistency=synchronous";

TEST_F(Mpi, AServerOrWorkerThatIsKilledIsNamed) {
  for (const int rank : {4, 2}) {
    const Outcome r = disturb(folder_, kServed, "KILL", rank);
    EXPECT_NE(r.status, 0);
    EXPECT_NE(r.status, 124) << "hung";
    const std::string name = "rank " + std::to_string(rank);
    if (has(r.err, "rehearse: error"))
      EXPECT_TRUE(has(r.err, name + " ended without a word") &&
                  has(r.err, name + (rank == 4 ? " (parameter server 0) had applied" : " (stage0) was in")))
          << r.err;
    else
      EXPECT_TRUE(has(r.err, "process " + name + " with PID")) << r.err;
  }
}

TEST_F(Mpi, AServerOrWorkerThatIsStoppedIsNamedAtTheDeadline) {
  for (const int rank : {4, 2}) {
    const Outcome r = disturb(folder_, kServed, "STOP", rank);
    EXPECT_NE(r.status, 0);
    EXPECT_NE(r.status, 124) << "hung";
    EXPECT_TRUE(has(r.err, "rank " + std::to_string(rank) + " does not answer")) << r.err;
  }
}

// When all have pulled for the last time nobody waits for an answer of the server, but for its end. The last iteration
// is long: it must not end before the signal comes. Where a worker is slow the signal comes before its last pull, and
// another wait names the server: once more then.
TEST_F(Mpi, AServerThatIsStoppedAfterTheLastPullIsNamedAtTheDeadline) {
  Outcome r;
  for (int attempt = 0; attempt < 4 && !has(r.err, "for a sign of life of server 0"); ++attempt) {
    r = disturb(folder_, std::string(kServed) + " --set training.global_batch=4096 --set cluster.threads_per_rank=1",
                "STOP", 4, 1, 2);
    EXPECT_NE(r.status, 0);
    EXPECT_NE(r.status, 124) << "hung";
    EXPECT_TRUE(has(r.err, "rank 4 does not answer")) << r.err;
  }
  EXPECT_TRUE(has(r.err, "waited 4 s for a sign of life of server 0 (rank 4)")) << r.err;
}

// As Open MPI's when a rank is killed while MPI starts.
TEST_F(Mpi, AnMpirunWithoutRanksIsEnded) {
  const std::string launcher =
      folder_.write("launcher", "#!/usr/bin/perl\nif (fork() == 0) { sleep 1; exit }\nsleep 600;\n");
  const Outcome r =
      shell("cd '" + (folder_ / "") + "' && chmod +x launcher && REHEARSE_MPIRUN=" + launcher +
            " timeout 60 \"$REHEARSE\" execute tiny.yaml --ranks mpi --steps 3 --checkpoint saved --every 2 "
            "--elastic 2:2");
  EXPECT_EQ(r.status, 1) << r.err;
  EXPECT_TRUE(has(r.err, "goes on, and none of its ranks is left")) << r.err;
}

// Whoever started the job says why he ends it; the ranks say that somebody else did.
TEST_F(Mpi, AJobOfOursThatSomebodyElseEndsSaysSo) {
  const Outcome r = shell(std::string(kMpirun) + "cd '" + (folder_ / "") + R"sh('
until_true() { for try in $(seq 600); do "$@" >seen 2>&1 && return; sleep 0.1; done; kill -TERM $parent; exit 99; }
"$REHEARSE" execute tiny.yaml --ranks mpi --steps 1000000 --log-every 1000000 --checkpoint saved --every 1000 \
  --max-restarts 1 2>err & parent=$!
until_true ls saved/step-0000001000/manifest.json
kill -TERM $(cut -d ' ' -f 1 /proc/$parent/task/$parent/children)
until_true grep 'restart 1 of 1' err
kill -TERM $parent; wait $parent; status=$?
cat err >&2; exit $status)sh");
  EXPECT_EQ(r.status, 143) << r.err;
  const std::string outside = "rehearse: error: the job was ended from outside (SIGTERM)";
  EXPECT_TRUE(has(r.err, outside)) << r.err;
  EXPECT_EQ(r.err.find(outside), r.err.rfind(outside)) << r.err;
  EXPECT_TRUE(has(r.err, "rehearse: ended by SIGTERM")) << r.err;
}

// Plans of a sweep are shared among processes; what is printed and written is what one process gives.
TEST_F(Mpi, ASweepIsSharedAndTheSame) {
  const std::string sweep = "simulate llama2-7b-8xa100 --sweep plan.tensor=1,2,3,8 --sweep plan.zero=0,3 --threads 1 ";
  const auto under = [&](int processes, const std::string& options) {
    return shell(std::string(kMpirun) + "mpirun -n " + std::to_string(processes) + " \"$REHEARSE\" " + sweep + options);
  };
  for (const char* form : {"", "--json "}) {
    const Outcome one = shell("\"$REHEARSE\" " + sweep + form);
    ASSERT_EQ(one.status, 0) << one.err;
    for (const int processes : {2, 3}) {
      const Outcome all = under(processes, form);
      EXPECT_EQ(all.status, 0) << all.err;
      EXPECT_EQ(all.out, one.out);
      EXPECT_EQ(all.err, one.err) << "said once";
    }
  }
  ASSERT_EQ(shell("\"$REHEARSE\" " + sweep + "-o " + (folder_ / "one")).status, 0);
  ASSERT_EQ(under(2, "-o " + (folder_ / "two")).status, 0);
  EXPECT_EQ(read(folder_ / "one/sweep.csv"), read(folder_ / "two/sweep.csv"));
  EXPECT_EQ(shell("cd " + (folder_ / "one") + " && ls").out, shell("cd " + (folder_ / "two") + " && ls").out);
  const Outcome none = under(2, "--set plan.pipeline=7");
  EXPECT_EQ(none.status, 2);
  EXPECT_EQ(none.out, "");
}

// Samples, what-ifs and counterfactuals of one plan are too.
TEST_F(Mpi, SamplesAndWhatIfsAreSharedAndTheSame) {
  const std::string arguments = "simulate llama2-7b-8xa100 --set noise.kernels=0.02 --samples 5 --what-if --threads 1 ";
  const std::string but_engine = "--json | sed '/\"engine\": {/,/}/d'";
  const Outcome one = shell("\"$REHEARSE\" " + arguments + but_engine);
  ASSERT_EQ(one.status, 0) << one.err;
  ASSERT_TRUE(has(one.out, "what_if") && has(one.out, "samples")) << one.out;
  for (const int processes : {2, 3}) {
    const Outcome all = shell(std::string(kMpirun) + "mpirun -n " + std::to_string(processes) + " \"$REHEARSE\" " +
                              arguments + but_engine);
    EXPECT_EQ(all.status, 0) << all.err;
    EXPECT_EQ(all.out, one.out);
    EXPECT_EQ(all.err, one.err) << "said once";
  }
}

// The space of a search too: the same answer but for how long it took, said and written once.
TEST_F(Mpi, ASearchIsSharedAndTheSame) {
  const std::string small = folder_.write("small.yaml", R"(rehearse: 1
name: small
framework: rehearse
model: {family: gpt, layers: 4, hidden: 512, heads: 8, vocab: 2048, max_seq_len: 256}
cluster: {topology: dgx-a100, gpus: 16}
training: {global_batch: 32, seq_len: 256, precision: bf16}
)");
  const std::string search = "plan " + small + " --fix plan.context=1 --fix plan.schedule=1f1b --threads 1 --json ";
  const auto answer = [](const Outcome& r) {
    Json j = Json::parse(r.out);
    j["search"].erase("wall_s");
    return j;
  };
  const Outcome one = shell("\"$REHEARSE\" " + search + "-o " + (folder_ / "one"));
  ASSERT_EQ(one.status, 0) << one.err;
  const Outcome all = shell(std::string(kMpirun) + "mpirun -n 3 \"$REHEARSE\" " + search + "-o " + (folder_ / "three"));
  ASSERT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(all.err, one.err) << "said once";
  EXPECT_EQ(answer(all), answer(one));
  EXPECT_EQ(read(folder_ / "one/plan-1.yaml"), read(folder_ / "three/plan-1.yaml"));
  const Outcome none = shell(std::string(kMpirun) + "mpirun -n 2 \"$REHEARSE\" " + search + "--fix plan.tensor=7");
  EXPECT_EQ(none.status, 2);
  EXPECT_EQ(none.out, "");
}

// What is not shared the first process answers alone, as if it were the only one.
TEST_F(Mpi, WhatIsNotSharedIsAnsweredOnce) {
  for (const std::string& arguments :
       {"simulate " + scenario_ + " --json", std::string("goodput gpt3-175b-failures --samples 20 --json")}) {
    const Outcome one = shell("\"$REHEARSE\" " + arguments);
    ASSERT_EQ(one.status, 0) << one.err;
    const Outcome all = shell(std::string(kMpirun) + "mpirun -n 2 \"$REHEARSE\" " + arguments);
    EXPECT_EQ(all.status, 0) << all.err;
    ASSERT_TRUE(Json::accept(all.out)) << all.out;
    Json answer = Json::parse(all.out), alone = Json::parse(one.out);
    answer.erase("engine"), alone.erase("engine");  // how long the simulation took
    EXPECT_EQ(answer, alone);
    EXPECT_TRUE(has(all.err, "is not shared among processes: the first of 2 alone answers")) << all.err;
    EXPECT_EQ(all.err.find("is not shared"), all.err.rfind("is not shared")) << all.err;
  }
  const Outcome wrong = shell(std::string(kMpirun) + "mpirun -n 2 \"$REHEARSE\" goodput nowhere.yaml");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_EQ(wrong.err.find("no such file"), wrong.err.rfind("no such file")) << wrong.err;
  // Half a launcher's variables are nothing to a command that has no ranks.
  EXPECT_EQ(shell("RANK=1 \"$REHEARSE\" list scenarios").status, 0);
}

TEST_F(Mpi, AProcessThatDiesEndsTheSearch) {
  const Outcome r = as_shells(3,
                              "[ $OMPI_COMM_WORLD_RANK = 1 ] && (sleep 1; kill -9 $$) & exec $REHEARSE plan "
                              "gpt3-175b-1024xa100 --threads 1");
  EXPECT_NE(r.status, 0);
  EXPECT_NE(r.status, 124) << "hung";
  EXPECT_EQ(r.out, "");
  EXPECT_TRUE(has(r.err, "rank 1")) << r.err;
}

TEST_F(Mpi, AProcessThatDiesEndsTheSweep) {
  const Outcome r =
      as_shells(3,
                "[ $OMPI_COMM_WORLD_RANK = 1 ] && (sleep 1; kill -9 $$) & exec $REHEARSE simulate "
                "llama2-7b-8xa100 --steps 20000 --threads 1 --sweep plan.micro_batch=1,2,4 --sweep plan.zero=0,1,2,3");
  EXPECT_NE(r.status, 0);
  EXPECT_NE(r.status, 124) << "hung";
  EXPECT_EQ(r.out, "") << "half a table";
  EXPECT_TRUE(has(r.err, "rank 1")) << r.err;
}

}  // namespace
}  // namespace rehearse::e2e
