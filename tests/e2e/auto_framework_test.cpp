// framework: auto as a user meets it: what the table, result.json, the page and sweeps say of the profile that was
// chosen, and that what is performed is the ideal one.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

constexpr char kUnnamed[] = R"(rehearse: 1
name: unnamed
model: {family: gpt, layers: 4, hidden: 512, heads: 8, vocab: 8192, max_seq_len: 256}
cluster: {topology: dgx-a100, gpus: 4}
plan: {tensor: 2, micro_batch: 1}
training: {global_batch: 8, seq_len: 256}
)";

TEST(AutoFramework, ResultTableAndPageNameItAndTheIdealStep) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", kUnnamed);
  const Outcome table = run({"simulate", file, "-o", folder / "out"});
  ASSERT_EQ(table.status, 0) << table.err;
  EXPECT_TRUE(has(table.out, "Framework: megatron-core, chosen automatically: a transformer with tensor")) << table.out;
  EXPECT_TRUE(has(table.out, "The ideal, framework: rehearse,")) << table.out;
  const nlohmann::json result = nlohmann::json::parse(read(folder / "out/result.json"));
  EXPECT_EQ(result["scenario"]["framework"], "megatron-core");
  EXPECT_EQ(result["scenario"]["framework.chosen"],
            "automatically: a transformer with tensor, pipeline, context or expert parallelism");
  const Outcome ideal = run({"simulate", file, "--set", "framework=rehearse", "--json"});
  ASSERT_EQ(ideal.status, 0) << ideal.err;
  const nlohmann::json named = nlohmann::json::parse(ideal.out);
  EXPECT_EQ(result["ideal"]["step_time_s"], named["step_time_s"]);
  EXPECT_LT(named["step_time_s"], result["step_time_s"]);
  EXPECT_FALSE(named.contains("ideal") || named["scenario"].contains("framework.chosen"));
  const Outcome page = run({"report", folder / "out", "-o", folder / "page.html"});
  ASSERT_EQ(page.status, 0) << page.err;
  EXPECT_TRUE(has(read(folder / "page.html"), "Framework: megatron-core, chosen automatically"));
  EXPECT_TRUE(has(read(folder / "page.html"), "The ideal, framework: rehearse, takes "));
}

TEST(AutoFramework, SweepSaysWherePlansDifferInIt) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", kUnnamed);
  const Outcome both = run({"simulate", file, "--sweep", "plan.tensor=1,2", "-o", folder / "out"});
  ASSERT_EQ(both.status, 0) << both.err;
  EXPECT_TRUE(has(both.out, "Framework: chosen automatically for each plan")) << both.out;
  EXPECT_TRUE(has(both.out, "torch-ddp") && has(both.out, "megatron-core")) << both.out;
  EXPECT_TRUE(has(read(folder / "out/sweep.csv"), ",torch-ddp,")) << read(folder / "out/sweep.csv");
  const Outcome alike = run({"simulate", file, "--sweep", "plan.tensor=2,4"});
  EXPECT_TRUE(has(alike.out, "Framework: megatron-core, chosen automatically.")) << alike.out;
  const Outcome named = run({"simulate", file, "--set", "framework=rehearse", "--sweep", "plan.tensor=1,2", "--json"});
  for (const nlohmann::json& row : nlohmann::json::parse(named.out)) EXPECT_EQ(row["framework"], "rehearse");
}

TEST(AutoFramework, KeyValueHeadsOnSeveralRanksAreTheIdeals) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", kUnnamed);
  for (const std::string heads : {"1", "2"}) {
    const std::string keys = "model.kv_heads=" + heads;
    const Outcome r = run({"simulate", file, "--set", keys, "--set", "plan.tensor=4"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_TRUE(
        has(r.out, "Framework: rehearse, chosen automatically: no other profile's framework has a\nkey-value head"))
        << r.out;
    const Outcome best = run({"plan", file, "--set", keys, "--fix", "plan.tensor=4", "-o", folder / ("plan" + heads)});
    EXPECT_EQ(best.status, 0) << best.err;
  }
  const Outcome own = run({"simulate", file, "--set", "model.kv_heads=2", "--set", "plan.tensor=2"});
  EXPECT_TRUE(has(own.out, "Framework: megatron-core, chosen automatically")) << own.out;
}

TEST(AutoFramework, WhatIsPerformedIsTheIdeal) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", kUnnamed);
  const Outcome r = run({"execute", file, "--device", "cpu", "--steps", "2", "--set", "model.hidden=32", "--set",
                         "model.vocab=256", "--set", "training.seq_len=16", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(nlohmann::json::parse(r.out)["scenario"]["framework"], "rehearse");
}

TEST(AutoFramework, InitWritesItAndWhatItStandsForNow) {
  const Outcome r = run({"init", "-", "--model", "llama2-7b", "--gpus", "8"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "\nframework: auto\n")) << r.out;
  EXPECT_TRUE(has(r.out, "# Now torch-fsdp2.") || has(r.out, "# Now torch-ddp.") || has(r.out, "# Now megatron-core."))
      << r.out;
}

}  // namespace
}  // namespace rehearse::e2e
