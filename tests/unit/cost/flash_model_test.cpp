// Attention whose values are not as wide as queries and keys: the rate of its fused kernels, and its unfused products.
#include "sim/cost/flash_model.h"

#include <gtest/gtest.h>

#include "sim/cost/kernel_shape.h"
#include "tests/unit/cost/ops.h"

namespace rehearse::cost {
namespace {

program::Attention attention(std::int64_t head_dim, std::int64_t value_dim) {
  program::Attention a;
  a.micro_batch = 1, a.heads = a.kv_heads = 16, a.seq = 4096, a.head_dim = head_dim, a.value_dim = value_dim;
  return a;
}

// Rate 1e14, half of it with heads of 64 columns: 192 and 128 columns have the rate of 128, 96 and 64 (80 on average)
// that of 80 alike, 1 - 48 / 64 / 2 of it.
TEST(FlashModel, TheRateIsThatOfTheMeanWidth) {
  FlashRate rate;
  rate.rate = 1e14, rate.tail = 1, rate.ramp = 50, rate.head_dim_64 = 0.5;
  const auto seconds = [&](std::int64_t head_dim, std::int64_t value_dim) {
    return flash_compute_seconds(attention(head_dim, value_dim), rate, 1, 1e12, 132, 132);
  };
  EXPECT_DOUBLE_EQ(seconds(192, 128), seconds(128, 0));
  EXPECT_DOUBLE_EQ(seconds(96, 64), seconds(80, 80));
  EXPECT_DOUBLE_EQ(seconds(96, 64), seconds(128, 128) / (1 - 0.5 * 48 / 64));
}

TEST(FlashModel, UnfusedProductsHaveTheWidthOfWhatTheyMultiply) {
  using program::AttentionPart;
  const auto shape = [](AttentionPart part) {
    test::OneOp one;
    program::Attention a = attention(192, 128);
    a.part = part;
    one.op.shape = a;
    one.op.dtype = program::DType::bf16;
    return product_of(one.role, one.op).value();
  };
  for (const AttentionPart part : {AttentionPart::scores, AttentionPart::scores_backward_query}) {
    const GemmShape s = shape(part);
    EXPECT_EQ(part == AttentionPart::scores ? s.k : s.n, 192);
  }
  EXPECT_EQ(shape(AttentionPart::scores_backward_key).n, 192);
  EXPECT_EQ(shape(AttentionPart::context).n, 128);
  EXPECT_EQ(shape(AttentionPart::context_backward_value).n, 128);
  EXPECT_EQ(shape(AttentionPart::context_backward_probs).k, 128);
}

}  // namespace
}  // namespace rehearse::cost
