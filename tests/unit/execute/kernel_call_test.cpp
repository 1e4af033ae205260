// What the host reads to call a kernel: of a rank on a GPU, whose step lies in the device's memory, not the step.
#include "execute/rank/kernel_call.h"

#include <gtest/gtest.h>

#include <vector>

namespace rehearse::execute {
namespace {

// On an H100 this ended calibrations and the training of experts; on the emulator device memory is the host's.
TEST(KernelCall, TurnsPositionsWithoutReadingTheStep) {
  const plan::Scenario scenario = plan::read_scenario(REHEARSE_SOURCE_DIR "/scenarios/gpt-tiny-ddp.yaml",
                                                      {"model=llama-tiny"}, REHEARSE_SOURCE_DIR);
  const model::Model& m = scenario.model;
  const auto device = kernels::make_cpu_device(1);
  const std::int64_t rows = scenario.plan.micro_batch * scenario.training.seq_len,
                     row = (m.heads + 2 * m.kv_heads) * m.head_dim;
  std::vector<float> qkv(static_cast<std::size_t>(rows * row), 1);
  program::Op op;
  op.shape = program::Elementwise{program::ElementwiseFn::rope, rows * row, m.head_dim};
  const std::vector<kernels::Out> operands = {{qkv.data(), DType::f32}};
  CallContext context{scenario, *device};
  ASSERT_EQ(context.step, nullptr) << "which cannot be read";
  call_kernel(op, operands, operands, context);
  EXPECT_EQ(qkv.front(), 1) << "the first position is not turned";
  EXPECT_NE(qkv[static_cast<std::size_t>((rows - 1) * row)], 1);
}

}  // namespace
}  // namespace rehearse::execute
