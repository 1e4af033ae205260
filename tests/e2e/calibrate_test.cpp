// rehearse calibrate as a user meets it: a file that holds the named program's kernels, its place, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

std::set<std::string> shapes_of(const Json& file, const std::string& origin) {
  std::set<std::string> shapes;
  for (const Json& k : file["kernels"])
    if (k["origin"] == origin) shapes.insert(k["kind"].get<std::string>() + " " + k["shape"].get<std::string>());
  return shapes;
}

TEST(Calibrate, TheFileHoldsTheProgramsKernelsAndTransfers) {
  const Folder folder;
  const std::string path = folder / "new/host.json";
  const Outcome r = run({"calibrate", "--budget", "8", "--for", "gpt-tiny-ddp", "-o", path});
  ASSERT_EQ(r.status, 0) << r.err;
  for (const char* part : {"GFLOP/s", "GB/s", "Dispatch", "Wake", "All-reduce", "host.json"})
    EXPECT_TRUE(has(r.out, part)) << part << "\n" << r.out;
  const Json file = Json::parse(read(path));
  EXPECT_EQ(file["schema"], "rehearse.calibration/1");
  EXPECT_EQ(file["made"]["command"], "rehearse calibrate --budget 8 --for gpt-tiny-ddp");
  const auto shapes = shapes_of(file, "program");
  // Two sequences of 128 tokens, width 128: the first matmul of a layer, attention, and the loss over 256 bytes.
  for (const char* shape : {"gemm m=256 n=384 k=128 transpose_b bias", "cross_entropy_forward rows=256 cols=256",
                            "flash_attention_forward micro_batch=2 heads=4 seq=128 head_dim=32 causal"})
    EXPECT_TRUE(shapes.contains(shape)) << shape;
  bool reduced = false;
  for (const Json& t : file["transfers"]) reduced |= t["kind"] == "all_reduce" && t["ranks"] == 2;
  EXPECT_TRUE(reduced);
  EXPECT_GT(file["peak_flops"], 0);
  EXPECT_GT(file["memory_bandwidth"], 0);
  EXPECT_EQ(file["sharing"].size(), 9u);
}

TEST(Calibrate, ByDefaultTheFileIsInTheUsersCacheAndAddKeepsWhatItHas) {
  const Folder folder;
  const Outcome first =
      shell("XDG_CACHE_HOME=" + (folder / "cache") + " $REHEARSE calibrate --budget 4 --for cnn-cifar-ddp --json");
  ASSERT_EQ(first.status, 0) << first.err;
  ASSERT_EQ(folder.files().size(), 1u);
  const std::string path = folder / folder.files().front();
  EXPECT_TRUE(has(path, "/cache/rehearse/calibration-")) << path;
  EXPECT_EQ(read(path), first.out);
  const auto before = shapes_of(Json::parse(first.out), "program");
  const Outcome second = run({"calibrate", "--budget", "4", "--for", "gpt-tiny-ddp", "--add", "-o", path});
  ASSERT_EQ(second.status, 0) << second.err;
  const auto after = shapes_of(Json::parse(read(path)), "program");
  EXPECT_GT(after.size(), before.size());
  EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
}

TEST(Calibrate, AFileOfAnotherMachineIsTakenButNotInSilence) {
  const Folder folder;
  const std::string path = folder / "host.json";
  ASSERT_EQ(run({"calibrate", "--budget", "6", "-o", path}).status, 0);
  const Outcome own = run({"simulate", "gpt-tiny-ddp", "--calibration", path});
  EXPECT_EQ(own.status, 0) << own.err;
  EXPECT_EQ(own.err, "");
  Json file = Json::parse(read(path));
  file["host"]["name"] = "elsewhere";
  const Outcome other = run({"simulate", "gpt-tiny-ddp", "--calibration", folder.write("other.json", file.dump(1))});
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_TRUE(has(other.err, "other.json is of another machine than this: elsewhere, ")) << other.err;
}

TEST(Calibrate, AnInterruptLeavesTheOldFile) {
  const Folder folder;
  const std::string path = folder.write("host.json", "old");
  // A shell without job control starts background programs deaf to SIGINT; timeout does not, and in the foreground
  // sends it once, where otherwise a second one, to all of its group, would end the program at once.
  const Outcome r = shell("timeout --foreground --preserve-status -s INT 2 $REHEARSE calibrate --budget 60 -o " + path);
  EXPECT_EQ(r.status, 130) << r.err;
  EXPECT_TRUE(has(r.err, "interrupted")) << r.err;
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(folder.files().size(), 1u) << "nothing half-written is left";
}

TEST(Calibrate, WhatCannotBeMeasuredExits2AndSaysWhy) {
  const Folder folder;
  const std::string path = folder / "host.json";
  const Outcome cuda = run({"calibrate", "--device", "cuda", "-o", path});
  EXPECT_EQ(cuda.status, 2);
  EXPECT_TRUE(has(cuda.err, "no CUDA device: ")) << cuda.err;
  const Outcome unknown = run({"calibrate", "--for", "gpt-tiny-dpd", "-o", path});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_TRUE(has(unknown.err, "did you mean 'gpt-tiny-ddp'?")) << unknown.err;
  const Outcome set = run({"calibrate", "--set", "plan.tensor=2", "-o", path});
  EXPECT_EQ(set.status, 2);
  EXPECT_TRUE(has(set.err, "there are none")) << set.err;
  const Outcome name = run({"calibrate", "-o", folder / "host.yaml"});
  EXPECT_EQ(name.status, 2);
  EXPECT_TRUE(has(name.err, "ending in .json")) << name.err;
  const Outcome other = run({"calibrate", "--add", "-o", folder.write("old.json", "{\"schema\": \"x\"}")});
  EXPECT_EQ(other.status, 2);
  EXPECT_TRUE(has(other.err, "rehearse calibrate")) << other.err;
  EXPECT_EQ(folder.files().size(), 1u) << "none of them wrote";
}

}  // namespace
}  // namespace rehearse::e2e
