// Input that means ill: what reaches the terminal, and what discover makes of numbers that cannot be.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/e2e/program.h"

namespace rehearse::e2e {
namespace {

const std::string kHostileInputs = std::string(REHEARSE_SOURCE_DIR) + "/tests/unit/formats/";

// C0 but line feed and tab, DEL, C1 and what turns the direction of text, as UTF-8.
const std::regex kHarmful(
    "[\x01-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]|\xd8\x9c");

void expect_harmless(const Outcome& r) {
  EXPECT_FALSE(std::regex_search(r.out, kHarmful)) << r.out;
  EXPECT_FALSE(std::regex_search(r.err, kHarmful)) << r.err;
}

const std::string kName = "a\u009b31mred\u202egnp.exe\u2066x\u200fy";
const std::string kYamlName = "\"" + kName + "\"";

TEST(HostileNames, NothingOfAScenarioDrivesTheTerminal) {
  const Folder folder;
  const std::string scenario =
      folder.write("s\u009b31m.yaml",
                   "rehearse: 1\nname: " + kYamlName + "\nmodel: gpt-tiny\ncluster: {topology: dgx-a100, gpus: 8}\n");
  const Outcome table = run({"simulate", scenario, "-o", folder / "out\u202e"});
  ASSERT_EQ(table.status, 0) << table.err;
  expect_harmless(table);
  EXPECT_TRUE(has(table.out, "a?31mred?gnp.exe")) << table.out;
  const Outcome json = run({"simulate", scenario, "--json"});
  expect_harmless(json);
  EXPECT_EQ(nlohmann::json::parse(json.out)["scenario"]["name"], kName) << "JSON escapes lose nothing";
  expect_harmless(run({"compare", folder / "out\u202e", folder / "out\u202e"}));
  expect_harmless(run({"simulate", scenario, "--sweep", "plan.zero=0,1", "--sweep", "name=" + kYamlName}));
  expect_harmless(run({"simulate", scenario, "--set", "plan." + kName + "=1"}));
  expect_harmless(run({"execute", scenario, "--steps", "1", "--set", "cluster.topology=local"}));
  const Outcome report = run({"report", folder / "out\u202e", "-o", folder / "page\u202e.html"});
  ASSERT_EQ(report.status, 0) << report.err;
  expect_harmless(report);
  const std::string page = read(folder / "page\u202e.html");
  EXPECT_TRUE(has(page, "a?31mred?gnp.exe?x?y"));
  EXPECT_FALSE(has(page, "\u202e")) << "a page misleads as a terminal does";
}

TEST(HostileNames, NothingOfACommandLineDrivesTheTerminal) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"simulate", kName},
                                                    {"explain", kName},
                                                    {kName},
                                                    {"simulate", "--" + kName},
                                                    {"report", kName},
                                                    {"discover", kName},
                                                    {"init", "--model", kName},
                                                    {"simulate",
                                                     "\x9b"
                                                     "31m"}}) {
    const Outcome r = run(arguments);
    EXPECT_EQ(r.status, 2);
    expect_harmless(r);
    EXPECT_EQ(r.err.find('\x9b'), std::string::npos) << "a byte that is no UTF-8";
  }
}

TEST(HostileNames, NothingOfAFabricDrivesTheTerminal) {
  const Folder folder;
  std::string fabric = read(kHostileInputs + "three-levels.ibnet.txt");
  const std::size_t host = fabric.find("node-10");
  ASSERT_NE(host, std::string::npos);
  for (std::size_t at = host; at != std::string::npos; at = fabric.find("node-10", at + 1))
    fabric.replace(at, 7, "no\u009bde\u202e-10");
  const Outcome r = run({"discover", folder.write("f.txt", fabric)});
  ASSERT_EQ(r.status, 0) << r.err;
  expect_harmless(r);
}

TEST(HostileNumbers, WhatDiscoverWritesReadsBack) {
  const Folder folder;
  const std::string good = read(kHostileInputs + "dgx-h100.xml"), out = folder / "t.yaml";
  std::string slow = good;
  slow.replace(slow.find("latency=\"0\""), 11, "latency=\"1e30\"");
  const Outcome r = run({"discover", folder.write("n.xml", slow), "-o", out});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(std::regex_search(r.err, std::regex("n\\.xml:14:\\d+: error: latency is '1e30'"))) << r.err;
  EXPECT_FALSE(std::filesystem::exists(out));
  const Outcome device = run({"discover", kHostileInputs + "dgx-h100.xml", "--device", "h100: sxm", "-o", out});
  EXPECT_EQ(device.status, 2) << device.err;
  EXPECT_TRUE(has(device.err, "makes no topology that can be simulated")) << device.err;
  EXPECT_EQ(folder.files(), std::vector<std::string>{"n.xml"});
}

TEST(HostileNumbers, AFabricsNumbersAreErrorsOfTheFile) {
  const Folder folder;
  std::string fabric = read(kHostileInputs + "three-levels.ibnet.txt");
  fabric.replace(fabric.find("4xNDR"), 5, "99999999999999xHDR");
  const Outcome r = run({"discover", folder.write("f.txt", fabric)});
  EXPECT_EQ(r.status, 2) << r.err;
  EXPECT_TRUE(std::regex_search(r.err, std::regex("f\\.txt:\\d+:\\d+: error: lanes 99999999999999, expected 1 to 12")))
      << r.err;
}

TEST(HostileNumbers, AResultsNumbersAreErrorsOfTheFile) {
  const Folder folder;
  ASSERT_EQ(run({"simulate", "gpt-tiny-ddp", "--set", "cluster.topology=dgx-a100", "-o", folder / "r"}).status, 0);
  const std::string json = read(folder / "r/result.json"), ops = read(folder / "r/ops.csv");
  const auto expect = [&](const std::string& what, const std::string& place) {
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"report", folder / "r", "-o", folder / "p.html"},
          {"compare", folder / "r", folder / "r"}}) {
      const Outcome r = run(arguments);
      EXPECT_EQ(r.status, 2) << what << r.err;
      EXPECT_TRUE(std::regex_search(r.err, std::regex(place))) << what << r.err;
      EXPECT_FALSE(has(r.err, "internal")) << r.err;
    }
    folder.write("r/result.json", json);
    folder.write("r/ops.csv", ops);
  };
  const auto with = [](const std::string& text, const char* pattern, const char* value) {
    return std::regex_replace(text, std::regex(pattern), value, std::regex_constants::format_first_only);
  };
  folder.write("r/result.json", with(json, "\"mfu\": [^,]*", "\"mfu\": 1e400"));
  expect("1e400", "result\\.json:\\d+:\\d+: error: expected a number that fits 64 bits, found 1e400");
  folder.write("r/result.json", with(json, "\"interval_s\": \\[[^\\]]*", "\"interval_s\": [1.0, 1e29"));
  expect("interval", "result\\.json:\\d+:\\d+: error: interval_s: expected two numbers of seconds");
  folder.write("r/ops.csv", with(ops, "elements=[0-9]*,[0-9]*", "elements=1,9223372036854775807"));
  expect("start", "ops\\.csv:\\d+:\\d+: error: start_ps: expected a number from 0 to");
}

TEST(HostileText, CsvFilesHoldNoFormula) {
  const Folder folder;
  const std::string scenario =
      folder.write("s.yaml", "rehearse: 1\nmodel: gpt-tiny\ncluster: {topology: dgx-a100, gpus: 8}\n");
  const Outcome r =
      run({"simulate", scenario, "--sweep", "name='=HYPERLINK(1)','@x','-1+1','-7'", "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  const std::string csv = read(folder / "out/sweep.csv");
  EXPECT_FALSE(std::regex_search(csv, std::regex("(^|[,\n])\"?[=@+]"))) << csv;
  EXPECT_FALSE(std::regex_search(csv, std::regex("(^|[,\n])\"?-[^0-9]"))) << csv;
  const std::string measurements = "id,scenario,metric,value,unit\n'=1+1,s.yaml,iter_time_s,1,s\n";
  const std::string table = folder.write("m.csv", measurements);
  ASSERT_EQ(run({"validate", "--throughput", table, "-o", folder / "ledger"}).status, 0);
  const std::string ledger = read(folder / "ledger/ledger.csv");
  EXPECT_TRUE(has(ledger, "\n'=1+1,")) << ledger << " the reader took the apostrophe off, the writer put it back";
  EXPECT_TRUE(has(read(folder / "ledger/ledger.json"), "\"=1+1\""));
}

// The smallest scenario of docs/scenario.md, as its first example has it.
TEST(Docs, TheSmallestScenarioRunsAsTheySay) {
  const std::string docs = read(std::string(REHEARSE_SOURCE_DIR) + "/docs/scenario.md");
  const std::size_t begin = docs.find("```yaml\n") + 8;
  const Folder folder;
  const std::string scenario = folder.write("smallest.yaml", docs.substr(begin, docs.find("```", begin) - begin));
  EXPECT_LE(read(scenario).size(), 40u) << read(scenario);
  const std::string home = "XDG_CACHE_HOME='" + (folder / "cache") + "' ";
  const Outcome uncalibrated = shell(home + "$REHEARSE simulate " + scenario);
  EXPECT_EQ(uncalibrated.status, 2) << uncalibrated.err;
  EXPECT_TRUE(has(uncalibrated.err, "rehearse calibrate")) << uncalibrated.err;
  EXPECT_EQ(run({"simulate", scenario, "--set", "cluster.topology=dgx-a100"}).status, 0);
  EXPECT_EQ(run({"execute", scenario, "--steps", "2"}).status, 0);
}

}  // namespace
}  // namespace rehearse::e2e
