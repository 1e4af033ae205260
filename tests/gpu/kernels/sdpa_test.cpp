// Attention by cuDNN against our own kernels: forward, its statistics, and backward from them. On a GPU by the library;
// on the emulator by what the graphs say (tests/gpu/emulator/sdpa.h), so that every stride and operand is right before.
#include "kernels/cuda/sdpa.h"

#include <cstdio>

#include "tests/gpu/kernels/cuda_test.h"
#ifdef REHEARSE_EMULATED
#include "tests/gpu/emulator/sdpa.h"
#endif

namespace rehearse::kernels::cuda {
namespace {

#ifdef REHEARSE_EMULATED
// Micro-batch, heads, key heads, tokens of a sequence, head_dim.
const std::vector<AttentionShape> kShapes = {{2, 3, 3, 10, 8, true}, {2, 6, 2, 9, 8, true}, {1, 4, 1, 7, 16, true}};
const SdpaApi* library() {
  return &emulator::sdpa_api();
}
#else
const std::vector<AttentionShape> kShapes = {
    {2, 12, 12, 1024, 64, true}, {4, 25, 25, 1024, 64, true}, {2, 32, 4, 2048, 64, true}, {1, 16, 16, 2048, 128, true}};
const SdpaApi* library() {
  return nullptr;
}
#endif

class CudaSdpa : public CudaTest {
 protected:
  void compare(Sdpa& sdpa, const AttentionShape& s, DType t);
};

void CudaSdpa::compare(Sdpa& sdpa, const AttentionShape& s, DType t) {
  const std::int64_t outs = s.seq * s.micro_batch * s.heads * s.head_dim, rows = s.seq * s.micro_batch * s.heads;
  SCOPED_TRACE(std::string(name_of(t)) + ", " + std::to_string(s.heads) + " heads over " + std::to_string(s.kv_heads) +
               ", " + std::to_string(s.seq) + " tokens: " + sdpa.prepare(Sdpa::Pass::forward, s, t) + "; " +
               sdpa.prepare(Sdpa::Pass::backward, s, t));
  const Tensor qkv = given(normal(qkv_size(s), t), t), d_out = given(normal(outs, t), t);
  const Tensor own = poisoned(outs, t), own_rows = poisoned(rows, DType::f32), own_gradient = poisoned(qkv_size(s), t);
  const Tensor out = poisoned(outs, t), out_rows = poisoned(rows, DType::f32), gradient = poisoned(qkv_size(s), t);
  device().flash_forward(s, {}, qkv.in(), own.out(), own_rows.as<float>());
  device().flash_backward(s, {}, d_out.in(), qkv.in(), own.in(), own_rows.as<float>(), own_gradient.out());
  sdpa.forward(s, qkv.in(), out.out(), out_rows.as<float>(), stream().get());
  EXPECT_LE(relative_error(out.read(), doubles(own.read())), tolerance(t));
  EXPECT_LE(relative_error(out_rows.read(), doubles(own_rows.read())), 1e-4);
  for (int run = 0; run < 2; ++run) {  // the second finds the first one's sums
    sdpa.backward(s, d_out.in(), qkv.in(), out.in(), out_rows.as<float>(), gradient.out(), stream().get());
    EXPECT_LE(relative_error(gradient.read(), doubles(own_gradient.read())), tolerance(t));
  }
}

TEST_F(CudaSdpa, ComputesWhatOurKernelsDo) {
  std::string reason;
  const auto sdpa = Sdpa::load(&reason, library());
  if (!sdpa) GTEST_SKIP() << reason;
  std::printf("cuDNN %s\n", sdpa->version().c_str());
  for (const AttentionShape& s : kShapes)
    for (const DType t : {DType::bf16, DType::f16}) compare(*sdpa, s, t);
}

#ifdef REHEARSE_EMULATED
TEST_F(CudaSdpa, EnginesThatDoNotRepeatArePassedOverAndNothingIsLeft) {
  const int before = emulator::sdpa_log().live_objects;
  std::string reason;
  auto sdpa = Sdpa::load(&reason, library());
  EXPECT_EQ(sdpa->version(), "9.19.0");
  const AttentionShape& s = kShapes.front();
  EXPECT_EQ(sdpa->prepare(Sdpa::Pass::forward, s, DType::bf16), "engine 6, 512 bytes");
  // fp32 gradients of queries, a row's sum each in whole 256 bytes, and the library's own.
  EXPECT_EQ(sdpa->prepare(Sdpa::Pass::backward, s, DType::bf16),
            "engine 6, " + std::to_string(60 * 8 * 4 + 256 + 512) + " bytes");
  emulator::sdpa_log().no_plan = true;
  EXPECT_THROW(sdpa->prepare(Sdpa::Pass::forward, kShapes[1], DType::bf16), DeviceError);
  emulator::sdpa_log().no_plan = false;
  sdpa.reset();
  EXPECT_EQ(emulator::sdpa_log().live_objects, before);
}
#endif

}  // namespace
}  // namespace rehearse::kernels::cuda
