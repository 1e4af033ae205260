// What `cmake --install` makes: a tree whose program finds its data from its own place, wherever the tree is, without
// the environment; a static program also where there is nothing else at all.
#include <gtest/gtest.h>

#include <filesystem>

#include "program.h"

namespace rehearse::e2e {
namespace {

namespace fs = std::filesystem;

// Installs the build this test is of below `prefix`.
Outcome install(const std::string& prefix) {
  const std::string build = fs::path(REHEARSE_BINARY).parent_path().parent_path().string();
  return shell("cmake --install '" + build + "' --prefix '" + prefix + "' >/dev/null");
}

TEST(Install, TheTreeWorksWhereverItIsMoved) {
  const Folder folder;
  ASSERT_EQ(install(folder / "first").status, 0);
  for (const char* file :
       {"bin/rehearse", "share/rehearse/topologies/dgx-a100.yaml", "share/rehearse/scenarios/models/gpt-tiny.yaml",
        "share/rehearse/scenarios/schema.json", "share/rehearse/calibrate/devices/a100-sxm-80g.gemm.csv",
        "share/doc/rehearse/docs/scenario.md"})
    EXPECT_TRUE(fs::exists(fs::path(folder / "first") / file)) << file;
  fs::create_directories(folder / "else where");
  fs::rename(folder / "first", folder / "else where/second");
  const std::string program = "env -i '" + (folder / "else where/second/bin/rehearse") + "' ";
  const Outcome listed = shell("cd / && " + program + "list scenarios --names");
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_TRUE(has(listed.out, "llama2-7b-8xa100\n")) << listed.out;
  const Outcome simulated = shell("cd / && " + program + "simulate llama2-7b-8xa100 --json");
  EXPECT_EQ(simulated.status, 0) << simulated.err;
  EXPECT_TRUE(has(simulated.out, "\"file\": \"scenarios/llama2-7b-8xa100.yaml\"")) << "no path of this machine";
}

TEST(Install, AProgramThatIsLinkedToFindsItsData) {
  const Folder folder;
  ASSERT_EQ(install(folder / "tree").status, 0);
  fs::create_symlink(folder / "tree/bin/rehearse", folder / "link");
  EXPECT_EQ(shell("cd / && env -i '" + (folder / "link") + "' list frameworks").status, 0);
  fs::remove_all(folder / "tree/share");
  const Outcome r = shell("cd / && env -i '" + (folder / "link") + "' list models");
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "set REHEARSE_ROOT to it")) << r.err;
}

TEST(Install, AStaticProgramNeedsNothingElse) {
  if (!has(run({"--version"}).out, "statically linked")) GTEST_SKIP() << "not a REHEARSE_STATIC build";
  const Folder folder;
  ASSERT_EQ(install(folder / "tree").status, 0);
  const Outcome r = shell("unshare --user --map-root-user chroot '" + (folder / "tree") +
                          "' /bin/rehearse simulate llama2-7b-8xa100 || exit 77");
  if (r.status == 77 && has(r.err, "unshare")) GTEST_SKIP() << "no user namespaces here: " << r.err;
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "MFU")) << r.out;
}

}  // namespace
}  // namespace rehearse::e2e
