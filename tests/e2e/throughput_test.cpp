// Predictions of published runs stay as good as they are: a few sources with all of their rows, as `rehearse validate
// --throughput` scores them. A better record is a change of its own, with its reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/e2e/program.h"

namespace rehearse::e2e {
namespace {

struct Record {
  const char* source;
  int rows;
  double mean, inside;      // mean of |predicted / measured - 1|; share of rows inside their interval
  bool eight_bits = false;  // those of the source's rows, or all others
  const char* only = "";    // of its rows, those with this in their id
};

constexpr const char* kRuns = REHEARSE_SOURCE_DIR "/scenarios/published/throughput.csv";

class PublishedRuns : public testing::TestWithParam<Record> {};

TEST_P(PublishedRuns, AreNotPredictedWorse) {
  const Record& record = GetParam();
  const Folder folder;
  const Outcome r = run({"validate", "--throughput", kRuns, "--filter", *record.only != 0 ? record.only : record.source,
                         "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto json = nlohmann::json::parse(read(folder / "out/ledger.json"));
  int n = 0, inside = 0;
  double sum = 0;
  for (const auto& row : json["rows"]) {
    if (row["source"] != record.source || !row["used"]) continue;
    if (has(row["software"].get<std::string>(), "8 bits") != record.eight_bits) continue;
    ++n;
    sum += std::abs(row["error"].get<double>());
    inside += row["low"] <= row["measured"] && row["measured"] <= row["high"] ? 1 : 0;
  }
  constexpr double kWorse = 0.01;  // a point
  EXPECT_GE(n, record.rows);
  EXPECT_LE(sum / n, record.mean + kWorse);
  EXPECT_GE(static_cast<double>(inside) / n, record.inside - kWorse);
}

INSTANTIATE_TEST_SUITE_P(Shipped, PublishedRuns,
                         testing::Values(Record{"llm-foundry", 127, 0.045, 0.99}, Record{"korthikanti-t5", 8, 0.011, 1},
                                         Record{"simumax-b200", 27, 0.082, 1}, Record{"torchtitan", 10, 0.058, 0.9},
                                         Record{"megatron-bridge", 1, 0.013, 1, false, "megatron-bridge-247"},
                                         Record{"dgxc", 4, 0.04, 1, false, "Llama4"},
                                         Record{"torchtitan", 24, 0.165, 0.79, true},
                                         Record{"nemo-longseq", 15, 0.044, 0.93, true},
                                         Record{"bloom-prequel", 4, 0.083, 1, false, "bloom-prequel-08"},
                                         Record{"megatron-sc21-t2", 8, 0.161, 0.625}, Record{"nv-dle", 92, 0.085, 0.92},
                                         Record{"megatron-ci", 6, 0.171, 0.66},
                                         Record{"dgxc", 7, 0.195, 1, true, "Nemotron-H"},
                                         Record{"nemo-launcher", 6, 0.069, 1, false, "mT5-3B"}),
                         [](const auto& test) {
                           std::string name = test.param.source;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + (test.param.eight_bits ? "_8_bits" : "");
                         });

// A table of the shipped one's heading and the rows that `pick` takes.
template <class Pick>
std::string some_rows(Pick&& pick) {
  std::istringstream lines(read(kRuns));
  std::string line, out;
  std::getline(lines, line);
  out = line + "\n";
  while (std::getline(lines, line))
    if (pick(line)) out += line + "\n";
  return out;
}

// Nine short rows: three plans of one sweep, with measured memory.
std::string nine_rows() {
  return some_rows(
      [](const std::string& line) { return line.starts_with("simumax-b200-0") && has(line, "llama3_405b"); });
}

TEST(PublishedRunsPage, IsTheSameWhateverTheThreads) {
  const Folder folder;
  const std::string table = folder.write("runs.csv", nine_rows());
  for (const char* threads : {"1", "2"}) {
    const Outcome r =
        run({"validate", "--throughput", table, "--threads", threads, "-o", folder / ("out" + std::string(threads))});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_TRUE(has(r.out, "simumax-b200 1")) << r.out;
    EXPECT_TRUE(has(r.out, "memory of source")) << r.out;
  }
  for (const char* name : {"ledger.html", "predicted-measured.svg", "ledger.json", "ledger.csv", "sweeps.csv"}) {
    const std::string first = read(folder / ("out1/" + std::string(name)));
    EXPECT_FALSE(first.empty()) << name;
    EXPECT_EQ(first, read(folder / ("out2/" + std::string(name)))) << name;
  }
  const auto json = nlohmann::json::parse(read(folder / "out1/ledger.json"));
  ASSERT_EQ(json["sweeps"].size(), 1u);
  EXPECT_EQ(json["sweeps"][0]["rows"].size(), 3u);
  EXPECT_EQ(json["memory_sources"][0]["n"], 9);
  EXPECT_EQ(json["memory_sources"][0]["kind"], "allocated");
}

TEST(PublishedRunsPage, NothingIsWrittenWhereItCannotBe) {
  const Folder folder;
  const std::string table = folder.write("runs.csv", nine_rows());
  std::filesystem::create_directory(folder / "out");
  folder.write("out/scenarios", "a file");
  const Outcome r = run({"validate", "--throughput", table, "-o", folder / "out"});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "scenarios exists and is not a directory")) << r.err;
  EXPECT_EQ(run({"validate", "--throughput", table, "--filter", "no such row", "-o", folder / "none"}).status, 2);
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"out/scenarios", "runs.csv"}));
}

TEST(PublishedRunsPage, TablesThatCannotBeReadAreRefusedWithTheirLine) {
  const Folder folder;
  const std::string rows = nine_rows();
  const std::string heading = rows.substr(0, rows.find('\n') + 1);
  const std::string row = rows.substr(heading.size(), rows.find('\n', heading.size()) + 1 - heading.size());
  std::string outside = row;
  outside.replace(0, outside.find(','), "../outside");
  const std::string table = folder.write("runs.csv", heading + row + row + outside);
  const Outcome r = run({"validate", "--throughput", table});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "runs.csv:3:1: error: id: 'simumax-b200-025' comes twice")) << r.err;
  EXPECT_TRUE(has(r.err, "runs.csv:4:1: error: id: '../outside' cannot name a file")) << r.err;
}

TEST(PublishedRunsPage, ARowThatIsNoScenarioNamesTheKey) {
  const Folder folder;
  const std::string table =
      folder.write("runs.csv", some_rows([](const std::string& line) {
                     return line.starts_with("megatron-bridge-273,") || line.starts_with("simumax-b200-025,");
                   }));
  const Outcome r = run({"validate", "--throughput", table, "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(read(folder / "out/ledger.csv"), "plan.expert: expert = 64 does not divide")) << r.out;
}

// Another source's measurement of the same configuration is no repetition.
TEST(PublishedRunsPage, TwoSourcesOfOneConfigurationAreTwoRows) {
  const Folder folder;
  const std::string one = some_rows([](const std::string& line) { return line.starts_with("simumax-b200-025,"); });
  const std::size_t row = one.find('\n') + 1, rest = one.find(",simumax-b200,", row) + 14;
  const auto used = [&](const std::vector<std::string>& sources) {
    std::string table = one.substr(0, row);
    for (const std::string& source : sources)
      table += "row-" + std::to_string(table.size()) + "," + source + "," + one.substr(rest);
    const Outcome r = run({"validate", "--throughput", folder.write("runs.csv", table), "-o", folder / "out"});
    EXPECT_EQ(r.status, 0) << r.err;
    return nlohmann::json::parse(read(folder / "out/ledger.json"))["rows"].dump();
  };
  const std::string again = "once more: averaged";
  EXPECT_TRUE(has(used({"some", "some"}), again));
  EXPECT_FALSE(has(used({"some", "other"}), again));
}

TEST(PublishedRunsPage, ThreadsAreForPublishedRuns) {
  const std::string measurements = REHEARSE_SOURCE_DIR "/scenarios/published/measurements.csv";
  for (const std::vector<std::string>& mode :
       {std::vector<std::string>{"--collectives"}, {"--throughput", measurements}}) {
    std::vector<std::string> words = {"validate", "--threads", "2", "--filter", "no such row"};
    words.insert(words.end(), mode.begin(), mode.end());
    const Outcome r = run(words);
    EXPECT_EQ(r.status, 2);
    EXPECT_TRUE(has(r.err, "--threads needs --throughput")) << r.err;
  }
}

}  // namespace
}  // namespace rehearse::e2e
