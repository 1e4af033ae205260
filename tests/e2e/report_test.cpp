// rehearse report as a user runs it: the page of one and of several results, and messages for what can go wrong.
#include <gtest/gtest.h>

#include "program.h"

namespace rehearse::e2e {
namespace {

constexpr char kScenario[] = R"(rehearse: 1
framework: rehearse
name: small "quoted" <b>
model: {family: gpt, layers: 4, hidden: 512, heads: 8, kv_heads: 8, ffn_hidden: 2048, vocab: 8192, max_seq_len: 256}
cluster: {topology: dgx-a100, gpus: 8}
plan: {tensor: 2, pipeline: 2, micro_batch: 1, zero: 1, schedule: 1f1b}
training: {global_batch: 16, seq_len: 256, precision: bf16}
)";

TEST(Report, OnePageOfOneResult) {
  const Folder folder;
  const std::string scenario = folder.write("small.yaml", kScenario), out = folder / "out";
  ASSERT_EQ(run({"simulate", scenario, "-o", out}).status, 0);
  const Outcome r = run({"report", out});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out, "");
  const std::string page = read(out + "/report.html");
  EXPECT_TRUE(has(page, "small &quot;quoted&quot; &lt;b&gt;"));
  EXPECT_TRUE(has(page, "A step takes "));
  EXPECT_TRUE(has(page, "stage 1, replica 1: ranks 6–7, layers 3–4"));
  ASSERT_EQ(run({"report", out, "-o", folder / "again.html"}).status, 0);
  EXPECT_TRUE(read(folder / "again.html") == page) << "the same result gives the same bytes";
}

TEST(Report, WithoutAScriptThePageIsStatic) {
  const Folder folder;
  const std::string scenario = folder.write("small.yaml", kScenario), out = folder / "out", page = folder / "p.html";
  ASSERT_EQ(run({"simulate", scenario, "-o", out}).status, 0);
  ASSERT_EQ(run({"report", out, out, "--static", "-o", page}).status, 0);
  EXPECT_FALSE(has(read(page), "<script"));
  EXPECT_TRUE(has(read(page), "small, simulated 2"));
}

TEST(Report, SaysWhatIsWrongAndWritesNothing) {
  const Folder folder;
  const std::string page = folder / "page.html";
  const Outcome none = run({"report", folder / "absent", folder / "absent too", "-o", page});
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(has(none.err, "absent/") || has(none.err, "absent:")) << none.err;
  EXPECT_TRUE(has(none.err, "absent too")) << "all problems at once: " << none.err;
  EXPECT_EQ(run({"report"}).status, 2);
  EXPECT_TRUE(folder.files().empty());
  const std::string scenario = folder.write("small.yaml", kScenario), out = folder / "out";
  ASSERT_EQ(run({"simulate", scenario, "-o", out}).status, 0);
  EXPECT_EQ(run({"report", out, "-o", out}).status, 2) << "a directory is no page";
  EXPECT_EQ(run({"report", out, "-o", out + "/result.json"}).status, 2);
  EXPECT_EQ(run({"report", out, "-o", folder / "no/such/folder.html"}).status, 2);
  EXPECT_TRUE(has(read(out + "/result.json"), "rehearse.result/1"));
}

}  // namespace
}  // namespace rehearse::e2e
