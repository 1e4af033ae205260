// What launchers' environments say of a process, alone, nested and in contradiction.
#include "execute/processes/launch_environment.h"

#include <gtest/gtest.h>

#include <map>

#include "sim/base/diagnostics.h"

namespace rehearse::execute {
namespace {

using Variables = std::map<std::string, std::string>;

Launch read(const Variables& variables) {
  return read_launch([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return {};
    return found->second;
  });
}

// The messages of the InputError, with hints; empty if it is none.
std::string refused(const Variables& variables) {
  try {
    read(variables);
    return "";
  } catch (const InputError& error) {
    std::string text;
    for (const Diagnostic& d : error.diagnostics()) text += d.text() + '\n';
    return text;
  }
}

Variables with(Variables some, const Variables& more) {
  some.insert(more.begin(), more.end());
  return some;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Variables kTorchrun = {{"RANK", "3"},           {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},     {"MASTER_ADDR", "10.0.0.1"},
                             {"MASTER_PORT", "1234"}, {"TORCHELASTIC_RUN_ID", "none"}};
const Variables kMpirun = {
    {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
const Variables kHydra = {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}};
const Variables kSrun = {{"SLURM_PROCID", "3"},
                         {"SLURM_NTASKS", "8"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_JOB_ID", "71"},
                         {"SLURM_STEP_ID", "0"}};
const Variables kBatchShell = {
    {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "71"}};

TEST(LaunchEnvironment, WithoutALauncherItIsOneRank) {
  const Launch launch = read({{"HOME", "/"}});
  EXPECT_EQ(launch.launcher, Launcher::none);
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.ranks, 1);
  EXPECT_FALSE(launch.local_rank);
  EXPECT_FALSE(launch.master_address);
  EXPECT_EQ(launch.source, "");
}

TEST(LaunchEnvironment, EachLauncherIsUnderstood) {
  const std::vector<std::pair<Launcher, Variables>> all = {{Launcher::torchrun, kTorchrun},
                                                           {Launcher::open_mpi, kMpirun},
                                                           {Launcher::hydra, kHydra},
                                                           {Launcher::slurm, kSrun}};
  for (const auto& [launcher, variables] : all) {
    const Launch launch = read(variables);
    EXPECT_EQ(launch.launcher, launcher);
    EXPECT_EQ(launch.rank, 3) << name_of(launcher);
    EXPECT_EQ(launch.ranks, 8) << name_of(launcher);
    EXPECT_EQ(launch.local_rank, 1) << name_of(launcher);
  }
  EXPECT_EQ(read(kSrun).source, "SLURM_PROCID=3, SLURM_NTASKS=8");
}

TEST(LaunchEnvironment, TheLocalRankMayBeMissing) {
  EXPECT_FALSE(read({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).local_rank);
}

TEST(LaunchEnvironment, LaunchersThatAgreeAreOne) {
  const Launch launch = read(with(with(with({{"RANK", "3"}, {"WORLD_SIZE", "8"}}, kMpirun), kHydra), kSrun));
  EXPECT_EQ(launch.launcher, Launcher::torchrun) << "the first in the order in which they are believed";
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(read(with(kHydra, kMpirun)).launcher, Launcher::open_mpi);
  EXPECT_EQ(read(with(kHydra, {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}})).launcher, Launcher::hydra);
}

TEST(LaunchEnvironment, LaunchersThatDisagreeAreNamedWithTheirValues) {
  const Variables script = {{"RANK", "0"}, {"WORLD_SIZE", "8"}};
  std::string text = refused(with(script, kSrun));  // RANK=$SLURM_PROCID, evaluated in the batch shell
  for (const char* part : {"two launchers disagree", "RANK=0, WORLD_SIZE=8 (torchrun)",
                           "SLURM_PROCID=3, SLURM_NTASKS=8 (srun (Slurm))", "unset"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  text = refused(with(script, kMpirun));
  EXPECT_TRUE(has(text, "OMPI_COMM_WORLD_RANK=3, OMPI_COMM_WORLD_SIZE=8")) << text;
  text = refused(with({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, kHydra));
  EXPECT_TRUE(has(text, "OMPI_COMM_WORLD_SIZE=4") && has(text, "PMI_SIZE=8")) << text;
  EXPECT_TRUE(has(refused(with(kMpirun, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}})), "SLURM_PROCID=0"));
}

// srun --ntasks-per-node=1 torchrun ..., and mpirun in the same place.
TEST(LaunchEnvironment, WhatStartedTorchrunSpeaksOfTorchrun) {
  const Variables node = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}};
  EXPECT_EQ(read(with(kTorchrun, node)).rank, 3);
  EXPECT_EQ(read(with(kTorchrun, {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}})).ranks, 8);
}

// mpirun on several nodes of a job: its daemons are tasks of srun, a task a node.
TEST(LaunchEnvironment, InASlurmJobMpirunSpeaksForItsRanks) {
  const Variables daemon = {
      {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}};
  EXPECT_EQ(read(with(kMpirun, daemon)).launcher, Launcher::open_mpi);
  EXPECT_EQ(read(with(kHydra, daemon)).rank, 3);
  EXPECT_EQ(read(with(kMpirun, kBatchShell)).rank, 3);
}

TEST(LaunchEnvironment, AShellOfSbatchOrSallocIsNoRank) {
  for (Variables shell : {kBatchShell, Variables{{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "71"}},  // salloc
                          Variables{{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "71"}}}) {  // sbatch --nodes alone
    const Launch launch = read(shell);
    EXPECT_EQ(launch.launcher, Launcher::none);
    EXPECT_EQ(launch.ranks, 1);
    EXPECT_TRUE(launch.slurm_shell);
  }
  EXPECT_FALSE(read(kSrun).slurm_shell);
  EXPECT_TRUE(read(with({{"RANK", "3"}, {"WORLD_SIZE", "8"}}, kBatchShell)).slurm_shell);
}

TEST(LaunchEnvironment, HalfAPairIsRefused) {
  const std::vector<std::pair<std::string, std::string>> pairs = {{"RANK", "WORLD_SIZE"},
                                                                  {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                                  {"PMI_RANK", "PMI_SIZE"},
                                                                  {"SLURM_PROCID", "SLURM_NTASKS"}};
  for (const auto& [rank, ranks] : pairs) {
    EXPECT_TRUE(has(refused({{rank, "1"}}), rank + "=1 but no " + ranks)) << refused({{rank, "1"}});
    EXPECT_TRUE(has(refused({{ranks, "2"}}), ranks + "=2 but no " + rank)) << refused({{ranks, "2"}});
  }
  EXPECT_NE(refused({{"SLURM_PROCID", "1"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}}), "");
}

TEST(LaunchEnvironment, WhatIsNoNumberIsRefused) {
  for (const char* value : {"", " ", "x", "1x", "1.0", "0x1", "+1", " 1", "1 ", "one"}) {
    const std::string text = refused({{"RANK", value}, {"WORLD_SIZE", "2"}});
    EXPECT_TRUE(has(text, "RANK=" + std::string(value) + " in the environment is no whole number")) << text;
  }
  EXPECT_TRUE(has(refused({{"RANK", "0"}, {"WORLD_SIZE", "two"}}), "WORLD_SIZE=two"));
  EXPECT_TRUE(has(refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "a"}}), "LOCAL_RANK=a"));
}

TEST(LaunchEnvironment, WhatIsOutOfRangeIsRefused) {
  EXPECT_TRUE(has(refused({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK=2, WORLD_SIZE=2"));
  EXPECT_TRUE(has(refused({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), "RANK=-1"));
  EXPECT_TRUE(has(refused({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE=0"));
  EXPECT_TRUE(has(refused({{"RANK", "0"}, {"WORLD_SIZE", "99999999999999999999"}}), "out of range"));
  EXPECT_TRUE(has(refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}}), "LOCAL_RANK=2"));
  EXPECT_EQ(refused({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}), "");
}

TEST(LaunchEnvironment, AllProblemsAreReportedAtOnce) {
  const std::string text = refused({{"RANK", "x"}, {"WORLD_SIZE", "-3"}, {"SLURM_PROCID", "1"}, {"MASTER_PORT", "0"}});
  for (const char* part : {"RANK=x", "WORLD_SIZE=-3", "SLURM_PROCID=1 but no SLURM_NTASKS", "MASTER_PORT=0"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
}

TEST(LaunchEnvironment, TheMeetingPlaceComesFromAnyLauncher) {
  EXPECT_EQ(read(kTorchrun).master_address, "10.0.0.1");
  EXPECT_EQ(read(kTorchrun).master_port, 1234);
  const Launch slurm = read(with(kSrun, {{"MASTER_ADDR", "node1"}}));
  EXPECT_EQ(slurm.master_address, "node1");
  EXPECT_EQ(slurm.master_port, 29500) << "torchrun's default";
  EXPECT_EQ(read(with(kSrun, {{"MASTER_PORT", "65535"}})).master_port, 65535);
  for (const char* port : {"0", "65536", "-1", "http", ""})
    EXPECT_TRUE(has(refused({{"MASTER_PORT", port}}), "MASTER_PORT=")) << port;
  EXPECT_TRUE(has(refused({{"MASTER_ADDR", ""}}), "MASTER_ADDR"));
}

std::string mismatch(const Launch& launch, std::int64_t ranks) {
  try {
    check_ranks(launch, ranks);
    return "";
  } catch (const InputError& error) {
    return error.diagnostics().front().text();
  }
}

TEST(LaunchEnvironment, AnotherNumberOfRanksThanTheScenariosSaysBoth) {
  EXPECT_EQ(mismatch(read(kTorchrun), 8), "");
  const std::string text = mismatch(read(kTorchrun), 4);
  for (const char* part : {"the scenario has 4 ranks", "torchrun started 8 processes", "RANK=3, WORLD_SIZE=8",
                           "start 4 processes or set cluster.gpus=8"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_EQ(mismatch(read({}), 1), "");
  EXPECT_TRUE(has(mismatch(read({}), 4), "started alone")) << mismatch(read({}), 4);
  EXPECT_TRUE(has(mismatch(read(kBatchShell), 4), "start it with srun -n 4")) << mismatch(read(kBatchShell), 4);
}

TEST(LaunchEnvironment, TheProcessEnvironmentIsRead) {
  setenv("REHEARSE_TEST_VARIABLE", "7", 1);
  EXPECT_EQ(process_environment()("REHEARSE_TEST_VARIABLE"), "7");
  unsetenv("REHEARSE_TEST_VARIABLE");
  EXPECT_FALSE(process_environment()("REHEARSE_TEST_VARIABLE"));
}

}  // namespace
}  // namespace rehearse::execute
