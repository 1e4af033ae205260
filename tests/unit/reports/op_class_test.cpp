// Every kind of op falls into the class that docs/results.md names, and labels say who waits for whom.
#include "reports/op_class.h"

#include <gtest/gtest.h>

namespace rehearse::reports {
namespace {

TEST(OpClass, KindsFallIntoTheirClasses) {
  const std::pair<const char*, const char*> expected[] = {{"gemm", "gemm"},
                                                          {"flash_attention_backward", "attention"},
                                                          {"attention_softmax", "attention"},
                                                          {"rms_norm_backward_weight", "norm"},
                                                          {"swiglu_forward", "activation"},
                                                          {"bias_dropout_add", "elementwise"},
                                                          {"add", "elementwise"},
                                                          {"add_position", "embedding"},
                                                          {"adamw", "optimizer"},
                                                          {"sum_squares", "optimizer"},
                                                          {"update_loss_scale", "optimizer"},
                                                          {"cast", "copies"},
                                                          {"cross_entropy_row_max", "cross-entropy"},
                                                          {"mse_backward", "mean squared error"},
                                                          {"conv2d_forward", "convolution"},
                                                          {"input", "input"},
                                                          {"quantise", "other kernels"},
                                                          {"all_reduce", ""},
                                                          {"receive", ""},
                                                          {"host_sync", ""}};
  for (const auto& [kind, name] : expected) EXPECT_EQ(kernel_class(kind), name) << kind;
}

TEST(OpClass, LabelsSayWhoWaitsForWhom) {
  result::OpText op;
  op.stage = 3;
  op.kind = "receive";
  op.shape = "receive pipeline-1 elements=64 bf16";
  EXPECT_EQ(op_label(op, 4), "stage 3: receive from stage 2");
  op.shape = "receive pipeline+1 elements=64 bf16";
  EXPECT_EQ(op_label(op, 4), "stage 3: receive from stage 0") << "stages wrap around";
  op.kind = "send_receive";
  op.shape = "send pipeline+1 elements=64 bf16, receive pipeline-1 elements=64 bf16";
  EXPECT_EQ(op_label(op, 8), "stage 3: receive from stage 2") << "what is waited for is the receive";
  op = {};
  op.kind = "all_reduce", op.group = "tensor", op.bytes = 33'550'000;
  EXPECT_EQ(op_label(op, 4), "all_reduce tensor 33.55 MB");
  op = {};
  op.kind = "gemm", op.shape = "m=1 n=2 k=3";
  EXPECT_EQ(op_label(op, 4), "gemm m=1 n=2 k=3");
}

}  // namespace
}  // namespace rehearse::reports
