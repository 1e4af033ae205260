// Costs from a calibration: which entry answers, how company slows, and what is said of shapes nobody measured.
#include <gtest/gtest.h>

#include "sim/base/diagnostics.h"
#include "sim/cost/cost.h"
#include "sim/cost/shape_space.h"
#include "sim/program/describe.h"
#include "sim/program/work.h"
#include "tests/support/calibration.h"
#include "tests/unit/cost/ops.h"

namespace rehearse::cost {
namespace {

using rehearse::test::CalibrationText;
using rehearse::test::KernelLine;
using rehearse::test::TemporaryFile;
using test::gemm;
using test::OneOp;

constexpr auto kF32 = program::DType::f32;

OneOp add_f32(std::int64_t elements) {
  OneOp one = test::add(elements);
  one.op.dtype = kF32;
  for (program::Buffer& b : one.role.buffers) b.dtype = kF32;
  return one;
}

// The line of a calibration for an op.
KernelLine line(const OneOp& one, double seconds, int busy = 1, const std::string& origin = "grid") {
  const program::Work work = program::work_of(one.role, one.op);
  return {std::string(program::kind_name(one.op.shape)),
          program::shape_text(one.role, one.op),
          seconds,
          work.flops,
          static_cast<double>(work.bytes_read + work.bytes_written),
          1,
          busy,
          origin};
}

std::unique_ptr<CostModel> costs_of(const CalibrationText& c, const HostShare& share = {}) {
  const TemporaryFile file("costs.json", c.text());
  return load_costs({file.path()}, share);
}

Estimate ask(const CostModel& costs, const OneOp& one, int busy = 0) {
  Interference beside;
  beside.busy_cores = busy;
  return costs.kernel(one.role, one.op, beside);
}

TEST(CalibratedCosts, AnswerWithTheEntryOfTheVeryKernel) {
  CalibrationText c;
  c.kernels = {line(gemm(64, 32, 16, kF32), 3e-5), line(gemm(64, 32, 17, kF32), 5e-5)};
  const Estimate e = ask(*costs_of(c), gemm(64, 32, 16, kF32));
  EXPECT_EQ(e.duration, Time::from_ps(30'000'000));
  EXPECT_EQ(e.coverage, Coverage::exact);
  EXPECT_NEAR(e.low, 0.9, 1e-9);   // p10 of the file
  EXPECT_NEAR(e.high, 1.2, 1e-9);  // p90
}

TEST(CalibratedCosts, PreferWhatWasMeasuredInAProgram) {
  CalibrationText c;
  const OneOp op = gemm(64, 32, 16, kF32);
  c.kernels = {line(op, 9e-5, 1, "program"), line(op, 3e-5)};
  EXPECT_EQ(ask(*costs_of(c), op).duration, Time::from_ps(90'000'000));
}

TEST(CalibratedCosts, KeepTheBusyCoresApart) {
  CalibrationText c;
  const OneOp op = gemm(64, 32, 16, kF32);
  c.cores = 4;
  c.kernels = {line(op, 1e-5, 1), line(op, 4e-5, 4)};
  const auto costs = costs_of(c);
  EXPECT_EQ(ask(*costs, op, 1).duration, Time::from_ps(10'000'000));
  EXPECT_EQ(ask(*costs, op, 4).duration, Time::from_ps(40'000'000));
  EXPECT_EQ(ask(*costs, op, 4).coverage, Coverage::exact);
  EXPECT_EQ(ask(*costs, op, 2).duration, Time::from_ps(20'000'000));  // on the line between
  EXPECT_EQ(ask(*costs, op, 2).coverage, Coverage::interpolated);
  EXPECT_EQ(ask(*costs, op, 9).duration, Time::from_ps(40'000'000));  // no more cores than there are
}

// Three cores to spare, all of them busy slow a product by the mean of 1.2 and 1.6: 1.4; one of them by a third of
// that.
TEST(CalibratedCosts, ScaleToOtherCompanyBySharing) {
  CalibrationText c;
  const OneOp op = gemm(64, 32, 16, kF32);
  c.cores = 4;
  c.sharing = R"({"class": "gemm", "beside": "gemm", "slowdown": 1.2},
                 {"class": "gemm", "beside": "memory", "slowdown": 1.6})";
  c.kernels = {line(op, 1e-5, 1)};
  const auto costs = costs_of(c);
  EXPECT_NEAR(ask(*costs, op, 4).duration.seconds(), 1.4e-5, 1e-11);
  EXPECT_NEAR(ask(*costs, op, 2).duration.seconds(), 1e-5 * (1 + 0.4 / 3), 1e-11);
  c.kernels = {line(op, 1e-5, 4)};  // and from busy to alone
  EXPECT_NEAR(ask(*costs_of(c), op, 1).duration.seconds(), 1e-5 / 1.4, 1e-11);
}

TEST(CalibratedCosts, ScaleAProgramsEntryAsTheGridsDid) {
  CalibrationText c;
  const OneOp op = gemm(64, 32, 16, kF32);
  c.kernels = {line(op, 2e-5, 2, "program"), line(op, 1e-5, 1), line(op, 1.6e-5, 2)};
  EXPECT_NEAR(ask(*costs_of(c), op, 1).duration.seconds(), 2e-5 / 1.6, 1e-11);
}

// Kernels that all reach the same share of the roofline are foretold exactly, between the sizes and beyond them.
TEST(CalibratedCosts, FollowTheRooflineBetweenShapes) {
  CalibrationText c;
  const auto time = [](std::int64_t n) { return static_cast<double>(n) * 12 / 6e9 * 1.5; };  // one of two cores
  for (const std::int64_t n : {1'000'000, 4'000'000, 16'000'000}) c.kernels.push_back(line(add_f32(n), time(n)));
  const auto costs = costs_of(c);
  const Estimate between = ask(*costs, add_f32(2'500'000)), beyond = ask(*costs, add_f32(160'000'000));
  EXPECT_NEAR(between.duration.seconds() / time(2'500'000), 1, 1e-3);
  EXPECT_EQ(between.coverage, Coverage::interpolated);
  EXPECT_NEAR(beyond.duration.seconds() / time(160'000'000), 1, 1e-3);
  EXPECT_EQ(beyond.coverage, Coverage::extrapolated);
  EXPECT_GT(beyond.high, between.high);
}

TEST(CalibratedCosts, TakeAKindNobodyMeasuredForItsClass) {
  CalibrationText c;
  c.kernels = {line(add_f32(1'000'000), 1e-3)};
  const Estimate e = ask(*costs_of(c), gemm(256, 256, 256, kF32));
  EXPECT_EQ(e.coverage, Coverage::spec);
  EXPECT_GT(e.duration, Time());
  EXPECT_LT(e.low, 0.5);
}

TEST(CalibratedCosts, GiveARankItsShareOfTheHost) {
  CalibrationText c;
  c.cores = 4;
  c.kernels = {line(add_f32(1000), 1e-5)};
  const auto four = costs_of(c, {4, 1}), eight = costs_of(c, {8, 1}), one = costs_of(c, {1, 4});
  EXPECT_TRUE(four->device().cpu);
  EXPECT_EQ(four->device().memory, Bytes(2'000'000'000));
  EXPECT_DOUBLE_EQ(four->device().peak_fp32.per_s(), 1.1e11 / 4);
  EXPECT_DOUBLE_EQ(eight->device().peak_fp32.per_s(), 1.1e11 / 8);
  EXPECT_DOUBLE_EQ(one->device().peak_fp32.per_s(), 1.1e11);
}

TEST(CalibratedCosts, TakeMoreMeasurementsFromLaterFiles) {
  CalibrationText c, more;
  const OneOp op = gemm(64, 32, 16, kF32), other = gemm(8, 8, 8, kF32);
  c.kernels = {line(op, 1e-5)};
  more.kernels = {line(op, 2e-5), line(other, 7e-6)};
  const TemporaryFile first("first.json", c.text()), second("second.json", more.text());
  const auto costs = load_costs({first.path(), second.path()});
  EXPECT_EQ(ask(*costs, op).duration, Time::from_ps(20'000'000));
  EXPECT_EQ(ask(*costs, other).duration, Time::from_ps(7'000'000));
  EXPECT_THROW(load_costs({first.path(), "device.yaml"}), InputError);
}

TEST(ShapeSpace, MeasuresDistanceInOctavesAndWords) {
  const ShapeKey a = parse_shape("m=64 n=32 transpose_b"), b = parse_shape("m=256 n=32");
  EXPECT_DOUBLE_EQ(distance(a, a), 0);
  EXPECT_DOUBLE_EQ(distance(a, b), std::sqrt(4.0 + 1.0));
  EXPECT_DOUBLE_EQ(distance(parse_shape("m=64"), parse_shape("m=64 batch=8")), 3);  // no batch is a batch of one
}

TEST(ShapeSpace, LeavesOutWhatItForetells) {
  ShapeSpace space;
  for (const int n : {1, 2, 4, 8}) space.add("elements=" + std::to_string(n * 100), n == 4 ? 3.0 : 1.0);
  std::vector<double> ratios;
  space.leave_one_out(10, ratios);
  ASSERT_EQ(ratios.size(), 4u);
  EXPECT_NEAR(ratios[2], 3.0, 1e-9);  // all others say 1
  EXPECT_LT(ratios[0], 1.0);
}

}  // namespace
}  // namespace rehearse::cost
