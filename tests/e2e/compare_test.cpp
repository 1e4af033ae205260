// rehearse compare as a user meets it: a plan performed and simulated, two plans, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "program.h"
#include "tests/support/small_gpt.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

TEST(Compare, ASimulatedAndAMeasuredRunOfOneScenario) {
  const Folder folder;
  ASSERT_EQ(run({"execute", "gpt-tiny-ddp", "--steps", "4", "-o", folder / "M"}).status, 0);
  ASSERT_EQ(run({"simulate", "gpt-tiny-ddp", "--calibration", "h100-sxm", "-o", folder / "S"}).status, 0);
  const Outcome r = run({"compare", folder / "S", folder / "M", "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.err, "");
  for (const char* part : {"The same program: all ", "Measured ", "gemm", "all_reduce data", "backward", "stage 0",
                           "exposed data", "Loss, measured: ", "Prediction error", "cluster.device"})
    EXPECT_TRUE(has(r.out, part)) << part << "\n" << r.out;
  std::size_t start = 0;
  for (std::size_t end; (end = r.out.find('\n', start)) != std::string::npos; start = end + 1)
    EXPECT_LE(end - start, 80u) << r.out.substr(start, end - start);
  const Json written = Json::parse(read(folder / "out/compare.json"));
  EXPECT_EQ(written["ops"]["first_only"], 0);
  EXPECT_EQ(written["ops"]["second_only"], 0);
  EXPECT_EQ(written["first"]["label"], "simulated");
  double sum = 0;
  for (const auto& line : written["account"]) sum += line["difference_s"].get<double>();
  EXPECT_NEAR(sum, written["step_time"]["difference_s"].get<double>(), 1e-12);
  const std::string csv = read(folder / "out/compare.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), written["ops"]["matched"].get<int>() + 1);
}

TEST(Compare, JsonAloneOnStandardOutput) {
  const Folder folder;
  const std::string scenario = folder.write("s.yaml", kSmallGpt);
  ASSERT_EQ(run({"simulate", scenario, "-o", folder / "a"}).status, 0);
  ASSERT_EQ(run({"simulate", scenario, "--set", "plan.pipeline=1", "-o", folder / "b"}).status, 0);
  const Outcome r = run({"compare", folder / "a", folder / "b", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json d = Json::parse(r.out);
  EXPECT_EQ(d["schema"], "rehearse.compare/1");
  EXPECT_GT(d["ops"]["first_only"].get<int>(), 0);
  EXPECT_TRUE(std::any_of(d["keys"].begin(), d["keys"].end(),
                          [](const Json& k) { return k["key"] == "plan.pipeline" && k["first"] == "2"; }));
  EXPECT_TRUE(has(run({"compare", folder / "a", folder / "b"}).out, "Another program: "));
}

TEST(Compare, ResultsOfDifferentModelsAreRefusedUnlessForced) {
  const Folder folder;
  const std::string small = folder.write("small.yaml", kSmallGpt);
  ASSERT_EQ(run({"simulate", small, "-o", folder / "A"}).status, 0);
  ASSERT_EQ(run({"simulate", small, "--set", "model.layers=4", "--set", "model.name=other", "-o", folder / "B"}).status,
            0);
  const Outcome refused = run({"compare", folder / "A", folder / "B"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(has(refused.err, "the results are of different models, gpt (")) << refused.err;
  EXPECT_EQ(run({"compare", folder / "A", folder / "B", "--force"}).status, 0);
}

TEST(Compare, WhatIsNoResultIsRefusedWithBothProblems) {
  const Folder folder;
  std::filesystem::create_directory(folder / "empty");
  const Outcome r = run({"compare", folder / "none", folder / "empty"});
  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(r.out, "");
  EXPECT_TRUE(has(r.err, "none: error: no such directory")) << r.err;
  EXPECT_TRUE(has(r.err, "empty/result.json: error: no such file")) << r.err;
  EXPECT_EQ(run({"compare", folder / "none"}).status, 2) << "one directory is not enough";
}

TEST(Compare, ABrokenFileIsNamedWithItsLine) {
  const Folder folder;
  const std::string scenario = folder.write("s.yaml", kSmallGpt);
  ASSERT_EQ(run({"simulate", scenario, "-o", folder / "a"}).status, 0);
  const std::string ops = read(folder / "a/ops.csv");
  folder.write("a/ops.csv", ops + "nonsense\n");
  const Outcome rows = run({"compare", folder / "a", folder / "a"});
  EXPECT_EQ(rows.status, 2);
  const auto line = std::count(ops.begin(), ops.end(), '\n') + 1;
  const auto columns = std::count(ops.begin(), std::find(ops.begin(), ops.end(), '\n'), ',') + 1;
  EXPECT_TRUE(has(rows.err, "a/ops.csv:" + std::to_string(line) + ":1: error: expected " + std::to_string(columns) +
                                " fields, found 1"))
      << rows.err;
  folder.write("a/ops.csv", ops);
  folder.write("a/result.json", "{\"schema\": \"rehearse.ledger/1\"}");
  const Outcome schema = run({"compare", folder / "a", folder / "a"});
  EXPECT_EQ(schema.status, 2);
  EXPECT_TRUE(has(schema.err, "schema: expected \"rehearse.result/1\", found \"rehearse.ledger/1\"")) << schema.err;
}

TEST(Compare, AFileInTheWayOfTheOutputIsRefusedFirst) {
  const Folder folder;
  const std::string file = folder.write("file", "mine");
  const Outcome r = run({"compare", folder / "none", folder / "none", "-o", file});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "-o: ")) << r.err;
  EXPECT_EQ(read(file), "mine");
}

}  // namespace
}  // namespace rehearse::e2e
