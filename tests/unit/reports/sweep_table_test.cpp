// The table of a sweep at several widths and with any number of keys: no line too wide, nothing clipped, every key and
// value there; and its speed-ups.
#include <gtest/gtest.h>

#include <sstream>

#include "reports/sweep_rows.h"
#include "tests/support/text.h"

namespace rehearse::reports {
namespace {

SweepRow plan(std::vector<std::string> values, std::int64_t gpus = 8, std::int64_t data = 2,
              double tokens_per_s = 1e6) {
  SweepRow row;
  row.values = std::move(values);
  row.status = SweepStatus::fits;
  row.gpus = gpus;
  row.batch = {1, 96, data, 2048};
  row.step_time_ps = 24'040'000'000'000;
  row.tokens_per_s = tokens_per_s;
  row.peak_bytes = 25'300'000'000;
  row.memory_bytes = 85'900'000'000;
  row.mfu = 0.441, row.bubble = 0.098, row.exposed = 0.088;
  row.limit = "pipeline", row.limited_by = "Pipeline: 30%.";
  return row;
}

// All values of so many keys, as a sweep would have them: keys whose names are long, short and alike.
struct Swept {
  std::vector<SweepAxis> axes;
  std::vector<SweepRow> rows;
};
Swept swept(std::size_t keys, bool long_values) {
  const std::vector<SweepAxis> all = {{"plan.tensor", {"1", "8"}},
                                      {"plan.pipeline", {"2", "16"}},
                                      {"plan.zero", {"0", "3"}},
                                      {"plan.overlap_grad_reduce", {"true", "false"}},
                                      {"training.precision", {"bf16", "fp32"}}};
  Swept s;
  s.axes.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(keys));
  if (long_values)
    s.axes[0] = {"plan.layers_per_stage", {"[12, 12, 12, 12, 12, 12, 12, 12]", "[13, 12, 12, 12, 12, 12, 12, 11]"}};
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<std::string> values;
    for (const SweepAxis& axis : s.axes) values.push_back(axis.values[i]);
    s.rows.push_back(plan(values));
  }
  set_scaling(s.rows);
  return s;
}

void expect_width(const std::string& table, std::size_t width) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), width) << table;
}

TEST(SweepTable, IsReadableAtAnyWidthWithAnyNumberOfKeys) {
  for (const std::size_t width : {40U, 80U, 120U, 200U})
    for (const std::size_t keys : {1U, 2U, 3U, 5U})
      for (const bool long_values : {false, true}) {
        if (long_values && width < 80) continue;  // a value that is wider than that is on two lines
        SCOPED_TRACE(std::to_string(width) + " columns, keys: " + std::to_string(keys));
        const Swept s = swept(keys, long_values);
        const std::string table = sweep_table(s.axes, s.rows, width);
        expect_width(table, width);
        EXPECT_FALSE(has(table, "~")) << "something is clipped\n" << table;
        for (const char* cell : {"24.04 s", "44.1%", "yes", "step", "MFU", "fits"})
          EXPECT_TRUE(has(table, cell)) << cell << "\n" << table;
        for (const SweepAxis& axis : s.axes) {
          EXPECT_TRUE(has(table, axis.key.substr(axis.key.find('.') + 1))) << axis.key << "\n" << table;
          for (const std::string& value : axis.values) EXPECT_TRUE(has(table, value)) << value << "\n" << table;
        }
        // A column that is not there is named, with where it is.
        for (const char* column : {"peak", "bubble", "comm.", "limited by"}) EXPECT_TRUE(has(table, column)) << table;
        EXPECT_TRUE(!has(table, "Left out") || has(table, "-o DIR")) << table;
      }
}

TEST(SweepTable, OfASearchHasIntervalsAndCostsInPlaceOfWhatFits) {
  for (const std::size_t width : {40U, 80U, 200U})
    for (const std::size_t keys : {1U, 3U, 5U}) {
      Swept s = swept(keys, false);
      for (SweepRow& row : s.rows) row.low_s = 23.11, row.high_s = 26.48, row.cost = "$1,234";
      const std::string table = sweep_table(s.axes, s.rows, width, TableOf::search);
      expect_width(table, width);
      EXPECT_FALSE(has(table, "fits")) << table;
      EXPECT_TRUE(has(table, "25.3 GB")) << table;
      for (const char* column : {"between", "cost", "bubble"}) EXPECT_TRUE(has(table, column)) << table;
      if (width >= 80) {
        for (const char* cell : {"23.1-26.5 s", "$1,234"}) EXPECT_TRUE(has(table, cell)) << cell << "\n" << table;
      }
    }
}

TEST(SweepTable, LeavesNothingOutWhereThereIsRoom) {
  Swept three = swept(3, false);
  three.rows[0].batch = {1, 8, 2, 256}, three.rows[1].batch = {2, 2, 4, 256};  // one column more
  const std::string narrow = sweep_table(three.axes, three.rows, 80), wide = sweep_table(three.axes, three.rows, 120);
  EXPECT_TRUE(has(narrow, "Keys: t plan.tensor, p plan.pipeline, z plan.zero.\n")) << narrow;
  EXPECT_FALSE(has(narrow, "Left out")) << narrow;
  EXPECT_TRUE(has(wide, "tensor  pipeline  zero")) << wide;
  EXPECT_FALSE(has(wide, "Keys:")) << wide;
  const Swept longs = swept(5, true);
  EXPECT_FALSE(has(sweep_table(longs.axes, longs.rows, 200), "Left out"));
}

TEST(SweepTable, KeysThatBeginAlikeHaveLettersOfTheirOwn) {
  Swept s = swept(5, false);
  s.axes[4].key = "plan.tensors", s.axes[3].key = "other.tensor";
  const std::string table = sweep_table(s.axes, s.rows, 80);
  EXPECT_TRUE(has(table, "Keys: t plan.tensor, p plan.pipeline, z plan.zero, te other.tensor, ten")) << table;
}

TEST(SweepTable, SaysWhatABatchIs) {
  Swept s = swept(1, false);
  EXPECT_TRUE(
      sweep_table(s.axes, s.rows)
          .starts_with("Batch: 192 sequences = micro-batch 1 x 96 micro-batches x data 2; 393,216 tokens\na step\n"))
      << sweep_table(s.axes, s.rows);
  s.rows[1].batch = {2, 24, 4, 2048};
  const std::string table = sweep_table(s.axes, s.rows);
  EXPECT_TRUE(has(table, "192=1x96x2")) << table;
  EXPECT_TRUE(has(table, "192=2x24x4")) << table;
  EXPECT_TRUE(has(table, "micro-batch x micro-batches x data parallel; 393,216\ntokens a step\n")) << table;
}

TEST(SweepTable, NotesStandBelowWithTheirRow) {
  Swept s = swept(1, false);
  EXPECT_FALSE(has(sweep_table(s.axes, s.rows), "Notes"));
  s.rows[1].notes = {"Stages are uneven."};
  const std::string table = sweep_table(s.axes, s.rows);
  EXPECT_TRUE(has(table, "24.04 s*")) << table;
  EXPECT_TRUE(has(table, "\nNotes\n  * 8: Stages are uneven.\n")) << table;
  s.rows[0].notes = s.rows[1].notes;
  EXPECT_TRUE(has(sweep_table(s.axes, s.rows), "  * 1 (and 1 more): Stages are uneven.\n")) << "said once";
  EXPECT_TRUE(has(sweep_csv(s.axes, s.rows), ",Stages are uneven.,")) << sweep_csv(s.axes, s.rows);
  EXPECT_TRUE(has(sweep_json(s.axes, s.rows), "\"notes\": [\n      \"Stages are uneven.\"")) << "";
}

// Two, four times the GPUs with the same batch: T_1 / T_N and T_1 / (N T_N).
TEST(Scaling, StrongWhereTheBatchStays) {
  std::vector<SweepRow> rows = {plan({"16"}, 16, 4, 1.8e6), plan({"8"}, 8, 2, 1e6), plan({"32"}, 32, 8, 3e6)};
  rows[0].batch.micro_batches = 48, rows[2].batch.micro_batches = 24;
  set_scaling(rows);
  EXPECT_TRUE(rows[1].reference) << "the fewest GPUs, wherever they stand";
  EXPECT_EQ(rows[0].scaling, Scaling::strong);
  EXPECT_EQ(rows[2].scaling, Scaling::strong);
  EXPECT_DOUBLE_EQ(rows[0].speed_up, 1.8);
  EXPECT_DOUBLE_EQ(rows[0].efficiency, 0.9);
  EXPECT_DOUBLE_EQ(rows[2].efficiency, 0.75);
  const std::string table = sweep_table({{"cluster.gpus", {"16", "8", "32"}}}, rows);
  EXPECT_TRUE(has(table, "speed-up")) << table;
  EXPECT_TRUE(has(table, "strong scaling")) << table;
  EXPECT_TRUE(has(table, "90.0%")) << table;
  expect_width(table, 80);
}

// The batch grows with the GPUs: a step that takes as long is an efficiency of 1.
TEST(Scaling, WeakWhereTheBatchGrowsWithTheGpus) {
  std::vector<SweepRow> rows = {plan({"8"}, 8, 2, 1e6), plan({"16"}, 16, 4, 1.9e6), plan({"24"}, 24, 4, 2e6)};
  set_scaling(rows);
  EXPECT_EQ(rows[1].scaling, Scaling::weak);
  EXPECT_DOUBLE_EQ(rows[1].speed_up, 1.9);
  EXPECT_DOUBLE_EQ(rows[1].efficiency, 0.95);
  EXPECT_EQ(rows[2].scaling, Scaling::mixed);
  const std::string csv = sweep_csv({{"cluster.gpus", {}}}, rows);
  EXPECT_TRUE(has(csv, ",1e+06,0.441,reference,1,1,")) << csv;
  EXPECT_TRUE(has(csv, ",1.9e+06,0.441,weak,1.9,0.95,")) << csv;
  EXPECT_TRUE(has(csv, ",2e+06,0.441,mixed,2,0.666667,")) << csv;
  EXPECT_TRUE(has(sweep_table({{"cluster.gpus", {}}}, rows, 120), "weak")) << "several kinds have a column";
}

TEST(Scaling, IsRelativeToAPlanThatFits) {
  std::vector<SweepRow> rows = {plan({"1"}, 4), plan({"2"}, 8), plan({"3"}, 8), plan({"4"}, 2)};
  rows[0].status = SweepStatus::does_not_fit;
  rows[3].status = SweepStatus::infeasible;
  set_scaling(rows);
  EXPECT_TRUE(rows[1].reference);
  EXPECT_EQ(rows[2].scaling, Scaling::none) << "as many GPUs";
  EXPECT_EQ(rows[3].speed_up, 0);
  rows[1].status = rows[2].status = SweepStatus::does_not_fit;
  for (SweepRow& row : rows) row.reference = false;
  set_scaling(rows);
  EXPECT_TRUE(rows[0].reference) << "if none fits, of those that can be";
}

TEST(Scaling, WithoutOtherGpusTheTableHasASpeedUpWhereThereIsRoomAndNoEfficiency) {
  const Swept s = swept(2, false);
  const std::string table = sweep_table(s.axes, s.rows, 200);
  EXPECT_TRUE(has(table, "speed-up")) << table;
  EXPECT_TRUE(has(table, "1.00")) << table;
  EXPECT_FALSE(has(table, "effic.")) << table;
  EXPECT_FALSE(has(sweep_table(s.axes, s.rows, 60), "speed-up, ")) << "nothing is missed: the steps say it too";
  EXPECT_TRUE(has(sweep_csv(s.axes, s.rows), "speed_up")) << "the file always has";
}

}  // namespace
}  // namespace rehearse::reports
