// model.routing: recorded: the table of a performed run, what is wrong in one, and what it does not go with.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "sim/base/diagnostics.h"
#include "sim/plan/expert_loads.h"
#include "tests/support/lowered.h"
#include "tests/support/older_routing_table.h"
#include "tests/support/temporary.h"

namespace rehearse::plan {
namespace {

// Two micro-batches of 4 tokens a replica, 2 layers with experts after one without, 2 choices of 4.
const std::string kRecordedMoe =
    "rehearse: 1\n"
    "model: {family: moe, layers: 3, hidden: 16, heads: 2, vocab: 96, max_seq_len: 4, experts: 4, "
    "experts_per_token: 2, expert_ffn_hidden: 24, ffn_hidden: 32, dense_layers: 1}\n"
    "cluster: {gpus: 2}\nplan: {expert: 2}\ntraining: {global_batch: 4}\n";
const std::string kHeading = "step,micro_batch,layer,data,context,tensor,rows\n";

std::string whole_table(int step = 1) {
  std::string text;
  for (const char* place : {"0,1,0", "0,1,1", "0,2,0", "0,2,1", "1,1,0", "1,1,1", "1,2,0", "1,2,1"})
    text += std::to_string(step) + "," + place + ",0,0,4 3 1 0\n";
  return text;
}

std::string table_file(const std::string& text) {
  const std::string path = test::temporary_path("routing.csv");
  std::ofstream(path) << text;
  return path;
}

// What is said of the scenario with this table, the file's name cut off; "" if nothing.
std::string said(const std::string& text, std::vector<std::string> more = {}) {
  const std::string file = table_file(text);
  more.insert(more.end(), {"model.routing=recorded", "model.routing_file=" + file});
  try {
    scenario_from(kRecordedMoe, more);
    return "";
  } catch (const InputError& error) {
    std::string out = error.what();
    for (std::size_t at; (at = out.find(file)) != std::string::npos;) out.replace(at, file.size(), "FILE");
    return out;
  }
}

void expect_said(const std::string& text, const std::string& part, const std::vector<std::string>& more = {}) {
  const std::string all = said(text, more);
  EXPECT_NE(all.find(part), std::string::npos) << all << "\nhas not: " << part;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  text.replace(text.find(what), what.size(), by);
  return text;
}

TEST(RecordedTable, OfOlderProgramsIsReadToo) {
  std::vector<model::RoutedTokens> all;
  for (std::int64_t step = 1; step <= 2; ++step)
    for (std::int64_t micro_batch = 0; micro_batch < 2; ++micro_batch)
      for (std::int64_t data = 0; data < 2; ++data)
        for (std::int64_t layer = 1; layer < 3; ++layer)
          all.push_back({step, micro_batch, layer, data, 0, 0, {step, micro_batch, layer, data}});
  const model::RecordedRouting second(table_file(older_routing_table(all)), 0);
  EXPECT_EQ(second.step(), 2);
  EXPECT_EQ(second.first_layer(), 1);
  EXPECT_EQ(second.of(1, 2, 0, 0, 0).rows, (std::vector<std::int64_t>{2, 1, 2, 0}));
  EXPECT_EQ(model::RecordedRouting(table_file(older_routing_table(all)), 1).of(0, 1, 1, 0, 0).rows,
            (std::vector<std::int64_t>{1, 0, 1, 1}));
}

TEST(RecordedTable, IsOfEveryRankAndMicroBatch) {
  const std::string file = table_file(kHeading + replaced(whole_table(), "1,1,1,0,0,0,4 3 1 0", "1,1,1,0,0,0,0 2 3 3"));
  const ExpertLoads loads(scenario_from(kRecordedMoe, {"model.routing=recorded", "model.routing_file=" + file}));
  EXPECT_EQ(loads.patterns(), 2);
  EXPECT_EQ(loads.groups(), 1);
  EXPECT_TRUE(loads.vary());
  EXPECT_EQ(loads.of(1, 0).sent, (std::vector<std::int64_t>{7, 1, 7, 1}));
  EXPECT_EQ(loads.of(1, 1).sent, (std::vector<std::int64_t>{2, 6, 7, 1}));
  EXPECT_EQ(loads.rows_at(1, 1, 0, 0), 9);
  EXPECT_EQ(loads.most_rows_at(1, 0, 1), 7);
  EXPECT_EQ(loads.balance().imbalance, 14 * 2 / 16.0);
}

TEST(RecordedTable, OfAnotherRunIsRefused) {
  EXPECT_EQ(said(kHeading + whole_table()), "");
  EXPECT_EQ(said(kHeading + whole_table() + whole_table(5), {"model.routing_step=5"}), "");
  expect_said(kHeading + whole_table(), "FILE:1:1: error: the table has no step 2 (model.routing_step: 1 to 1)",
              {"model.routing_step=2"});
  expect_said(kHeading + whole_table(), "has 2 replicas (data), the scenario 4", {"cluster.gpus=4", "plan.expert=4"});
  expect_said(kHeading + whole_table(), "has 2 micro-batches a replica, the scenario 4", {"training.global_batch=8"});
  expect_said(kHeading + whole_table(), "has 2 layers with experts, the scenario 3", {"model.layers=4"});
  expect_said(kHeading + whole_table(), "has 1 layers before the first with experts, the scenario 0",
              {"model.layers=2", "model.dense_layers=0"});
  expect_said(kHeading + whole_table(), "has 4 experts, the scenario 8", {"model.experts=8"});
  expect_said(kHeading + whole_table(), "line 2: 8 choices, but a rank's 4 tokens choose 3 experts each",
              {"model.experts_per_token=3"});
  expect_said(kHeading + replaced(whole_table(), "4 3 1 0", "5 3 0 0"),
              "model.routing_file: FILE: line 2: 5 tokens choose one expert, but a rank has 4");
}

TEST(RecordedTable, ThatIsNoneIsRefusedWithItsPlace) {
  expect_said("step,layer,rows\n", "FILE:1:");
  expect_said(kHeading, "FILE:1:1: error: the table has no rows");
  expect_said(kHeading + replaced(whole_table(), "4 3 1 0", "4 3 1 x"),
              "FILE:2:13: error: rows: expected how many tokens");
  expect_said(kHeading + replaced(whole_table(), "4 3 1 0", "4 3 1"),
              "FILE:3:13: error: rows: 4 numbers, but 3 in the first");
  expect_said(kHeading + replaced(whole_table(), "1,0,1,1", "1,0,-1,1"),
              "FILE:3:5: error: layer: expected a whole number from 0");
  expect_said(kHeading + replaced(whole_table(), "1,0,1,1", "0,0,1,1"),
              "FILE:3:1: error: step: expected a whole number from 1");
  expect_said(kHeading + replaced(whole_table(), "1,0,1,1", "1,0,1,0"),
              "FILE:3:1: error: the same place is in line 2 too");
  expect_said(kHeading + replaced(whole_table(), "1,0,1,1,0,0,4 3 1 0\n", ""),
              "step 1 has no row for micro_batch 0, layer 1, data 1, context 0, tensor 0");
}

TEST(RecordedTable, IsAskedForByTheRouting) {
  const auto all_said = [](const std::vector<std::string>& set) {
    try {
      scenario_from(kRecordedMoe, set);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto expect = [&](const std::vector<std::string>& set, const std::string& part) {
    EXPECT_NE(all_said(set).find(part), std::string::npos) << all_said(set);
  };
  expect({"model.routing=recorded"}, "model.routing_file: required key is missing: routing: recorded needs what was");
  expect({"model.routing_file=a.csv"}, "model.routing_file: has no meaning without routing: recorded");
  expect({"model.routing_step=2"}, "model.routing_step: has no meaning without routing: recorded");
  expect({"model.routing=recorded", "model.routing_file=nowhere.csv"}, "model.routing_file: nowhere.csv ");
}

TEST(RecordedTable, GoesNotWithWhatNeedsLikeOrOtherRows) {
  const std::string text = kHeading + whole_table();
  expect_said(text, "rows of a tensor group are gathered as equal parts",
              {"cluster.gpus=4", "plan.tensor=2", "plan.sequence_parallel=true"});
  expect_said(text, "not which rows of a token go to one node", {"plan.expert_dispatch=forwarding"});
}

// Written anew for another folder, a scenario names the file wholly: beside it, or assigned beside the working
// directory, whatever the file is called.
TEST(RecordedTable, IsNamedWhollyInAScenarioWrittenAnew) {
  const std::filesystem::path folder = test::temporary_path("routed");
  std::filesystem::create_directories(folder / "deep");
  std::ofstream(folder / "table") << kHeading;
  std::ofstream(folder / "deep" / "table.csv") << kHeading;
  const std::string scenario = (folder / "s.yaml").string();
  const auto named = [&](const std::string& file, const std::vector<std::string>& more) {
    std::ofstream(scenario) << "rehearse: 1\nmodel: {family: moe, routing: recorded, routing_file: " << file << "}\n";
    const std::string text = scenario_text(scenario, more, "of a test");
    const std::size_t at = text.find("routing_file: ");
    return text.substr(at, text.find('\n', at) - at);
  };
  const std::string whole = std::filesystem::absolute(folder).string();
  EXPECT_EQ(named("table", {}), "routing_file: '" + whole + "/table'");
  EXPECT_EQ(named("deep/table.csv", {}), "routing_file: '" + whole + "/deep/table.csv'");
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder / "deep");
  EXPECT_EQ(named("table", {"model.routing_file=table.csv"}), "routing_file: '" + whole + "/deep/table.csv'");
  std::filesystem::current_path(here);
}

}  // namespace
}  // namespace rehearse::plan
