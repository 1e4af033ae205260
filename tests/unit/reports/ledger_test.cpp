// CSV reading and the accuracy ledger.
#include "reports/ledgers/ledger.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/base/diagnostics.h"

namespace rehearse::reports {
namespace {

// What a failing call reports, one diagnostic a line.
template <typename Call>
std::string problems(Call call) {
  try {
    call();
  } catch (const InputError& error) {
    std::string out;
    for (const Diagnostic& d : error.diagnostics()) out += d.text() + "\n";
    return out;
  }
  return "none";
}

constexpr char kHead[] = "id,scenario,metric,value,unit,source\n";

TEST(Measurements, EveryBadValueIsReported) {
  const std::string text = std::string(kHead) + "a,s,mfu,x,%,p\nb,,mfu,1,%,p\n";
  const std::string found = problems([&] { read_measurements("m.csv", text); });
  EXPECT_NE(found.find("m.csv:2:9: error: value: expected a number, found 'x'"), std::string::npos) << found;
  EXPECT_NE(found.find("m.csv:3:3: error: scenario:"), std::string::npos) << found;
}

result::Result step_of_20_s() {
  result::Result r;
  r.ranks = 8;
  r.step_time_ps = 20'000'000'000'000;
  r.tokens_per_s = 1000;
  r.model_flops = 8e15;
  r.peak_flops_per_gpu = 100e12;
  r.interval_low_s = 16;
  r.interval_high_s = 25;
  r.coverage = {0.75, 0.25, 0, 0};
  return r;
}

Measurement measured(std::string metric, double value, std::string unit) {
  return {"x", "s", std::move(metric), std::move(unit), "paper", value, 2};
}

TEST(Ledger, ComparesInTheUnitOfTheMeasurement) {
  const result::Result r = step_of_20_s();
  const LedgerRow time = compare(measured("iter_time_s", 16, "s"), r);
  EXPECT_TRUE(time.used);
  EXPECT_DOUBLE_EQ(time.predicted, 20);
  EXPECT_DOUBLE_EQ(time.error, 0.25);
  EXPECT_DOUBLE_EQ(time.low, 16);
  EXPECT_DOUBLE_EQ(time.high, 25);
  // 8e15 FLOPs in 20 s on 8 GPUs are 50 TFLOP/s each, half of the peak; a longer step means a lower rate.
  const LedgerRow share = compare(measured("mfu", 40, "%"), r);
  EXPECT_DOUBLE_EQ(share.predicted, 50);
  EXPECT_DOUBLE_EQ(share.low, 40);
  EXPECT_DOUBLE_EQ(share.high, 62.5);
  EXPECT_DOUBLE_EQ(compare(measured("model_tflops_per_gpu", 50, "TFLOP/s"), r).error, 0);
  EXPECT_DOUBLE_EQ(compare(measured("step_time_s", 20000, "ms"), r).predicted, 20000);
}

TEST(Ledger, WhatCannotBeComparedSaysWhy) {
  const result::Result r = step_of_20_s();
  EXPECT_EQ(compare(measured("loss", 1, ""), r).reason, "no result has the metric 'loss'");
  EXPECT_EQ(compare(measured("mfu", 1, "s"), r).reason, "'s' is no unit of mfu");
  EXPECT_FALSE(compare(measured("mfu", 0, "%"), r).used);
}

TEST(Ledger, FilesHaveTheirColumnsAndSchema) {
  result::Result r = step_of_20_s();
  r.scenario["plan.micro_batch"] = "1", r.scenario["plan.micro_batches"] = "4", r.scenario["plan.data"] = "2";
  const std::vector<LedgerRow> rows = {compare(measured("iter_time_s", 16, "s"), r),
                                       unused(measured("loss", 1, ""), "no, never")};
  EXPECT_EQ(ledger_csv(rows),
            "id,used,reason,metric,measured,predicted,error,low,high,coverage,global_batch\n"
            "x,true,,iter_time_s,16.0,20.0,0.25,16.0,25.0,75% exact 25% interpolated,8\n"
            "x,false,\"no, never\",loss,1.0,,,,,,\n");
  const auto json = nlohmann::json::parse(ledger_json(rows));
  EXPECT_EQ(json["schema"], "rehearse.ledger/1");
  EXPECT_EQ(json["rows"][0]["error"], 0.25);
  EXPECT_EQ(json["rows"][0]["coverage"]["exact"], 0.75);
  EXPECT_TRUE(json["rows"][1]["predicted"].is_null());
  EXPECT_EQ(json["rows"][0]["global_batch"], 8);
  EXPECT_FALSE(json["rows"][1].contains("global_batch"));
}

TEST(Ledger, SummaryCountsWhatWasUsed) {
  const result::Result r = step_of_20_s();
  const std::vector<LedgerRow> rows = {
      compare(measured("iter_time_s", 16, "s"), r), compare(measured("iter_time_s", 40, "s"), r),
      compare(measured("iter_time_s", 20, "s"), r), unused(measured("a", 1, ""), "why")};
  const LedgerSummary s = summarize(rows);
  EXPECT_EQ(s.used, 3);
  EXPECT_EQ(s.within_10_percent, 1);
  EXPECT_EQ(s.in_interval, 2) << "16 is on the edge of 16 to 25, 40 is outside";
  EXPECT_DOUBLE_EQ(s.mean_absolute_error, (0.25 + 0.5 + 0) / 3);
  EXPECT_DOUBLE_EQ(s.worst_error, -0.5);
  const std::string table = ledger_table(rows);
  EXPECT_NE(table.find("+25.0%"), std::string::npos);
  EXPECT_NE(table.find("not used: x: why"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::reports
