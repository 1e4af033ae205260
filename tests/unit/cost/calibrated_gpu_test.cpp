// A calibration of a GPU as `simulate` reads it: a planted file with known times. 132 multiprocessors, tiles of 128 x
// 128 and a product of N = 1024: ceil(M / 128) * 8 tiles, so M = 2048 has 128 tiles (one wave), M = 2176 has 136 (two),
// and M = 4096 has 256 (two). Times of the plain products: one wave 20 us, two waves 38 us.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "sim/base/diagnostics.h"
#include "sim/cost/device_file.h"
#include "sim/cost/flash_model.h"
#include "sim/cost/wave_table.h"
#include "tests/support/temporary.h"
#include "tests/unit/cost/ops.h"

namespace rehearse::cost {
namespace {

namespace fs = std::filesystem;

const std::string kHead = R"(rehearse_device: 1
name: planted
kind: gpu
sms: 132
memory: 80GiB
memory_bandwidth: 3350GB/s
host_bandwidth: 50GB/s
kernel_time: 2us
peak: {bf16: 989TFLOPS, fp16: 989TFLOPS, fp32: 67TFLOPS}
memory_efficiency: {elementwise: 0.8}
gemm:
  sustained: {factor: 0.9, low: 0.85, high: 0.95}
  constants: {efficiency: 0.8, launch: 2us, tiles: [[128, 128]]}
launch: {plain: 2.5us, graph: 400ns, plain_gap: 1us, graph_gap: 700ns}
collectives: {of: topology}
)";
const std::string kProductHeader =
    "    dtype,out,layout,accumulate,bias,m,n,k,tile_m,tile_n,stages,split,waves,time_us,sustained_us,first_us,best_us,"
    "p10_us,p90_us,repetitions,held_out,algorithm\n";
const std::string kProducts = "products:\n  rows: |\n" + kProductHeader +
                              "    bf16,bf16,nn,no,no,2048,1024,1024,128,128,4,1,-,20,20,20,20,19,21,30,no,-\n"
                              "    bf16,bf16,nn,no,no,4096,1024,1024,128,128,4,1,-,38,38,38,38,37,39,30,no,-\n"
                              "    bf16,bf16,nn,no,no,3072,1024,1024,128,128,4,1,-,99,99,99,99,99,99,30,yes,-\n"
                              "    bf16,bf16,nn,no,no,2048,1024,2048,128,128,4,1,-,36,-,36,36,35,37,30,no,-\n";
const std::string kShapes =
    "shapes:\n  rows: |\n"
    "    kind,shape,operands,dtype,flops,bytes,time_us,sustained_us,p10_us,p90_us,repetitions,held_out\n"
    "    add,elements=1048576,bf16 bf16>bf16,bf16,-,6291456,5.5,-,5,6,30,no\n"
    "    add,elements=4194304,bf16 bf16>bf16,bf16,-,25165824,14,-,13,15,30,no\n";
const std::string kInterference =
    "interference:\n  rows: |\n    dtype,out,layout,accumulate,bias,m,n,k,sms_held,bandwidth_gbs,slowdown\n"
    "    bf16,bf16,nn,no,no,4096,1024,1024,16,-,1.5\n";

class CalibratedGpu : public testing::Test {
 protected:
  void SetUp() override { file_ = rehearse::test::temporary_path("calibrated.yaml"); }
  void TearDown() override { fs::remove(file_); }
  std::unique_ptr<CostModel> costs(const std::string& text) const {
    std::ofstream(file_) << text;
    return load_costs({file_});
  }
  std::string problems(const std::string& text) const {
    try {
      costs(text);
      return "";
    } catch (const InputError& error) {
      std::string all;
      for (const Diagnostic& d : error.diagnostics()) all += std::to_string(d.line) + ": " + d.message + "\n";
      return all;
    }
  }
  std::string file_;
};

double us(const Estimate& e) {
  return e.duration.seconds() * 1e6;
}
Estimate of(const CostModel& costs, const test::OneOp& one, const Interference& beside = {}) {
  return costs.kernel(one.role, one.op, beside);
}

TEST_F(CalibratedGpu, AnExactProductTakesItsSustainedTime) {
  const auto costs = this->costs(kHead + kProducts);
  const Estimate e = of(*costs, test::gemm(2048, 1024, 1024));
  EXPECT_NEAR(us(e), 20, 1e-6);
  EXPECT_EQ(e.coverage, Coverage::exact);
  // Only the burst was measured: 36 us / 0.9.
  EXPECT_NEAR(us(of(*costs, test::gemm(2048, 1024, 2048))), 40, 1e-6);
}

TEST_F(CalibratedGpu, ProductsInBetweenTakeWholeWaves) {
  const auto costs = this->costs(kHead + kProducts);
  // 17 rows of tiles: 136 tiles on 132 multiprocessors are two waves, as 256 are.
  for (const std::int64_t m : {2049, 2176, 2560, 4095}) {
    const Estimate e = of(*costs, test::gemm(m, 1024, 1024));
    EXPECT_NEAR(us(e), 38, 1e-6) << m;
    EXPECT_EQ(e.coverage, Coverage::interpolated) << m;
  }
}

TEST_F(CalibratedGpu, HeldOutRowsAreNotRead) {
  // Its row says 99 us; the wave model gives 38.
  EXPECT_NEAR(us(of(*costs(kHead + kProducts), test::gemm(3072, 1024, 1024))), 38, 1e-6);
}

TEST_F(CalibratedGpu, TimeIsLinearInDepth) {
  // Halfway between 20 us at K = 1024 and 40 us at K = 2048.
  const Estimate e = of(*costs(kHead + kProducts), test::gemm(2048, 1024, 1536));
  EXPECT_NEAR(us(e), 30, 1e-6);
  EXPECT_EQ(e.coverage, Coverage::interpolated);
}

TEST_F(CalibratedGpu, AnotherFormOfTheProductIsNotThatProduct) {
  const auto costs = this->costs(kHead + kProducts);
  EXPECT_EQ(of(*costs, test::gemm(2048, 1024, 1024, program::DType::bf16, true)).coverage, Coverage::interpolated);
}

// Files of before there were epilogues have no such column: those above.
TEST_F(CalibratedGpu, AProductWithAnEpilogueIsAProductOfItsOwn) {
  const auto with_column = [](std::string text) {
    for (const auto& [from, to] :
         {std::pair<std::string, std::string>{",bias,m,", ",bias,epilogue,m,"}, {",nn,no,no,", ",nn,no,no,none,"}})
      for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    return text;
  };
  const std::string text =
      kHead + with_column(kProducts) +
      "    bf16,bf16,nn,no,no,gelu_backward,2048,1024,1024,128,128,4,1,-,25,25,25,25,24,26,30,no,-\n" +
      with_column(kInterference) + "    bf16,bf16,nn,no,no,gelu_backward,2048,1024,1024,16,-,1.25\n";
  const auto costs = this->costs(text);
  test::OneOp one = test::gemm(2048, 1024, 1024);
  EXPECT_NEAR(us(of(*costs, one)), 20, 1e-6);
  std::get<program::Gemm>(one.op.shape).epilogue = program::Epilogue::gelu_backward;
  one.op.reads.push_back(one.buffer(program::DType::bf16, {2048, 1024}));
  EXPECT_NEAR(us(of(*costs, one)), 25, 1e-6);
  EXPECT_EQ(of(*costs, one).coverage, Coverage::exact);
  std::get<program::Gemm>(one.op.shape).epilogue = program::Epilogue::gelu;
  EXPECT_EQ(of(*costs, one).coverage, Coverage::interpolated);
  // The product's burst in a long run, and what it reads besides: 4 MiB at 80% of 3350 GB/s.
  EXPECT_NEAR(us(of(*costs, one)), 20 / 0.9 + 4 * 1048576 / (0.8 * 3350e3), 1e-3);
  std::string wrong = text;
  wrong.replace(wrong.find("gelu_backward"), 13, "gelu_bacward");
  EXPECT_NE(problems(wrong).find("'gelu_bacward' is not one of none, gelu, gelu_backward, bias_gradient"),
            std::string::npos);
}

TEST_F(CalibratedGpu, OtherKernelsByShapeAndByBytes) {
  const auto costs = this->costs(kHead + kShapes);
  const Estimate exact = of(*costs, test::add(1 << 20));
  EXPECT_NEAR(us(exact), 5.5, 1e-6);
  EXPECT_EQ(exact.coverage, Coverage::exact);
  // Twice the bytes of the first, half of the last: the geometric mean of 5.5 and 14.
  const Estimate between = of(*costs, test::add(1 << 21));
  EXPECT_NEAR(us(between), std::sqrt(5.5 * 14), 1e-5);
  EXPECT_EQ(between.coverage, Coverage::interpolated);
}

// Rows of a kernel that the device's file does not list (a framework's, tests/gpu/torch_attention.py): its own shapes
// are exact, and others follow its own rates, not those of the device's kernel.
TEST_F(CalibratedGpu, AttentionOfAnotherLibraryHasItsOwnRates) {
  const FlashRate planted{500e12, 0.5, 60, 1};
  const auto seconds = [&](std::int64_t batch, std::int64_t seq) {
    program::Attention a =
        std::get<program::Attention>(test::attention(program::AttentionPart::flash_forward, batch, 16, seq).op.shape);
    const FlashPoint p{false, a.causal, batch, seq, 16, 16, 128, 0};
    return 2e-6 + flash_compute_seconds(a, planted, 1, flash_flops(p), 132, 132);
  };
  std::string rows = "    part,causal,batch,seq,heads,kv_heads,head_dim,tflops,source\n";
  const bool causal =
      std::get<program::Attention>(test::attention(program::AttentionPart::flash_forward, 1, 16, 64).op.shape).causal;
  for (const auto& [batch, seq] :
       {std::pair<std::int64_t, std::int64_t>{16, 512}, {2, 1024}, {4, 2048}, {1, 2048}, {1, 4096}, {1, 8192}}) {
    const FlashPoint p{false, causal, batch, seq, 16, 16, 128, 0};
    rows += "    forward," + std::string(causal ? "yes," : "no,") + std::to_string(p.batch) + "," +
            std::to_string(seq) + ",16,16,128," + std::to_string(flash_flops(p) / seconds(p.batch, seq) / 1e12) +
            ",torch\n";
  }
  const std::string more = rehearse::test::temporary_path("attention.yaml");
  std::ofstream(more) << "rehearse_device: 1\nmeasurements_for: planted\nattention:\n  kernel: cudnn\n  rows: |\n"
                      << rows;
  std::ofstream(file_) << kHead;
  const auto costs = load_costs({file_, more});
  fs::remove(more);
  const auto cost = [&](program::AttentionKernel kernel, std::int64_t batch, std::int64_t seq) {
    test::OneOp one = test::attention(program::AttentionPart::flash_forward, batch, 16, seq);
    std::get<program::Attention>(one.op.shape).kernel = kernel;
    return of(*costs, one);
  };
  const Estimate exact = cost(program::AttentionKernel::cudnn, 4, 2048);
  EXPECT_EQ(exact.coverage, Coverage::exact);
  EXPECT_NEAR(us(exact) / 1e6 / seconds(4, 2048), 1, 1e-5);
  for (const std::int64_t seq : {1536, 3072})
    EXPECT_NEAR(us(cost(program::AttentionKernel::cudnn, 3, seq)) / 1e6 / seconds(3, seq), 1, 0.03) << seq;
  // The device's own kernel, which this file takes to be as fast as products: 0.8 x 989 TFLOP/s.
  EXPECT_LT(us(cost(program::AttentionKernel::best, 3, 3072)) / 1e6, 0.8 * seconds(3, 3072));
}

// The same rows within the device's own file (tests/gpu/bring_back.sh), told apart by their library; what a clock under
// load would take off is in them already.
TEST_F(CalibratedGpu, RowsOfTheDevicesFileMayBeAnotherLibrarys) {
  const auto text = [](const std::string& library) {
    return kHead + "attention:\n  forward: {rate: 600TFLOPS}\n  backward: {rate: 500TFLOPS}\n" +
           "  others:\n    cudnn:\n      scale: {factor: 0.9, low: 0.9, high: 1}\n      forward: {rate: 700TFLOPS}\n"
           "      backward: {rate: 600TFLOPS}\n"
           "  rows: |\n    part,causal,batch,seq,heads,kv_heads,head_dim,tflops,source,library\n"
           "    forward,yes,4,2048,16,16,128,300,measured,-\n    forward,yes,4,2048,16,16,128,400,torch," +
           library + "\n";
  };
  const auto costs = this->costs(text("cudnn"));
  test::OneOp one = test::attention(program::AttentionPart::flash_forward, 4, 16, 2048);
  auto& shape = std::get<program::Attention>(one.op.shape);
  shape.causal = true;
  const double flops = flash_flops({false, true, 4, 2048, 16, 16, 128, 0});
  for (const auto& [kernel, tflops] :
       {std::pair{program::AttentionKernel::best, 300.0}, {program::AttentionKernel::cudnn, 400.0}}) {
    shape.kernel = kernel;
    const Estimate e = of(*costs, one);
    EXPECT_EQ(e.coverage, Coverage::exact);
    EXPECT_NEAR(us(e), flops / tflops * 1e-6, 1e-3 * us(e));
  }
  EXPECT_NE(problems(text("flash3")).find("'flash3' is not among attention.others"), std::string::npos);
}

TEST_F(CalibratedGpu, InterferenceIsWhatWasMeasured) {
  const auto costs = this->costs(kHead + kProducts + kInterference);
  const test::OneOp product = test::gemm(4096, 1024, 1024);
  EXPECT_NEAR(us(of(*costs, product, {16, 0})), 38 * 1.5, 0.01);
  EXPECT_NEAR(us(of(*costs, product, {0, 0})), 38, 1e-6);
  // Never faster than alone.
  EXPECT_GE(us(of(*costs, product, {1, 0})), 38 - 1e-6);
}

TEST_F(CalibratedGpu, LaunchesInGraphsAreTheDevices) {
  EXPECT_EQ(costs(kHead + kProducts)->device().launch, Time::from_seconds(0.4e-6));
}

TEST_F(CalibratedGpu, WhatIsWrongIsNamedWithItsLine) {
  const int first = static_cast<int>(std::count(kHead.begin(), kHead.end(), '\n')) + 4;  // products, rows, header, row
  const std::string bad = kHead + "products:\n  rows: |\n" + kProductHeader +
                          "    bf16,bf16,nx,no,no,0,1024,1024,128,128,4,1,-,20,20,20,20,19,21,30,no,-\n";
  EXPECT_EQ(problems(bad), std::to_string(first) + ": 'nx' is not one of nn, nt, tn, tt\n" + std::to_string(first) +
                               ": '0' is not a positive whole number\n");
  EXPECT_NE(problems(kHead + "products:\n  rows: |\n    dtype,m\n").find("there is no column 'out'"),
            std::string::npos);
  EXPECT_NE(problems(kHead + "shapez: {}\n").find("unknown key"), std::string::npos)
      << problems(kHead + "shapez: {}\n");
}

// Tiles of two kinds: each continues at its own cost a wave, the faster counts.
TEST(WaveTable, TheFasterOfTwoConfigurations) {
  ProductPoint small, large;
  small.key.m = 1280, small.key.n = 128, small.key.k = 512;  // 10 tiles of 128: one wave on 10 multiprocessors
  small.tile = {128, 128}, small.seconds = 10e-6;
  large = small;
  large.key.m = 5120, large.tile = {256, 128}, large.seconds = 28e-6;  // 20 tiles: two waves
  const WaveTable table({small, large}, 10, 0, 1);
  ProductKey key = small.key;
  key.m = 2560;  // small tiles: 2 waves, 20 us; large ones: 1 wave, 14 us
  ASSERT_TRUE(table.find(key));
  EXPECT_NEAR(table.find(key)->seconds, 14e-6, 1e-12);
  key.m = 1281;  // small: 2 waves, 20 us; large: 6 tiles, 1 wave
  EXPECT_NEAR(table.find(key)->seconds, 14e-6, 1e-12);
  key.m = 6000;  // beyond the points
  EXPECT_FALSE(table.find(key));
}

// The library's own count of waves tells how many tiles run at once: 40 tiles in 2 waves are 20 at a time.
TEST(WaveTable, SlotsFollowFromTheWavesTold) {
  ProductPoint low, high;
  low.key.m = 2560, low.key.n = 128, low.key.k = 512, low.tile = {128, 128}, low.waves = 1, low.seconds = 10e-6;
  high = low, high.key.m = 5120, high.waves = 2, high.seconds = 20e-6;
  const WaveTable table({low, high}, 10, 0, 1);
  ProductKey key = low.key;
  key.m = 2561;
  EXPECT_NEAR(table.find(key)->seconds, 20e-6, 1e-12);
  EXPECT_EQ(WaveTable({low, high}, 10, 0, 1).leave_one_out().size(), 0U);
}

}  // namespace
}  // namespace rehearse::cost
