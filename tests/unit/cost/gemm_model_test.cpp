// Tiles and waves, the table's interpolation and the fit, on machines small enough to compute by hand.
#include "sim/cost/gemm_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/cost/gemm_table.h"
#include "sim/cost/kernel_shape.h"
#include "tests/unit/cost/ops.h"

namespace rehearse::cost {
namespace {

// 132 SMs of 1 TFLOP/s each, one tile size, memory out of the way.
GemmMachine hopper_like() {
  return {132, 132e12, 1e18, {{128, 256}}};
}
GemmConstants plain() {
  GemmConstants c;
  c.efficiency = 1, c.launch = 3e-6, c.wave = 2e-6, c.split = 1;  // a second: K is never split
  return c;
}

TEST(GemmModel, OneTileMoreThanTheSmsTakesAWholeSecondWave) {
  const double tile = 2.0 * 128 * 256 * 4096 / 1e12;  // seconds of one tile on one SM
  EXPECT_NEAR(gemm_seconds(hopper_like(), plain(), {132 * 128, 256, 4096}), 3e-6 + 1 * (2e-6 + tile), 1e-12);
  EXPECT_NEAR(gemm_seconds(hopper_like(), plain(), {133 * 128, 256, 4096}), 3e-6 + 2 * (2e-6 + tile), 1e-12);
}

TEST(GemmModel, UnalignedRowsMakeTheMainLoopLonger) {
  const double tile = 2.0 * 128 * 256 * 4095 / 1e12;
  GemmShape odd{132 * 128, 256, 4095};
  odd.loop = 1.4;
  EXPECT_NEAR(gemm_seconds(hopper_like(), plain(), odd), 3e-6 + 2e-6 + 1.4 * tile, 1e-12);
}

// GPT-2's pieces as they are and padded to a multiple of 64; BLOOM's heads as they were first.
TEST(GemmModel, RowsAreUnalignedThatAreNoMultipleOf16Bytes) {
  const auto alignment = [](const test::OneOp& one) { return product_of(one.role, one.op).value().alignment; };
  EXPECT_EQ(alignment(test::gemm(1024, 50257, 768)), 2);
  EXPECT_EQ(alignment(test::gemm(1024, 50258, 768)), 4);
  EXPECT_EQ(alignment(test::gemm(1024, 50260, 768)), 8);
  EXPECT_EQ(alignment(test::gemm(1024, 50304, 768)), 16);
  EXPECT_EQ(alignment(test::gemm(1024, 768, 50257)), 2);
  EXPECT_EQ(alignment(test::gemm(1023, 768, 768)), 16) << "rows may be of any number";
  EXPECT_EQ(alignment(test::gemm(1024, 50258, 768, program::DType::f32)), 8);
  EXPECT_EQ(alignment(test::gemm(1024, 50260, 768, program::DType::f32)), 16);
  const auto scores = [&](std::int64_t columns) {
    test::OneOp one = test::attention(program::AttentionPart::scores, 1, 16, 2048);
    std::get<program::Attention>(one.op.shape).head_dim = columns;
    return alignment(one);
  };
  EXPECT_EQ(scores(150), 4);
  EXPECT_EQ(scores(144), 16);
}

TEST(GemmModel, HeldSmsPushAFullWaveIntoASecondOne) {
  // 132 tiles on 132 SMs beside a collective of 24 blocks (NVIDIA forum 337991 saw 80% of peak become 47%).
  const auto seconds = gemm_seconds(hopper_like(), plain(), {132 * 128, 256, 4096}, {132 - 24, 1e18});
  EXPECT_NEAR((seconds.beside - 3e-6) / (seconds.alone - 3e-6), 2.0, 1e-9);
}

TEST(GemmModel, BatchedProductsShareWaves) {
  EXPECT_NEAR(gemm_seconds(hopper_like(), plain(), {128, 256, 4096, 132}),
              gemm_seconds(hopper_like(), plain(), {132 * 128, 256, 4096}), 1e-15);
}

TEST(GemmModel, ProductsWithLittleArithmeticAreBoundByMemory) {
  GemmMachine machine = hopper_like();
  machine.bandwidth = 1e12;
  const GemmShape shape{8192, 8192, 16};
  EXPECT_NEAR(gemm_seconds(machine, plain(), shape), 3e-6 + 2.0 * (8192 * 8192 + 2 * 8192 * 16) / 1e12, 1e-12);
}

TEST(GemmModel, SplittingKFillsADeviceThatOneTileWouldLeaveIdle) {
  GemmConstants cheap_split = plain();
  cheap_split.split = 1e-6;
  const GemmShape shape{128, 256, 16384};  // one tile; 16 pieces of K run at once
  const double whole = gemm_seconds(hopper_like(), plain(), shape);
  EXPECT_LT(gemm_seconds(hopper_like(), cheap_split, shape), whole / 8);
}

TEST(GemmModel, WithoutTilesTimeIsFlopsOverRate) {
  GemmMachine cpu{4, 1e12, 1e18, {}};
  GemmConstants c;
  c.efficiency = 0.5, c.launch = 0;
  const auto seconds = gemm_seconds(cpu, c, {1000, 1000, 1000}, {1, 1e18});
  EXPECT_NEAR(seconds.alone, 2e9 / 0.5e12, 1e-15);
  EXPECT_NEAR(seconds.beside, 4 * seconds.alone, 1e-15) << "one core of four";
}

TEST(GemmModel, TheFitFindsTheConstantsThatMadeThePoints) {
  GemmMachine machine{8, 8e12, 1e18, {{128, 128}}};
  GemmConstants truth;
  truth.efficiency = 0.8, truth.launch = 5e-6, truth.wave = 4e-6, truth.split = 1;
  std::vector<GemmPoint> points;
  for (const std::int64_t m : {128, 512, 2048})
    for (const std::int64_t k : {256, 1024, 4096}) {
      const GemmShape shape{m, 1024, k};
      points.push_back({shape, gemm_seconds(machine, truth, shape)});
    }
  GemmConstants start = truth;
  start.efficiency = 0.5, start.launch = 2e-6, start.wave = 1e-5;
  const GemmConstants found = fit_gemm_constants(machine, points, start);
  EXPECT_LT(mean_log_error(machine, found, points), 0.02);
  EXPECT_NEAR(found.efficiency, 0.8, 0.02);
}

GemmTable table_with_errors(double error) {
  std::vector<GemmPoint> points;
  for (const std::int64_t m : {1024, 2048, 4096})
    for (const std::int64_t n : {1024, 2048})
      for (const std::int64_t k : {1024, 2048}) {
        const GemmShape shape{m, n, k};
        points.push_back({shape, error * gemm_seconds(hopper_like(), plain(), shape)});
      }
  return {hopper_like(), plain(), points};
}

TEST(GemmTable, AMeasuredShapeIsExactAndOnlyThatShape) {
  const GemmTable table = table_with_errors(1.1);
  EXPECT_EQ(table.exact_seconds({4096, 2048, 1024}), 1.1 * gemm_seconds(hopper_like(), plain(), {4096, 2048, 1024}));
  EXPECT_EQ(table.exact_seconds({4096, 2048, 1025}), std::nullopt);
  EXPECT_EQ(table.exact_seconds({4096, 2048, 1024, 2}), std::nullopt) << "a batch is another product";
}

TEST(GemmTable, ALaterPointReplacesAnEarlierOneOfTheSameShape) {
  const GemmTable table(hopper_like(), plain(), {{{64, 64, 64}, 1.0}, {{64, 64, 64}, 2.0}});
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(table.exact_seconds({64, 64, 64}), 2.0);
}

TEST(GemmTable, TheModelsErrorIsCarriedToNearbyShapesAndFadesFarAway) {
  const GemmTable table = table_with_errors(1.1);
  EXPECT_NEAR(table.correction({3000, 1500, 1500}), 1.1, 0.02);
  EXPECT_NEAR(table.correction({1500, 3000, 1500}), 1.1, 0.02) << "the mirror image";
  EXPECT_NEAR(table.correction({1 << 20, 1 << 20, 1 << 20}), 1.0, 0.001);
  EXPECT_TRUE(table.covers({3000, 1500, 1500}));
  EXPECT_TRUE(table.covers({1500, 3000, 1500}));
  EXPECT_FALSE(table.covers({3000, 1500, 8192}));
}

}  // namespace
}  // namespace rehearse::cost
