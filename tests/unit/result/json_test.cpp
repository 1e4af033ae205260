// result.json: its keys, their order and the exactness of its numbers.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "sim/result/json_writer.h"
#include "small_result.h"

namespace rehearse::result {
namespace {

constexpr char kGolden[] = R"({
  "schema": "rehearse.result/1",
  "source": "simulated",
  "scenario": {
    "name": "tiny",
    "file": "tiny.yaml",
    "plan.tensor": "2",
    "training.global_batch": "8"
  },
  "ranks": 4,
  "steps": 2,
  "step_time_s": 2.000000000001,
  "tokens_per_s": 4096.0,
  "tokens_per_s_per_gpu": 1024.0,
  "model_tflops_per_gpu": 0.9999999999995,
  "hardware_tflops_per_gpu": 1.249999999999375,
  "mfu": 0.249999999999875,
  "hfu": 0.31249999999984374,
  "flop_formula": "matrix products, \"full\" attention",
  "breakdown_s": {
    "compute": 1.400000000001,
    "exposed_tensor": 0.1,
    "exposed_context": 0.0,
    "exposed_expert": 0.0,
    "exposed_data": 0.2,
    "exposed_pipeline": 0.0,
    "straggler": 0.0,
    "bubble": 0.25,
    "optimizer": 0.05,
    "host": 0.0,
    "other": 0.0
  },
  "memory": {
    "capacity_bytes": 80000000000,
    "headroom_bytes": 4000000000,
    "fits": true,
    "stages": [
      {
        "stage": 0,
        "parameters": 1,
        "gradients": 2,
        "optimizer": 3,
        "activations": 4,
        "workspace": 5,
        "communication": 6,
        "framework": 7,
        "peak": 28,
        "where": "backward micro-batch 0: layer0"
      },
      {
        "stage": 1,
        "parameters": 1,
        "gradients": 1,
        "optimizer": 1,
        "activations": 1,
        "workspace": 1,
        "communication": 1,
        "framework": 1,
        "peak": 7,
        "where": ""
      }
    ]
  },
  "coverage": {
    "exact": 0.5,
    "interpolated": 0.25,
    "extrapolated": 0.125,
    "spec": 0.125,
    "measured_in": [
      "a profiler's trace of 1 GPU, rank0.json"
    ]
  },
  "interval_s": [
    1.9,
    2.1
  ],
  "limited_by": "Compute.",
  "cost": {
    "gpu_hours_per_step": 0.0022222222222233333,
    "gpu_hours_per_billion_tokens": 271.2673611111111
  },
  "engine": {
    "ops": 6,
    "events": 9,
    "wall_s": 0.125,
    "ranks_simulated": 4,
    "peak_rss_bytes": 4096
  },
  "loss": [
    2.5,
    2.25
  ]
}
)";

TEST(ResultJson, HasEveryKeyInOrderAndExactNumbers) {
  EXPECT_EQ(to_json(small_result()), kGolden);
}

TEST(ResultJson, LossesThatMakeUpTheLossComeBehindIt) {
  Result r = small_result();
  r.loss_parts = {{"model", {2, 1.75}}, {"mtp1", {5, 4.5}}};
  const std::string text = to_json(r);
  EXPECT_TRUE(
      text.ends_with("  \"loss\": [\n    2.5,\n    2.25\n  ],\n  \"loss_parts\": {\n    \"model\": [\n      "
                     "2.0,\n      1.75\n    ],\n    \"mtp1\": [\n      5.0,\n      4.5\n    ]\n  }\n}\n"))
      << text;
}

TEST(ResultJson, BreakdownSumsToTheStepTimeToThePicosecond) {
  const Result r = small_result();
  ASSERT_EQ(std::accumulate(r.breakdown_ps.begin(), r.breakdown_ps.end(), std::int64_t{0}), r.step_time_ps);
  // The text itself sums too: parsed back to picoseconds, nothing was lost on the way.
  const auto json = nlohmann::json::parse(to_json(r));
  std::int64_t sum = 0;
  for (const auto& [key, value] : json["breakdown_s"].items()) sum += std::llround(value.get<double>() * 1e12);
  EXPECT_EQ(sum, std::llround(json["step_time_s"].get<double>() * 1e12));
}

TEST(ResultJson, NoTextOfItDrivesATerminal) {
  Result r;
  r.scenario_name = "a\u009b31m\u202eb\x7f";
  const std::string text = to_json(r);
  EXPECT_NE(text.find("\"a\\u009b31m\\u202eb\\u007f\""), std::string::npos) << text;
  EXPECT_EQ(nlohmann::json::parse(text)["scenario"]["name"], r.scenario_name) << "JSON's own escapes: nothing is lost";
}

TEST(ResultJson, EmptyResultIsStillJson) {
  // No ranks and no step: every rate is 0, never a division by zero that prints as null.
  const auto json = nlohmann::json::parse(to_json(Result{}));
  EXPECT_EQ(json["mfu"], 0.0);
  EXPECT_EQ(json["model_tflops_per_gpu"], 0.0);
  EXPECT_EQ(json["cost"]["gpu_hours_per_billion_tokens"], 0.0);
  EXPECT_TRUE(json["memory"]["stages"].empty());
}

TEST(ExactSeconds, EveryPicosecondIsInTheText) {
  EXPECT_EQ(exact_seconds(0), "0.0");
  EXPECT_EQ(exact_seconds(1), "0.000000000001");
  EXPECT_EQ(exact_seconds(1'234'567'890'123), "1.234567890123");
  EXPECT_EQ(exact_seconds(60'000'000'000'000), "60.0");
  EXPECT_EQ(exact_seconds(-1'500'000'000'000), "-1.5");
  EXPECT_EQ(exact_seconds(INT64_MAX), "9223372.036854775807");
}

TEST(Numbers, AreShortAndAlwaysJson) {
  EXPECT_EQ(number(0.1), "0.1");
  EXPECT_EQ(number(3), "3.0");
  EXPECT_EQ(number(1e30), "1e+30");
  EXPECT_EQ(number(0.0 / 0.0), "null");
}

TEST(Quoted, EscapesQuotesControlsAndBrokenUtf8) {
  EXPECT_EQ(json_quoted("a\"b\\c\n"), R"("a\"b\\c\n")");
  EXPECT_EQ(json_quoted("x\xff"), "\"x\xEF\xBF\xBD\"");
}

TEST(Derived, MfuHfuAndCostFollowTheirFormulas) {
  Result r = small_result();
  r.step_time_ps = 2'000'000'000'000;
  EXPECT_DOUBLE_EQ(mfu(r), 8e12 / (2.0 * 4 * 4e12));
  EXPECT_DOUBLE_EQ(hfu(r), 1e13 / (2.0 * 4 * 4e12));
  EXPECT_DOUBLE_EQ(tokens_per_step(r), 8192);
  EXPECT_DOUBLE_EQ(gpu_hours(r, 4096 * 3600.0), 4);
}

}  // namespace
}  // namespace rehearse::result
