// What a command leaves that is ended while it writes, or that may not write as much as it has to: nothing
// half-written, nothing temporary, what was there before.
#include <gtest/gtest.h>

#include "program.h"

namespace rehearse::e2e {
namespace {

constexpr char kPlan[] = R"(rehearse: 1
name: plan
model: {family: gpt, layers: 8, hidden: 1024, heads: 16, vocab: 51200, max_seq_len: 1024}
cluster: {topology: dgx-a100, gpus: 8}
plan: {tensor: 2, pipeline: 2}
training: {global_batch: 64}
)";

struct Signal {
  const char* name;
  int status;
};

// Sends `signal` as soon as there is a file whose name matches `begun` and waits for the end.
std::string ended_when(const std::string& begun, const std::string& command, const std::string& signal) {
  return "set -m; " + command + " >log 2>err & P=$!; until compgen -G '" + begun +
         "' >/dev/null; do kill -0 $P 2>/dev/null || { cat err >&2; exit 99; }; sleep 0.005; done; kill -" + signal +
         " $P; wait $P 2>/dev/null; S=$?; rm -f log; cat err >&2; rm err; exit $S";
}

TEST(Ended, WhileAResultIsWrittenLeavesNothing) {
  for (const Signal& signal : {Signal{"INT", 130}, Signal{"TERM", 143}, Signal{"HUP", 129}, Signal{"XCPU", 152}}) {
    const Folder folder;
    const Outcome r =
        shell("cd " + folder / "" + "; " +
              ended_when(
                  "out/*.tmp",
                  "$REHEARSE simulate gpt3-175b-1024xa100 --set cluster.gpus=64 --set training.global_batch=192 -o out",
                  signal.name));
    if (r.status == 99 || r.status == 0) continue;  // it was faster than we
    EXPECT_EQ(r.status, signal.status) << r.err;
    EXPECT_EQ(folder.files(), std::vector<std::string>{});
    EXPECT_FALSE(std::filesystem::exists(folder / "out")) << "made for what then was not written";
  }
}

TEST(Ended, WhileThisMachineIsMeasuredLeavesNoTemporaryFile) {
  for (const char* command : {"calibrate --budget 60 -o c.json", "validate --local --filter ddp", "demo"}) {
    const Folder folder;
    const Outcome r = shell("cd " + folder / "" + "; mkdir t; TMPDIR=$PWD/t timeout --preserve-status 3 $REHEARSE " +
                            command + " >/dev/null; S=$?; ls t; exit $S");
    EXPECT_EQ(r.status, 143) << command << r.err;
    EXPECT_EQ(r.out, "") << command;
    for (const std::string& file : folder.files()) EXPECT_FALSE(has(file, ".tmp") || has(file, "c.json")) << file;
  }
}

TEST(Limited, FilesThatMayNotBecomeAsLargeAsNeededAreAnError) {
  const Folder folder;
  const std::string scenario = folder.write("plan.yaml", kPlan);
  ASSERT_EQ(run({"simulate", scenario, "-o", folder / "full"}).status, 0);
  for (const std::string command : {"simulate plan.yaml -o out", "report full -o page.html", "compare full full -o out",
                                    "validate --filter 22b -o out"}) {
    const Outcome r = shell("cd " + folder / "" + "; ulimit -f 1; $REHEARSE " + command);
    if (r.status == 0 && command.starts_with("validate")) continue;  // small enough
    EXPECT_EQ(r.status, 1) << command << r.err;
    EXPECT_TRUE(has(r.err, "File too large") && has(r.err, "ulimit -f")) << r.err;
    for (const std::string& file : folder.files())
      EXPECT_TRUE(file == "plan.yaml" || file.starts_with("full/")) << command << " left " << file;
  }
}

// An unset variable of a script: "$DATA".
TEST(EmptyNames, OfFilesAreNoDefaults) {
  const Folder folder;
  const std::string scenario = folder.write("plan.yaml", kPlan);
  for (const std::string command :
       {"execute gpt-tiny-ddp --steps 1 --data ''", "execute gpt-tiny-ddp --steps 1 --ranks gloo --rendezvous ''",
        "execute gpt-tiny-ddp --steps 1 --ranks gloo --interface ''", "calibrate --budget 1 -o ''", "report x -o ''",
        "simulate plan.yaml -o ''", "simulate plan.yaml --calibration ''", "validate -o ''", "validate --throughput ''",
        "demo -o ''"}) {
    const Outcome r = shell("cd " + folder / "" + "; timeout 30 $REHEARSE " + command);
    EXPECT_EQ(r.status, 2) << command << r.err;
    EXPECT_TRUE(has(r.err, "is empty")) << command << r.err;
    EXPECT_EQ(r.out, "");
  }
}

}  // namespace
}  // namespace rehearse::e2e
