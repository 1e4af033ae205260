// What cuBLASLt is asked for: descriptors and algorithms are made once for a problem, every part of a problem tells,
// the preference rules out what is not deterministic or needs more alignment, strides and batches arrive, errors are
// named, and nothing is left behind. Products themselves are checked by computing them from the descriptors
// (emulator/blas.h).
#include "kernels/cuda/blas.h"

#include <gtest/gtest.h>

#include <map>

#include "kernels/cuda/algorithm_trial.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/runtime.h"
#include "tests/gpu/emulator/blas.h"

namespace rehearse::kernels::cuda {
namespace {

class BlasTest : public testing::Test {
 protected:
  BlasTest() : live_before_(emulator::blas_log().live_objects) {
    const int live = emulator::blas_log().live_objects;
    emulator::blas_log() = {};
    emulator::blas_log().live_objects = live;
    blas_ = std::make_unique<Blas>(emulator::blas_api(), workspace_.data(), workspace_.bytes());
  }
  void TearDown() override {
    blas_.reset();
    EXPECT_EQ(emulator::blas_log().live_objects, live_before_);
  }

  float* floats(const std::vector<float>& x) {
    memory_.emplace_back(x.size() * sizeof(float));
    copy(memory_.back().data(), x.data(), x.size() * sizeof(float), stream_);
    return memory_.back().as<float>();
  }
  // The n floats from `p`.
  std::vector<float> read(const float* p, std::size_t n) {
    std::vector<float> x(n);
    copy(x.data(), p, n * sizeof(float), stream_);
    stream_.synchronize();
    return x;
  }

  Stream stream_;
  DeviceMemory workspace_{std::size_t{4} << 20};
  std::vector<DeviceMemory> memory_;
  std::unique_ptr<Blas> blas_;
  int live_before_;
};

MatmulProblem square() {
  return dense_problem(2, 2, 2, false, false, MatrixType::f32, MatrixType::f32);
}

TEST_F(BlasTest, AProblemIsPreparedOnce) {
  const float* a = floats({1, 2, 3, 4});
  float* c = floats({0, 0, 0, 0});
  MatmulOperands x;
  x.a = a;
  x.b = a;
  x.c = c;
  for (int i = 0; i < 3; ++i) blas_->run(square(), x, stream_.get());
  EXPECT_EQ(read(c, 4), (std::vector<float>{7, 10, 15, 22}));
  EXPECT_EQ(emulator::blas_log().heuristics, 1);
  EXPECT_EQ(emulator::blas_log().products, 3);
}

TEST_F(BlasTest, EveryPartOfAProblemTells) {
  std::vector<MatmulProblem> all = {square()};
  const auto also = [&](auto&& change) {
    MatmulProblem p = square();
    change(p);
    all.push_back(p);
  };
  also([](MatmulProblem& p) { p.accumulate = true; });
  also([](MatmulProblem& p) { p.transpose_a = true; });
  also([](MatmulProblem& p) { p.transpose_b = true; });
  also([](MatmulProblem& p) { p.bias = true; });
  also([](MatmulProblem& p) { p.tf32 = true; });
  also([](MatmulProblem& p) { p.fused = Fused::bias_gradient; });
  also([](MatmulProblem& p) { p.fused = Fused::gelu, p.aux = p.c, p.aux.stride = 8; });
  also([](MatmulProblem& p) { p.fused = Fused::gelu, p.aux = p.c, p.aux.stride = 16; });
  also([](MatmulProblem& p) { p.fused = Fused::gelu, p.aux = p.c, p.aux.stride = 8, p.aux.alignment = 16; });
  also([](MatmulProblem& p) { p.fused = Fused::gelu_backward, p.aux = p.c, p.aux.stride = 8; });
  also([](MatmulProblem& p) { p.batch = 2; });
  also([](MatmulProblem& p) { p.a.stride = 3; });
  also([](MatmulProblem& p) { p.c.batch_stride = 8; });
  also([](MatmulProblem& p) { p.b.alignment = 16; });
  also([](MatmulProblem& p) { p.a.type = p.b.type = p.c.type = MatrixType::bf16; });
  also([](MatmulProblem& p) { p.a.type = p.b.type = MatrixType::bf16; });
  for (const MatmulProblem& p : all) blas_->algorithms(p);
  EXPECT_EQ(blas_->problems_kept(), all.size());
  for (const MatmulProblem& p : all) blas_->algorithms(p);
  EXPECT_EQ(emulator::blas_log().heuristics, static_cast<int>(all.size()));
}

TEST_F(BlasTest, OnlyReproducibleReductionsAndWhatTheAddressesAllow) {
  MatmulProblem p = square();
  p.a.alignment = 4;
  p.b.alignment = 32;
  p.c.alignment = 64;
  blas_->algorithms(p);
  const emulator::BlasLog& log = emulator::blas_log();
  EXPECT_EQ(log.reduction_mask, static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  EXPECT_EQ(log.workspace, std::uint64_t{4} << 20);
  EXPECT_EQ(log.alignment_a, 32U);  // the library's A is our B
  EXPECT_EQ(log.alignment_b, 4U);
  EXPECT_EQ(log.alignment_c, 64U);
  EXPECT_EQ(log.alignment_d, 64U);
}

TEST_F(BlasTest, AlgorithmsAreReadAsWeSeeC) {
  const std::vector<Algorithm>& all = blas_->algorithms(square());
  ASSERT_EQ(all.size(), 2U);  // the second of three needs more workspace than there is
  EXPECT_EQ(all[0].id, 60);
  EXPECT_EQ(all[1].id, 62);
  EXPECT_EQ(all[0].tile_rows, 256);  // CUBLASLT_MATMUL_TILE_128x256 of C^T
  EXPECT_EQ(all[0].tile_cols, 128);
  EXPECT_EQ(all[0].split_k, 2);
  EXPECT_EQ(all[0].stages_id, static_cast<int>(CUBLASLT_MATMUL_STAGES_64x3));
  EXPECT_EQ(all[0].cluster_id, static_cast<int>(CUBLASLT_CLUSTER_SHAPE_2x1x1));
  EXPECT_FLOAT_EQ(all[0].waves, 0.5F);
}

TEST_F(BlasTest, TilesAreThoseOfTheHeader) {
  EXPECT_EQ(tile_of(CUBLASLT_MATMUL_TILE_8x8).rows, 8);
  EXPECT_EQ(tile_of(CUBLASLT_MATMUL_TILE_96x64).rows, 96);
  EXPECT_EQ(tile_of(CUBLASLT_MATMUL_TILE_96x64).cols, 64);
  EXPECT_EQ(tile_of(CUBLASLT_MATMUL_TILE_256x1024).cols, 1024);
  EXPECT_EQ(tile_of(CUBLASLT_MATMUL_TILE_512x1024).rows, 512);
  EXPECT_EQ(tile_of(CUBLASLT_MATMUL_TILE_END).rows, 0);
  EXPECT_EQ(tile_of(-1).cols, 0);
}

TEST_F(BlasTest, TheFirstIsPerformedAndAnyCanBeTimed) {
  const float* a = floats({1, 2, 3, 4});
  float* c = floats({0, 0, 0, 0});
  MatmulOperands x;
  x.a = a;
  x.b = a;
  x.c = c;
  const MatmulProblem p = aligned_problem(square(), x);
  blas_->run(square(), x, stream_.get());
  blas_->run(p, x, 1, stream_.get());
  blas_->run(square(), x, stream_.get());
  EXPECT_EQ(emulator::blas_log().algorithms, (std::vector<std::uint64_t>{0, 2, 0}));
  EXPECT_THROW(blas_->run(p, x, 2, stream_.get()), std::logic_error);
  ASSERT_EQ(blas_->performed().size(), 1U);
  EXPECT_EQ(blas_->performed().front().problem, p);
  EXPECT_EQ(blas_->performed().front().algorithm.name(),
            "id 60 tile 256x128 stages 15 split-k 2 cluster 3 reduction 2");
}

TEST(AlgorithmTrials, TheFirstStaysUnlessAnotherIsFasterByMoreThanTimesScatter) {
  const auto fastest = [](const std::vector<double>& us) {
    std::vector<double> seconds;
    for (const double t : us) seconds.push_back(t * 1e-6);
    return fastest_algorithm(seconds);
  };
  EXPECT_EQ(fastest({100, 90, 80, 85}), 2U);
  EXPECT_EQ(fastest({100, 110, 120}), 0U);
  EXPECT_EQ(fastest({100, 99, 98.5}), 0U) << "1.5% is a tie";
  EXPECT_EQ(fastest({100, 100, 100}), 0U);
  EXPECT_EQ(fastest({2, 1.5}), 0U) << "events are no more exact";
  EXPECT_EQ(fastest({100, 0, 90}), 2U) << "0: not timed";
  EXPECT_EQ(fastest({0, 10}), 0U) << "nothing to compare with";
  EXPECT_EQ(fastest({}), 0U);
}

TEST(AlgorithmTrials, EachHasAsManyRunsAndTheFirstIsNotTimed) {
  AlgorithmTrial trial(3);
  std::vector<std::pair<std::size_t, bool>> turns;
  while (const auto turn = trial.next()) {
    turns.emplace_back(turn->algorithm, turn->timed);
    trial.add(*turn, turn->timed ? 1e-3 * static_cast<double>(20 - turns.size() - 3 * turn->algorithm) : 1e-9);
  }
  const std::vector<std::pair<std::size_t, bool>> expected = {{0, false}, {0, true}, {1, false}, {1, true},
                                                              {2, false}, {2, true}, {0, true},  {0, true},
                                                              {1, true},  {1, true}, {2, true},  {2, true}};
  EXPECT_EQ(turns, expected);
  EXPECT_EQ(trial.seconds(), (std::vector<double>{12e-3, 7e-3, 2e-3})) << "the least of each";
  EXPECT_EQ(trial.fastest(), 2U);
  EXPECT_FALSE(AlgorithmTrial(1).next());
}

// A Blas whose library's algorithm number n takes us[n] microseconds.
class MeasuredBlasTest : public BlasTest {
 protected:
  void measure(std::map<std::uint64_t, double> us) {
    blas_->measure_with([us, this](const std::function<void()>& queue) {
      queue();
      ++timed_;
      return us.at(emulator::blas_log().algorithms.back()) * 1e-6;
    });
  }
  MatmulOperands operands(float* c) {
    MatmulOperands x;
    x.a = x.b = floats({1, 2, 3, 4});
    x.c = c;
    return x;
  }
  std::uint64_t last() const { return emulator::blas_log().algorithms.back(); }

  int timed_ = 0;
};

TEST_F(MeasuredBlasTest, TheFastestIsTakenOnceItIsSettled) {
  float* c = floats({0, 0, 0, 0});
  const MatmulOperands x = operands(c);
  measure({{0, 100}, {2, 80}});
  blas_->run(square(), x, stream_.get());
  EXPECT_EQ(emulator::blas_log().algorithms, (std::vector<std::uint64_t>{0, 0, 2, 2, 0, 0, 2, 2}));
  EXPECT_EQ(timed_, 6);
  blas_->run(square(), x, stream_.get());
  EXPECT_EQ(last(), 0U) << "not settled yet";
  blas_->settle();
  blas_->run(square(), x, stream_.get());
  EXPECT_EQ(last(), 2U);
  EXPECT_EQ(read(c, 4), (std::vector<float>{7, 10, 15, 22}));
  ASSERT_EQ(blas_->performed().size(), 1U);
  EXPECT_EQ(blas_->performed().front().index, 1U);
  EXPECT_EQ(blas_->performed().front().algorithm.id, 62);
  MatmulProblem later = square();
  later.transpose_a = true;
  blas_->run(later, x, stream_.get());
  EXPECT_EQ(last(), 0U) << "what comes after is not found out";
  EXPECT_EQ(timed_, 6);
}

TEST_F(MeasuredBlasTest, ATieKeepsTheFirst) {
  const MatmulOperands x = operands(floats({0, 0, 0, 0}));
  measure({{0, 100}, {2, 99}});
  blas_->run(square(), x, stream_.get());
  blas_->settle();
  blas_->run(square(), x, stream_.get());
  EXPECT_EQ(last(), 0U);
}

// Each call adds once, whichever algorithm does it; with too few calls the first stays.
TEST_F(MeasuredBlasTest, WhatAccumulatesIsDoneOnceACall) {
  MatmulProblem p = square();
  p.accumulate = true;
  for (const int calls : {3, 5}) {
    float* c = floats({0, 0, 0, 0});
    const MatmulOperands x = operands(c);
    emulator::blas_log().algorithms.clear();
    measure({{0, 100}, {2, 80}});
    for (int i = 0; i < calls; ++i) blas_->run(p, x, stream_.get());
    EXPECT_EQ(read(c, 1)[0], static_cast<float>(7 * calls));
    EXPECT_EQ(emulator::blas_log().algorithms.size(), static_cast<std::size_t>(calls));
    blas_->settle();
    blas_->run(p, x, stream_.get());
    EXPECT_EQ(last(), calls == 3 ? 0U : 2U);
    ++p.c.batch_stride;  // another problem
  }
}

TEST_F(MeasuredBlasTest, NothingIsFoundOutOnAStreamThatIsCaptured) {
  const MatmulOperands x = operands(floats({0, 0, 0, 0}));
  measure({{0, 100}, {2, 80}});
  const Graph graph(stream_, [&] { blas_->run(square(), x, stream_.get()); });
  EXPECT_EQ(timed_, 0);
  EXPECT_EQ(graph.nodes(), 1U);
}

// The device's own timer.
TEST_F(BlasTest, ADeviceFindsOutIfItIsToldTo) {
  emulator::blas_log().first_sleeps_ms = 5;
  const DeviceMemory workspace(device_workspace_bytes(9));
  const float* a = floats(std::vector<float>(64, 1));
  float* c = floats(std::vector<float>(64, 0));
  for (const bool measured : {false, true}) {
    CudaDevice device(stream_, {.blas_api = &emulator::blas_api(), .measure_products = measured}, workspace.data(),
                      workspace.bytes());
    const auto multiply = [&] { device.gemm({8, 8, 8}, {a, DType::f32}, {a, DType::f32}, nullptr, {c, DType::f32}); };
    multiply();
    device.settle_products();
    multiply();
    EXPECT_EQ(emulator::blas_log().algorithms.back(), measured ? 2U : 0U);
    EXPECT_EQ(read(c, 1)[0], 8.0F);
  }
  emulator::blas_log().first_sleeps_ms = 0;
}

// The library chooses under a limit that is that of the architecture, whoever asks: ranks, calibrations, tests.
TEST_F(BlasTest, TheWorkspaceOfADeviceHoldsTheLimitOfItsArchitecture) {
  for (const auto& [major, limit] : {std::pair{8, std::size_t{4} << 20}, {9, std::size_t{32} << 20}}) {
    EXPECT_EQ(blas_workspace_bytes(major), limit);
    const DeviceMemory workspace(device_workspace_bytes(major));
    CudaDevice device(stream_, {.blas_api = &emulator::blas_api()}, workspace.data(), workspace.bytes());
    device.blas().algorithms(square());
    EXPECT_EQ(emulator::blas_log().workspace, limit);
  }
}

// Two products at once out of wider matrices: rows 3 apart, batches 7 apart; C's columns beyond n stay.
TEST_F(BlasTest, StridesAndBatches) {
  MatmulProblem p;
  p.m = 2;
  p.n = 1;
  p.k = 2;
  p.batch = 2;
  p.a = {MatrixType::f32, 3, 7};
  p.b = {MatrixType::f32, 1, 2};
  p.c = {MatrixType::f32, 2, 4};
  MatmulOperands x;
  x.a = floats({1, 2, 99, 3, 4, 99, 99, 5, 6, 99, 7, 8, 99, 99});
  x.b = floats({10, 1, 1, 10});
  float* c = floats({-1, -1, -1, -1, -1, -1, -1, -1});
  x.c = c;
  blas_->run(p, x, stream_.get());
  EXPECT_EQ(read(c, 8), (std::vector<float>{12, -1, 34, -1, 65, -1, 87, -1}));
}

TEST_F(BlasTest, WhatTheLibraryCannotDoIsNamed) {
  MatmulProblem p = square();
  p.c.type = MatrixType::bf16;
  try {
    blas_->algorithms(p);
    ADD_FAILURE() << "taken";
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("no algorithm for C[2, 2] = f32 f32 -> bf16"), std::string::npos) << e.what();
  }
  EXPECT_EQ(blas_->problems_kept(), 0U);
}

// dY^T X in our terms: A is dY^T, which is the library's B.
TEST_F(BlasTest, EpiloguesAreThoseOfTheSwappedProduct) {
  MatmulProblem p = dense_problem(2, 8, 2, true, false, MatrixType::f32, MatrixType::f32);
  p.fused = Fused::bias_gradient;
  MatmulOperands x;
  x.a = floats({1, 2, 3, 4});
  x.b = floats(std::vector<float>(16, 1));
  float* c = floats(std::vector<float>(16, 0));
  float* more = floats(std::vector<float>(16, -1));
  x.c = c;
  x.bias_gradient = more;
  blas_->run(p, x, stream_.get());
  EXPECT_EQ(read(more, 3), (std::vector<float>{1 + 3, 2 + 4, -1}));
  x.bias_gradient = nullptr;
  p.fused = Fused::gelu;
  p.aux = p.c;
  x.aux = more;
  blas_->run(p, x, stream_.get());
  EXPECT_EQ(read(more, 16)[15], 6.0F);
  p.bias = true;
  x.bias = x.b;
  blas_->run(p, x, stream_.get());
  EXPECT_EQ(read(more, 16)[15], 7.0F);
  p.bias = false;
  x.bias = nullptr;
  p.fused = Fused::gelu_backward;
  blas_->run(p, x, stream_.get());
  EXPECT_EQ(emulator::blas_log().epilogues,
            (std::vector<std::uint32_t>{CUBLASLT_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_GELU_AUX,
                                        CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU}));
  EXPECT_EQ(form_text(p), "tn f32>f32 gelu_backward");
}

// Asked once; what no library takes is not asked.
TEST_F(BlasTest, ARefusedEpilogueIsKnown) {
  MatmulProblem p = dense_problem(2, 8, 2, false, false, MatrixType::f32, MatrixType::f32);
  p.fused = Fused::gelu;
  p.aux = p.c;
  EXPECT_TRUE(blas_->supports(p));
  emulator::blas_log().no_epilogues = true;
  p.m = 4;
  EXPECT_FALSE(blas_->supports(p));
  EXPECT_FALSE(blas_->supports(p));
  EXPECT_EQ(emulator::blas_log().heuristics, 2);
  EXPECT_THROW(blas_->algorithms(p), DeviceError);
  emulator::blas_log().no_epilogues = false;
  p.m = 6;
  p.aux.stride = 12;
  EXPECT_FALSE(blas_->supports(p));
  p.aux.stride = 8;
  p.aux.alignment = 8;
  EXPECT_FALSE(blas_->supports(p));
  EXPECT_EQ(emulator::blas_log().heuristics, 2);
}

TEST_F(BlasTest, Tf32IsAskedForByTheProblem) {
  MatmulProblem p = dense_problem(1, 1, 1, false, false, MatrixType::f32, MatrixType::f32);
  MatmulOperands x;
  x.a = floats({1 + 0x1p-12F});  // tf32 keeps ten bits of mantissa
  x.b = floats({1});
  float* c = floats({0});
  x.c = c;
  blas_->run(p, x, stream_.get());
  EXPECT_EQ(read(c, 1)[0], 1 + 0x1p-12F);
  p.tf32 = true;
  blas_->run(p, x, stream_.get());
  EXPECT_EQ(read(c, 1)[0], 1.0F);
}

}  // namespace
}  // namespace rehearse::kernels::cuda
