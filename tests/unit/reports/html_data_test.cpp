// The report page's timelines and plan: rows and bars, how they are packed for the script, and which rank is drawn
// where.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "reports/html/payload.h"
#include "reports/html/plan.h"
#include "reports/html/timeline.h"
#include "stored.h"

namespace rehearse::reports::html {
namespace {

TEST(Timeline, HasARowAStageAndStreamFromTheStartOfTheStep) {
  const Timeline t = timeline_of(stored(), 100);
  ASSERT_EQ(t.rows.size(), 3u);
  EXPECT_EQ(t.rows[0].stream, "compute");
  EXPECT_EQ(t.rows[1].stage, 1);
  EXPECT_EQ(t.rows[1].rank, 4);
  EXPECT_EQ(t.rows[2].stream, "send_previous");
  EXPECT_EQ(t.rows[0].bars[1].start_ps, 6 * kMicrosecond);
  EXPECT_EQ(t.window_ps, 10 * kMicrosecond);
  EXPECT_EQ(t.first_ps, 0);
  EXPECT_EQ(t.last_ps, 10 * kMicrosecond);
  EXPECT_EQ(t.merged_below_ps, 0);
  EXPECT_DOUBLE_EQ(idle_share(t, t.rows[0]), 0.2);
}

TEST(Timeline, WhatRanAheadOfTheStepLiesBeforeItAndIsNotIts) {
  auto s = stored();
  s.ops[0].start_ps -= 3 * kMicrosecond;  // a step of 10 us still ends with its last compute op
  const Timeline t = timeline_of(s, 100);
  EXPECT_EQ(t.first_ps, -3 * kMicrosecond);
  EXPECT_EQ(t.rows[0].bars[0].start_ps, -3 * kMicrosecond);
  EXPECT_DOUBLE_EQ(idle_share(t, t.rows[0]), 0.5);
}

// A measured run's inputs are loaded during the step before, its results written after it.
TEST(Timeline, AMeasuredStepIsThatOfItsComputeStreams) {
  auto s = stored("measured");
  const Timeline before = timeline_of(s, 100);
  s.texts.push_back(s.texts[0]);
  s.texts.back().stream = "copy", s.texts.back().kind = "input";
  const std::int64_t t0 = s.ops[0].start_ps;
  s.ops.push_back({0, 1, -1, 0, 4, t0 - 5 * kMicrosecond, kMicrosecond, 0});
  s.ops.push_back({0, 1, 9, 0, 4, t0 + 11 * kMicrosecond, kMicrosecond, 0});
  const Timeline t = timeline_of(s, 100);
  EXPECT_EQ(t.window_ps, 10 * kMicrosecond);
  EXPECT_EQ(t.first_ps, -5 * kMicrosecond);
  EXPECT_EQ(t.last_ps, 12 * kMicrosecond);
  EXPECT_EQ(t.rows[0].bars[0].start_ps, 0);
  EXPECT_DOUBLE_EQ(idle_share(t, t.rows[0]), idle_share(before, before.rows[0])) << "what ran ahead is no idle time";
  s.ops.erase(s.ops.begin(), s.ops.begin() + 4);  // nothing computes: all there is
  EXPECT_EQ(timeline_of(s, 100).window_ps, 17 * kMicrosecond);
}

TEST(Timeline, BarsOverTheLimitAreMergedWithNeighboursAndNothingIsLost) {
  auto s = stored();
  s.ops.clear();
  for (int i = 0; i < 1000; ++i)
    s.ops.push_back({0, 1, i, i, i % 10 == 0 ? 0U : 1U, i * 10'000, i % 10 == 0 ? 2'000 : 5'000, 0});
  const Timeline t = timeline_of(s, 100);
  ASSERT_EQ(t.rows.size(), 1u);
  EXPECT_LE(t.rows[0].bars.size(), 100u);
  EXPECT_GT(t.rows[0].bars.size(), 25u) << "no more is merged than has to be";
  EXPECT_GT(t.merged_below_ps, 0);
  std::int64_t ops = 0, busy = 0, end = t.first_ps;
  for (const Bar& bar : t.rows[0].bars) {
    EXPECT_GE(bar.start_ps, end);
    end = bar.start_ps + bar.duration_ps;
    ops += bar.ops;
    busy += bar.duration_ps;
    EXPECT_EQ(bar.text, 1u) << "the longest gives its name";
  }
  EXPECT_EQ(ops, 1000);
  EXPECT_EQ(busy, 100 * 2'000 + 900 * 5'000);
}

TEST(Timeline, NoOpsMakeNoRows) {
  auto s = stored();
  s.ops.clear();
  EXPECT_TRUE(timeline_of(s, 100).rows.empty());
}

TEST(Timeline, ClassesOfOps) {
  const auto s = stored();
  EXPECT_EQ(phase_class(s.texts[1]), "backward");
  EXPECT_EQ(kind_class(s.texts[1]), "matmul");
  EXPECT_EQ(phase_class(s.texts[3]), "pipeline");
  EXPECT_EQ(kind_class(s.texts[3]), "pipeline");
}

std::uint32_t word(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << 8 * i;
  return value;
}

TEST(Payload, NamesDoNotTurnThePagesText) {
  auto s = stored();
  s.texts[0].op = "a\u202eb\u009bc";
  const std::string bytes = payload({{"run \u2066", &s, timeline_of(s, 100)}});
  const auto header = nlohmann::json::parse(bytes.substr(4, word(bytes, 0)));
  EXPECT_EQ(header["runs"][0]["label"], "run ?");
  EXPECT_EQ(header["runs"][0]["texts"][0][1], "a?b?c");
}

TEST(Payload, IsAHeaderAndFiveArraysARow) {
  auto s = stored();
  s.ops[0].micro_batch = 3;
  const std::string bytes = payload({{"a \"name\"", &s, timeline_of(s, 100)}});
  const std::uint32_t length = word(bytes, 0);
  EXPECT_EQ(length % 4, 0u);
  const auto header = nlohmann::json::parse(bytes.substr(4, length));
  const auto& run = header["runs"][0];
  EXPECT_EQ(run["label"], "a \"name\"");
  EXPECT_EQ(run["rows"].size(), 3u);
  EXPECT_EQ(run["texts"].size(), 4u);
  EXPECT_DOUBLE_EQ(run["rows"][0]["unit_s"].get<double>(), 1e-12) << "10 us in ps fit 32 bits";
  EXPECT_EQ(bytes.size(), 4 + length + 4 * 5 * 4) << "four bars of five words";
  const std::size_t row = 4 + length;
  EXPECT_EQ(word(bytes, row), 0u);
  EXPECT_EQ(word(bytes, row + 4), 6U * kMicrosecond);
  EXPECT_EQ(word(bytes, row + 8), 4U * kMicrosecond);
  EXPECT_EQ(word(bytes, row + 16), 0u) << "text of the first";
  EXPECT_EQ(word(bytes, row + 24), 4u) << "micro-batch 3";
  EXPECT_EQ(word(bytes, row + 32), 1u) << "one op";
}

TEST(Payload, ALongGapCoarsensItsOwnRowAlone) {
  auto s = stored();
  s.result.step_time_ps = 30'000'000'000'000;
  s.ops[1].start_ps = s.ops[0].start_ps + 20'000'000'000'000;  // 20 s later
  const std::string bytes = payload({{"a", &s, timeline_of(s, 100)}});
  const auto header = nlohmann::json::parse(bytes.substr(4, word(bytes, 0)));
  EXPECT_DOUBLE_EQ(header["runs"][0]["rows"][0]["unit_s"].get<double>(), 1e-8);
  const std::size_t row = 4 + word(bytes, 0);
  EXPECT_EQ(word(bytes, row + 4), 2'000'000'000u);
}

TEST(Payload, GzipAndBase64ReadBack) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");  // RFC 4648, section 10
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  const std::string text(100'000, 'x'), packed = gzip(text);
  EXPECT_LT(packed.size(), 1000u);
  z_stream stream{};
  ASSERT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  std::string back(text.size() + 1, '\0');
  std::string in = packed;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(back.data());
  stream.avail_out = static_cast<uInt>(back.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  back.resize(stream.total_out);
  inflateEnd(&stream);
  EXPECT_EQ(back, text);
}

TEST(PlanGrid, NumbersRanksAndLayers) {
  const auto grid = plan_grid(stored().result);
  ASSERT_TRUE(grid);
  EXPECT_EQ(grid->rank(1, 0, 0), 1);
  EXPECT_EQ(grid->rank(0, 0, 1), 2) << "data follows tensor";
  EXPECT_EQ(grid->rank(0, 1, 0), 4);
  const std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> layers = {{{1, 3}}, {{4, 7}}};
  EXPECT_EQ(grid->layers, layers);
  const std::string figure = plan_figure(stored().result, *grid);
  EXPECT_NE(figure.find("stage 1, replica 1: ranks 6–7, layers 4–7"), std::string::npos) << figure;
}

TEST(PlanGrid, ChunksGiveAStageSeveralRangesOfLayers) {
  auto r = stored().result;
  r.scenario["plan.layers_per_stage"] = "2 2 1 3";
  const auto grid = plan_grid(r);
  ASSERT_TRUE(grid);
  const std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> layers = {{{1, 2}, {5, 5}}, {{3, 4}, {6, 8}}};
  EXPECT_EQ(grid->layers, layers);
}

TEST(PlanGrid, AnotherOrderOfRanks) {
  auto r = stored().result;
  r.scenario["plan.rank_order"] = "pipeline tensor data";
  const auto grid = plan_grid(r);
  EXPECT_EQ(grid->rank(0, 1, 0), 1);
  EXPECT_EQ(grid->rank(1, 0, 0), 2);
  r.scenario.erase("plan.rank_order");
  EXPECT_EQ(plan_grid(r)->tensor_stride, 0) << "an older result: no number is better than a wrong one";
}

TEST(PlanGrid, ABoxHasTheRanksOfAContextGroup) {
  auto r = stored().result;  // tensor 2, pipeline 2, data 2
  r.ranks *= 4;
  r.scenario["plan.context"] = "4";
  const auto grid = plan_grid(r);
  ASSERT_TRUE(grid);
  EXPECT_EQ(grid->rank(0, 0, 0, 1), 2) << "context follows tensor";
  EXPECT_EQ(grid->rank(0, 0, 1), 8);
  const std::string figure = plan_figure(r, *grid);
  EXPECT_NE(figure.find("stage 1, replica 1: ranks 24–31"), std::string::npos) << figure;
  EXPECT_NE(figure.find("8 ranks, a tick each, that share a micro-batch (2 tensor-parallel by 4 context-parallel)"),
            std::string::npos)
      << figure;
}

TEST(PlanGrid, ReplicasAreNumberedAlongExpertsAndData) {
  auto r = stored().result;  // tensor 2, pipeline 2, data 2
  r.ranks *= 4;
  r.scenario["plan.data"] = "8";
  r.scenario["plan.expert"] = "4";
  r.scenario["plan.rank_order"] = "tensor context expert data pipeline";
  const auto grid = plan_grid(r);
  ASSERT_TRUE(grid);
  EXPECT_EQ(grid->rank(1, 1, 5), 1 + 2 * 5 + 16);
  EXPECT_NE(plan_figure(r, *grid).find("spread over 4 ranks: those of 4 replicas that follow one another."),
            std::string::npos);
  r.scenario["plan.rank_order"] = "tensor context expert pipeline data";
  EXPECT_EQ(plan_grid(r)->tensor_stride, 0) << "replicas are not evenly apart";
  r.scenario["plan.expert"] = "3";
  EXPECT_FALSE(plan_grid(r));
}

TEST(PlanGrid, ThereIsNoneIfTheAxesDoNotMakeTheRanks) {
  auto r = stored().result;
  r.ranks = 16;
  EXPECT_FALSE(plan_grid(r));
  r.scenario["plan.tensor"] = "9223372036854775807";
  EXPECT_FALSE(plan_grid(r));
  r.scenario.clear();
  EXPECT_FALSE(plan_grid(r));
}

TEST(PlanGrid, ManyColumnsAreCountedInsteadOfDrawn) {
  EXPECT_EQ(drawn(3, 16), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(drawn(512, 5), (std::vector<std::int64_t>{0, 1, 2, -1, 511}));
  auto r = stored().result;
  r.ranks = 1024;
  r.scenario["plan.data"] = "256";
  const std::string figure = plan_figure(r, *plan_grid(r));
  EXPECT_NE(figure.find("… 252 more replicas"), std::string::npos) << figure;
  EXPECT_NE(figure.find("replica 255"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::reports::html
