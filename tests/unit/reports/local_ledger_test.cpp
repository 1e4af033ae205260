// The ledger of plans performed on the machine at hand: reading the list, errors, medians, and what is printed.
#include "reports/ledgers/local_ledger.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "sim/base/diagnostics.h"
#include "tests/support/temporary.h"

namespace rehearse::reports {
namespace {

result::Result timed(double step_s, std::int64_t peak) {
  result::Result r;
  r.ranks = 2;
  r.step_time_ps = static_cast<std::int64_t>(step_s * 1e12);
  r.interval_low_s = step_s * 0.9;
  r.interval_high_s = step_s * 1.2;
  r.stages.resize(2);
  r.stages[1].peak = peak;
  return r;
}

class List : public testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(file_) << text; }
  void TearDown() override { std::filesystem::remove(file_); }
  const std::string file_ = test::temporary_path("local_plans.yaml");
};

TEST_F(List, NamesScenariosBesideItself) {
  write("local_plans: 1\nplans:\n  - {id: a, scenario: gpt.yaml, set: [plan.zero=1, cluster.gpus=2]}\n");
  const auto plans = read_local_plans(file_);
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].id, "a");
  EXPECT_EQ(std::filesystem::path(plans[0].scenario).parent_path(), std::filesystem::path(file_).parent_path());
  EXPECT_EQ(plans[0].assignments, (std::vector<std::string>{"plan.zero=1", "cluster.gpus=2"}));
}

TEST_F(List, NamesPlansThatAreHeldOut) {
  const std::string plans = "plans:\n  - {id: a, scenario: x.yaml}\n  - {id: b, scenario: x.yaml}\n";
  write("local_plans: 1\nheld_out: [b]\n" + plans);
  const auto read = read_local_plans(file_);
  EXPECT_FALSE(read[0].held_out);
  EXPECT_TRUE(read[1].held_out);
  write("local_plans: 1\nheld_out: [c]\n" + plans);
  try {
    read_local_plans(file_);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_NE(error.diagnostics().front().text().find(":2:12: error"), std::string::npos)
        << error.diagnostics().front().text();
  }
}

// Half of the GPU's plans, and a held-out one has no kernel of its batch and length walked.
TEST_F(List, HalfOfTheGpusPlansAreHeldOut) {
  const auto plans = read_local_plans(REHEARSE_SOURCE_DIR "/scenarios/gpu/plans.yaml");
  std::set<std::string> walked, held_out;
  std::size_t count = 0;
  for (const LocalPlan& plan : plans) {
    std::string shape = std::filesystem::path(plan.scenario).stem().string();
    for (const std::string& a : plan.assignments)
      if (a.starts_with("model=") || a.starts_with("plan.micro_batch=") || a.starts_with("training.seq_len="))
        shape += " " + a;
    (plan.held_out ? held_out : walked).insert(shape);
    count += plan.held_out ? 1U : 0U;
  }
  EXPECT_EQ(2 * count, plans.size());
  for (const std::string& shape : held_out) EXPECT_FALSE(walked.contains(shape)) << shape;
}

TEST_F(List, TellsEveryProblemAtItsPlace) {
  write("local_plans: 1\nplans:\n  - {id: a, scenario: x.yaml, set: [plan.zero]}\n  - {id: a, scenaro: y.yaml}\n");
  try {
    read_local_plans(file_);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    std::string all;
    for (const auto& d : error.diagnostics()) all += d.text() + "\n";
    EXPECT_NE(all.find(":3:"), std::string::npos) << all;
    EXPECT_NE(all.find("KEY=VALUE"), std::string::npos) << all;
    EXPECT_NE(all.find("a second plan 'a'"), std::string::npos) << all;
    EXPECT_NE(all.find("scenaro"), std::string::npos) << all;
  }
}

TEST(LocalLedger, SummarisesEachGroupByItself) {
  std::vector<LocalRow> rows;
  rows.push_back(local_row("exact", timed(1, 1000), timed(1, 1000), false));
  rows.push_back(local_row("fast", timed(0.9, 990), timed(1, 1000), false));
  rows.push_back(local_row("slow", timed(1.2, 1000), timed(1, 1000), false));
  rows.push_back(local_row("crowd", timed(2, 1000), timed(1, 1000), true));
  LocalRow failed;
  failed.id = "failed";
  failed.reason = "no memory";
  rows.push_back(failed);
  const LocalSummary own = summarize(rows, false), shared = summarize(rows, true);
  EXPECT_EQ(own.plans, 3);
  EXPECT_NEAR(own.median_error, 0.1, 1e-9);
  EXPECT_NEAR(own.worst_error, 0.2, 1e-9);
  EXPECT_NEAR(own.worst_memory_error, -0.01, 1e-9);
  EXPECT_EQ(shared.plans, 1);
  EXPECT_NEAR(shared.median_error, 1, 1e-9);
}

// The machine was 1.25 times slower while it performed the plan: what was simulated as 0.8 s took 1 s.
TEST(LocalLedger, NamesTheMachinesDrift) {
  result::Result simulated = timed(0.8, 1), measured = timed(1, 1);
  simulated.pace = {.probes = 2, .product_s = 8e-3, .copy_s = 8e-3, .cores = 2, .wanted = 2};
  measured.pace = {.probes = 2, .product_s = 10e-3, .copy_s = 10e-3, .cores = 2, .wanted = 2};
  const LocalRow row = local_row("a", simulated, measured, false);
  EXPECT_NEAR(row.time_error(), -0.2, 1e-12);
  EXPECT_NEAR(row.drift, 1.25, 1e-12);
  EXPECT_NEAR(row.error_without_drift(), 0, 1e-12);
  EXPECT_FALSE(row.inside()) << "0.72 to 0.96";
  const LocalSummary s = summarize({row}, false);
  EXPECT_NEAR(s.median_without_drift, 0, 1e-12);
  EXPECT_EQ(s.inside, 0);
  const std::string table = local_ledger_table({row});
  EXPECT_NE(table.find("ran 1.25 times slower while"), std::string::npos) << table;
  EXPECT_NE(table.find("-20.0%!"), std::string::npos) << table;
  EXPECT_NE(local_ledger_json({row}).find("\"drift\": 1.25"), std::string::npos);
}

TEST(LocalLedger, WithoutAPaceThereIsNoDrift) {
  const LocalRow row = local_row("a", timed(1.1, 1), timed(1, 1), false);
  EXPECT_EQ(row.drift, 1);
  EXPECT_EQ(local_ledger_table({row}).find("slower while"), std::string::npos);
}

TEST(LocalLedger, MedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  std::vector<LocalRow> rows;
  for (const double step : {1.0, 1.1, 0.7, 1.5}) rows.push_back(local_row("x", timed(step, 1), timed(1, 1), false));
  EXPECT_NEAR(summarize(rows, false).median_error, 0.2, 1e-9);
}

TEST(LocalLedger, TableFitsTheTerminalAndTellsWhatWasNotPerformed) {
  std::vector<LocalRow> rows;
  rows.push_back(local_row("a-plan-with-quite-a-long-name", timed(1.1, 1000), timed(1, 1000), false));
  rows.push_back(local_row("crowd", timed(2, 1000), timed(1, 1000), true));
  LocalRow failed;
  failed.id = "failed";
  failed.reason = "no memory";
  rows.push_back(failed);
  const std::string table = local_ledger_table(rows);
  std::size_t begin = 0;
  for (std::size_t end; (end = table.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 80U) << table.substr(begin, end - begin);
  EXPECT_NE(table.find("+10.0%"), std::string::npos) << table;
  EXPECT_NE(table.find("*2"), std::string::npos) << table;
  EXPECT_NE(table.find("not performed: failed: no memory"), std::string::npos) << table;
  const std::string csv = local_ledger_csv(rows);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4);
  EXPECT_NE(local_ledger_json(rows).find("rehearse.local_ledger/1"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::reports
