// A measured step's kernels and the program's ops: pairs by what they are, by stream and by order; the rest is listed.
#include "reports/trace_match.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "stored.h"

namespace rehearse::reports {
namespace {

MeasuredCall call_of(const std::string& kind, const std::string& key, std::int64_t start, std::int64_t ps,
                     int stream = 7) {
  MeasuredCall call;
  call.op = "aten::" + kind, call.kernel = kind + "_kernel", call.kind = kind, call.key = key;
  call.start_ps = start, call.duration_ps = ps, call.stream = stream;
  return call;
}

// Two collectives alike on each of two streams.
result::StoredResult with_two_streams() {
  result::StoredResult s = stored();
  s.texts.clear(), s.ops.clear();
  for (const char* stream : {"tensor", "data"}) {
    result::OpText text;
    text.body = "forward", text.op = stream, text.stream = stream, text.kind = "all_reduce", text.group = stream;
    text.group_size = 8, text.bytes = 1024;
    s.texts.push_back(text);
  }
  for (int i = 0; i < 4; ++i) {
    result::OpRow row;
    row.slot = i, row.text = static_cast<std::uint32_t>(i % 2);
    row.start_ps = i * kMicrosecond, row.duration_ps = (i + 1) * 1000;
    s.ops.push_back(row);
  }
  return s;
}

TEST(MatchTrace, ProductsByTheirSizesWhicheverWayRound) {
  const result::StoredResult simulated = [] {
    result::StoredResult s = stored();
    for (result::OpText& text : s.texts)
      if (text.kind == "gemm") text.shape = "m=2 n=4 k=16 transpose_b";
    return s;
  }();
  TraceStep step{"t.json", "ProfilerStep#1", 12 * kMicrosecond, {}};
  step.calls = {call_of("gemm", product_key(4, 2, 16), 10, 5 * kMicrosecond),
                call_of("gemm", product_key(2, 4, 16), 0, 6 * kMicrosecond),
                call_of("gemm", product_key(9, 9, 9), 20, 100), call_of("", "", 30, 200)};
  step.calls.back().why = "linked to no operator";
  const TraceMatch m = match_trace(simulated, 0, step);
  ASSERT_EQ(m.pairs.size(), 2U);
  // In order of time: the first op with the call that began first.
  EXPECT_EQ(m.pairs[0].op->slot, 0);
  EXPECT_EQ(m.step.calls[m.pairs[0].call].duration_ps, 6 * kMicrosecond);
  EXPECT_EQ(m.pairs[1].op->slot, 1);
  ASSERT_EQ(m.measured_alone.size(), 2U);
  EXPECT_EQ(m.measured_alone[0].why, "linked to no operator");
  EXPECT_TRUE(m.simulated_alone.empty());
  const auto gemm = std::find_if(m.classes.begin(), m.classes.end(), [](const auto& c) { return c.name == "gemm"; });
  ASSERT_NE(gemm, m.classes.end());
  EXPECT_EQ(gemm->simulated_ps, 8 * kMicrosecond);
  EXPECT_EQ(gemm->matched_measured_ps, 11 * kMicrosecond);
  EXPECT_EQ(gemm->measured_ps, 11 * kMicrosecond + 100);
  const std::string csv = trace_match_csv(m);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5) << csv;
}

// A program with queries, keys and values in one product, then the product of what attention gives; a run with four
// products, the queries' of the size of the last. In the gradient of the input the parts' sums add up, in the weight's
// its rows.
TEST(MatchTrace, ProductsThatARunHasApart) {
  result::StoredResult simulated = stored();
  simulated.texts.clear(), simulated.ops.clear();
  const char* const shapes[] = {"m=64 n=24 k=16 transpose_b", "m=64 n=16 k=16 transpose_b", "m=64 n=16 k=24",
                                "m=24 n=16 k=64 transpose_a"};
  for (const char* shape : shapes) {
    result::OpText text;
    text.body = "forward", text.op = shape, text.stream = "compute", text.kind = "gemm", text.shape = shape;
    result::OpRow row;
    row.slot = static_cast<std::int64_t>(simulated.texts.size()), row.text = static_cast<std::uint32_t>(row.slot);
    row.start_ps = row.slot * kMicrosecond, row.duration_ps = kMicrosecond;
    simulated.texts.push_back(text);
    simulated.ops.push_back(row);
  }
  TraceStep step{"t.json", "", 0, {}};
  const std::int64_t sizes[][3] = {{64, 16, 16}, {64, 4, 16}, {64, 4, 16}, {64, 16, 16}, {64, 16, 4},
                                   {4, 16, 64},  {64, 16, 4}, {4, 16, 64}, {64, 16, 16}, {16, 16, 64}};
  for (const auto& [m, n, k] : sizes)
    step.calls.push_back(
        call_of("gemm", product_key(m, n, k), static_cast<std::int64_t>(step.calls.size()), kMicrosecond));
  const TraceMatch match = match_trace(simulated, 0, step);
  ASSERT_EQ(match.pairs.size(), std::size(sizes));
  const std::int64_t expected[] = {0, 0, 0, 1, 2, 3, 2, 3, 2, 3};
  for (std::size_t i = 0; i < match.pairs.size(); ++i) EXPECT_EQ(match.pairs[i].op->slot, expected[i]) << i;
  EXPECT_TRUE(match.measured_alone.empty());
  ASSERT_EQ(match.classes.size(), 1U);
  EXPECT_EQ(match.classes[0].matched, 4);
  EXPECT_EQ(match.classes[0].matched_simulated_ps, 4 * kMicrosecond);
  EXPECT_EQ(match.classes[0].matched_measured_ps, 10 * kMicrosecond);
  EXPECT_TRUE(trace_match_text(match).find("10 of 10 calls of the trace, 4 of 4 ops") != std::string::npos);
  // Sequences do not add up: half as many tokens are another run.
  step.calls = {call_of("gemm", product_key(32, 24, 16), 0, 1), call_of("gemm", product_key(32, 24, 16), 1, 1)};
  EXPECT_TRUE(match_trace(simulated, 0, step).pairs.empty());
}

// What was performed was measured too: its side is the directory's, the other the trace's.
TEST(MatchTrace, AMeasuredDirectoryIsNotCalledSimulated) {
  TraceStep step{"t.json", "ProfilerStep#1", 12 * kMicrosecond, {}};
  step.calls = {call_of("gemm", product_key(4, 2, 16), 10, 5 * kMicrosecond)};
  const result::StoredResult measured = stored("measured"), simulated = stored();
  const TraceMatch performed = match_trace(measured, 0, step), predicted = match_trace(simulated, 0, step);
  const std::string text = trace_match_text(performed);
  EXPECT_EQ(text.find("simulated"), std::string::npos) << text;
  EXPECT_NE(text.find("Step, directory"), std::string::npos) << text;
  EXPECT_NE(text.find("Step, trace"), std::string::npos) << text;
  EXPECT_NE(text.find("1.20 times the directory's"), std::string::npos) << text;
  EXPECT_NE(trace_match_json(performed).find("\"source\": \"measured\""), std::string::npos);
  const std::string other = trace_match_text(predicted);
  EXPECT_NE(other.find("Step, simulated"), std::string::npos) << other;
  EXPECT_NE(other.find("Step, measured"), std::string::npos) << other;
}

// Alike collectives of two streams are told apart by the stream, though their order in time is another.
TEST(MatchTrace, EqualsByStreamThenOrder) {
  const result::StoredResult simulated = with_two_streams();
  TraceStep step{"t.json", "", 0, {}};
  const std::string key = collective_key(1024, 8);
  step.calls = {call_of("all_reduce", key, 0, 11, 20), call_of("all_reduce", key, 1, 12, 20),
                call_of("all_reduce", key, 2, 21, 30), call_of("all_reduce", key, 3, 22, 30)};
  const TraceMatch m = match_trace(simulated, 0, step);
  ASSERT_EQ(m.pairs.size(), 4U);
  for (const TracePair& pair : m.pairs)
    EXPECT_EQ(simulated.text_of(*pair.op).stream, m.step.calls[pair.call].stream == 20 ? "tensor" : "data");
}

TEST(MatchTrace, WithoutSizesByKindAndOrderAmongWhatIsLeft) {
  const result::StoredResult simulated = with_two_streams();
  TraceStep step{"t.json", "", 0, {}};
  step.calls = {call_of("all_reduce", "", 0, 11), call_of("all_reduce", collective_key(1024, 8), 1, 12)};
  const TraceMatch m = match_trace(simulated, 0, step);
  ASSERT_EQ(m.pairs.size(), 2U);
  EXPECT_EQ(m.pairs[1].op->slot, 0) << "the one with its size takes the first";
  EXPECT_EQ(m.pairs[0].op->slot, 1);
  ASSERT_EQ(m.simulated_alone.size(), 2U);
  EXPECT_EQ(m.simulated_alone[0].count + m.simulated_alone[1].count, 2);
}

}  // namespace
}  // namespace rehearse::reports
