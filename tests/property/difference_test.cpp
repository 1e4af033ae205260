// Comparisons of results whose difference is known: a kernel class made slower, a stage made slower, a result with
// itself. The account must name exactly that, and always sum to the difference of the step times.
#include "reports/difference.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "sim/account/program_facts.h"
#include "tests/support/simulated.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

namespace fs = std::filesystem;
using reports::kFirst;
using reports::kSecond;

constexpr std::int64_t kMicro = 1'000'000;

std::string scenario_text(const std::string& plan, int gpus) {
  return "rehearse: 1\nname: difference\n"
         "model: {family: gpt, layers: 4, hidden: 64, heads: 4, vocab: 128, max_seq_len: 32}\n"
         "cluster: {topology: dgx-a100, gpus: " +
         std::to_string(gpus) + "}\nplan: {" + plan + "}\ntraining: {global_batch: 8}\n";
}

// Every kernel takes 10 us, but what `time_of` says otherwise.
class StageCosts : public cost::CostModel {
 public:
  using TimeOf = std::function<std::int64_t(int stage, const program::Op&)>;
  explicit StageCosts(TimeOf time_of) : time_of_(std::move(time_of)) {}
  const cost::Device& device() const override { return device_; }
  cost::Estimate kernel(const program::Role& role, const program::Op& op, const cost::Interference&) const override {
    return {Time::from_ps(time_of_(role.pipeline, op)), cost::Coverage::exact, 1, 1};
  }

 private:
  TimeOf time_of_;
  cost::Device device_;
};

// Simulated, written to a directory and read back.
result::StoredResult stored(const std::string& text, const StageCosts::TimeOf& time_of) {
  const plan::Scenario scenario = scenario_from(text);
  const plan::RankGrid grid = scenario.grid();
  const auto cluster = cluster::build_cluster("dgx-a100", grid.ranks(), {}, 0, REHEARSE_SOURCE_DIR);
  const auto collectives = collective::make_plain_model(*cluster, Time());
  const program::Program program = lower::lower(scenario);
  result::Result r;
  engine::Options options;
  options.steps = r.steps = 2;
  for (const int rank : grid.members(0, {Axis::pipeline})) {
    options.recorded_ranks.push_back(rank);
    r.role_of_rank[rank] = grid.coordinate(rank, Axis::pipeline);
    r.stages.push_back({});
  }
  account::name_ops(program, grid, {}, r);
  const engine::Outcome outcome = engine::simulate(program, grid, *cluster, *collectives, StageCosts(time_of), options);
  r.records = outcome.records;
  r.ranks = grid.ranks();
  r.step_time_ps = outcome.step_time.ps();
  r.breakdown_ps = outcome.breakdown_ps;
  r.scenario["plan.pipeline"] = std::to_string(scenario.plan.pipeline);
  const fs::path dir = test::temporary_path("difference");
  result::write_directory(r, dir);
  result::StoredResult back = result::read_directory(dir);
  fs::remove_all(dir);
  return back;
}

std::int64_t gemm_10_percent(int, const program::Op& op) {
  return std::holds_alternative<program::Gemm>(op.shape) ? 11 * kMicro : 10 * kMicro;
}
std::int64_t all_alike(int, const program::Op&) {
  return 10 * kMicro;
}

std::int64_t sum_of(const std::vector<reports::AccountLine>& lines) {
  return std::accumulate(lines.begin(), lines.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& line) { return sum + line.difference(); });
}

std::int64_t difference_of(const std::vector<reports::AccountLine>& lines, const std::string& name) {
  for (const auto& line : lines)
    if (line.line == name) return line.difference();
  return 0;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Difference, ASlowerKernelClassIsNamedWithItsWholeContribution) {
  const std::string text = scenario_text("micro_batch: 4", 1);
  const auto a = stored(text, all_alike), b = stored(text, gemm_10_percent);
  const reports::Difference d = reports::difference(a, b);
  const auto gemms =
      std::count_if(a.ops.begin(), a.ops.end(), [&](const auto& row) { return a.text_of(row).kind == "gemm"; });
  ASSERT_GT(gemms, 20);
  EXPECT_EQ(difference_of(d.account, "gemm"), gemms * kMicro) << "10% of 10 us each";
  EXPECT_EQ(d.step_difference_ps(), gemms * kMicro) << "one rank: nothing hides it";
  for (const auto& line : d.account)
    EXPECT_EQ(line.difference(), line.line == "gemm" ? gemms * kMicro : 0) << line.line;
  EXPECT_TRUE(d.same_program());
  EXPECT_EQ(d.matched, static_cast<std::int64_t>(a.ops.size()));
  EXPECT_TRUE(has(d.sentence, "B is ") && has(d.sentence, "% slower than A: +") && has(d.sentence, " gemm"))
      << d.sentence;
}

TEST(Difference, ASlowerStageIsNamedByThoseWhoWaitForIt) {
  const std::string text = scenario_text("pipeline: 2, micro_batch: 1", 2);
  const auto a = stored(text, all_alike);
  const auto b = stored(text, [](int stage, const program::Op&) { return (stage == 1 ? 20 : 10) * kMicro; });
  const reports::Difference d = reports::difference(a, b);
  EXPECT_EQ(sum_of(d.account), d.step_difference_ps());
  EXPECT_GT(difference_of(d.account, "bubble"), 0);
  ASSERT_FALSE(d.details.empty());
  EXPECT_EQ(d.details[0].line, "bubble");
  EXPECT_EQ(d.details[0].detail, "stage 0: receive from stage 1");
  EXPECT_TRUE(has(d.sentence, "waiting, stage 0: receive from stage 1") || has(d.sentence, "bubble")) << d.sentence;
}

TEST(Difference, LinesAndDetailsSumToTheStepsDifferenceToThePicosecond) {
  const std::string text = scenario_text("tensor: 2, pipeline: 2, micro_batch: 1, zero: 1", 8);
  const auto a = stored(text, all_alike);
  const auto b = stored(text, [](int, const program::Op& op) {
    return static_cast<std::int64_t>(9'000'001 + std::hash<std::string>{}(op.name) % 3'000'000);
  });
  const reports::Difference d = reports::difference(a, b);
  EXPECT_NE(d.step_difference_ps(), 0);
  EXPECT_EQ(sum_of(d.account), d.step_difference_ps());
  EXPECT_EQ(sum_of(d.details), d.step_difference_ps());
}

TEST(Difference, AResultDoesNotDifferFromItself) {
  const auto a = stored(scenario_text("pipeline: 2, micro_batch: 2", 2), all_alike);
  const reports::Difference d = reports::difference(a, a);
  EXPECT_EQ(d.sentence, "The step times are equal.");
  for (const auto& line : d.details) EXPECT_EQ(line.difference(), 0);
  EXPECT_TRUE(d.keys.empty());
}

TEST(Difference, AMeasuredStepThatWasNotTheRecordedOneHasALineOfItsOwn) {
  const std::string text = scenario_text("micro_batch: 4", 1);
  const auto a = stored(text, all_alike);
  auto b = a;
  b.result.source = "measured";
  b.result.step_time_ps += 5 * kMicro;
  const reports::Difference d = reports::difference(a, b);
  EXPECT_EQ(d.labels[kFirst], "simulated");
  EXPECT_EQ(sum_of(d.account), 5 * kMicro);
  EXPECT_EQ(difference_of(d.account, "gemm"), 0);
  // Simulated, the step begins where the one before ended; measured, with its first kernel.
  const auto before = [&](const auto& line) { return line.line == "host" ? -line.difference() : 0; };
  const std::int64_t idle = std::accumulate(d.account.begin(), d.account.end(), std::int64_t{0},
                                            [&](std::int64_t sum, const auto& line) { return sum + before(line); });
  EXPECT_EQ(difference_of(d.account, std::string(reports::kNotRecorded)), 5 * kMicro + idle);
}

TEST(Difference, AnotherPlanIsComparedByClassesAndItsKeysAreNamed) {
  const auto a = stored(scenario_text("pipeline: 2, micro_batch: 1", 2), all_alike);
  const auto b = stored(scenario_text("micro_batch: 1", 2), all_alike);
  const reports::Difference d = reports::difference(a, b);
  EXPECT_FALSE(d.same_program());
  ASSERT_EQ(d.keys.size(), 1u);
  EXPECT_EQ(d.keys[0].key, "plan.pipeline");
  EXPECT_EQ(d.keys[0].values, (reports::Pair<std::string>{"2", "1"}));
  EXPECT_EQ(d.matched + d.alone[kFirst], static_cast<std::int64_t>(a.ops.size()));
  EXPECT_EQ(d.matched + d.alone[kSecond], static_cast<std::int64_t>(b.ops.size()));
  EXPECT_EQ(sum_of(d.account), d.step_difference_ps());
  const std::string table = reports::difference_table(d);
  EXPECT_TRUE(has(table, "Another program")) << table;
  EXPECT_TRUE(has(table, "plan.pipeline")) << table;
}

TEST(Difference, FilesSayWhatTheTableSays) {
  const std::string text = scenario_text("pipeline: 2, micro_batch: 1", 2);
  const auto a = stored(text, all_alike), b = stored(text, gemm_10_percent);
  const reports::Difference d = reports::difference(a, b);
  const auto json = nlohmann::json::parse(reports::difference_json(d));
  EXPECT_EQ(json["schema"], "rehearse.compare/1");
  EXPECT_EQ(json["sentence"], d.sentence);
  EXPECT_EQ(json["ops"]["matched"], a.ops.size());
  double sum = 0;
  for (const auto& line : json["account"]) sum += line["difference_s"].get<double>();
  EXPECT_NEAR(sum, json["step_time"]["difference_s"].get<double>(), 1e-15);
  const std::string csv = reports::difference_csv(d);
  EXPECT_EQ(static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n')), a.ops.size() + 1);
  EXPECT_TRUE(has(csv, ",1000000,0.1\n")) << "a gemm: 1 us and 10% more";
}

TEST(Difference, NoLineOfTheTableIsWiderThanATerminal) {
  const std::string text = scenario_text("tensor: 2, pipeline: 2, micro_batch: 1, zero: 3", 8);
  auto a = stored(text, all_alike), b = stored(text, gemm_10_percent);
  a.result.scenario_name = std::string(200, 'n');
  a.directory = std::string(200, 'd');
  a.result.scenario[std::string(120, 'k')] = std::string(90, 'v');
  b.result.loss = {2.5, 2.25};
  a.result.loss = {2.5, 2.0};
  const std::string table = reports::difference_table(reports::difference(a, b));
  std::size_t start = 0;
  for (std::size_t end; (end = table.find('\n', start)) != std::string::npos; start = end + 1)
    EXPECT_LE(end - start, 80u) << table.substr(start, end - start);
  EXPECT_TRUE(has(table, "Losses of the same step differ by 0.12 at most."));
}

}  // namespace
}  // namespace rehearse
