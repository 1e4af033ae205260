// Names and texts of ops: what reports and calibration files group by, and the shapes people read.
#include "sim/program/op.h"

#include <gtest/gtest.h>

#include "sim/program/describe.h"
#include "tests/unit/program/builder.h"

namespace rehearse::program {
namespace {

using testing::RoleBuilder;

// A kind's name tells the parts of a family apart; a norm's says which norm it is.
TEST(KindName, TellsPartsApart) {
  EXPECT_EQ(kind_name(Gemm{}), "gemm");
  Attention a;
  EXPECT_EQ(kind_name(a), "flash_attention_forward");
  a.part = AttentionPart::scores_backward_key;
  EXPECT_EQ(kind_name(a), "attention_scores_backward_key");
  Norm n;
  n.part = NormPart::backward_input;
  EXPECT_EQ(kind_name(n), "layer_norm_backward_input");
  n.rms = true;
  EXPECT_EQ(kind_name(n), "rms_norm_backward_input");
  Activation act;
  act.fn = ActivationFn::swiglu;
  act.backward = true;
  EXPECT_EQ(kind_name(act), "swiglu_backward");
  Elementwise e;
  e.fn = ElementwiseFn::rope_backward;
  EXPECT_EQ(kind_name(e), "rope_backward");
  Collective c;
  c.kind = CollectiveKind::all_to_all;
  EXPECT_EQ(kind_name(c), "all_to_all");
  EXPECT_EQ(kind_name(MeanSquaredError{}), "mse_forward");
  EXPECT_EQ(kind_name(MeanSquaredError{.backward = true}), "mse_backward");
  EXPECT_EQ(kind_name(HostSync{}), "host_sync");
}

// A group of sends alone is a send, of receives alone a receive, of both an exchange.
TEST(KindName, PointToPointByItsLegs) {
  PointToPoint p = testing::send_to(1, 8);
  EXPECT_EQ(kind_name(p), "send");
  p.legs.push_back({false, Axis::pipeline, 1, 0, 8});
  EXPECT_EQ(kind_name(p), "send_receive");
  p.legs.erase(p.legs.begin());
  EXPECT_EQ(kind_name(p), "receive");
}

// Shapes as a person would write them: what is left at its default is not printed.
TEST(Describe, Shapes) {
  RoleBuilder b("stage0");
  const BodyId body = b.body("forward");
  EXPECT_EQ(shape_text(b.role, b.op(body, "g", Gemm{2048, 4608, 12288}, 0)), "m=2048 n=4608 k=12288");
  Gemm g{2, 4, 8, 3};
  g.transpose_b = g.accumulate = true;
  EXPECT_EQ(shape_text(b.role, b.op(body, "g2", g, 0)), "m=2 n=4 k=8 batch=3 transpose_b accumulate");
  Gemm gradient{2, 4, 8};
  gradient.transpose_a = gradient.accumulate = true;
  gradient.epilogue = Epilogue::bias_gradient;
  EXPECT_EQ(shape_text(b.role, b.op(body, "g3", gradient, 0)), "m=2 n=4 k=8 transpose_a accumulate bias_gradient");
  Op& reduce = b.op(body, "r", Collective{CollectiveKind::all_reduce, 0, 1024}, 0);
  reduce.dtype = DType::bf16;
  EXPECT_EQ(shape_text(b.role, reduce), "elements=1024 bf16");
  EXPECT_EQ(shape_text(b.role, b.op(body, "s", testing::send_to(-1, 8), 0)), "send pipeline-1 elements=8 f32");
}

// A place names op, slot, body and micro-batch; a slot without micro-batch only its body.
TEST(Describe, Places) {
  const Program p = testing::two_stages();
  EXPECT_EQ(place_text(p.roles[0], 1, 2), "'send forward' (slot 1: forward micro-batch 1)");
  EXPECT_EQ(slot_text(p.roles[0], p.roles[0].slots[4]), "optimizer");
  EXPECT_EQ(rank_text(p.roles[1], 3), "rank 3 (stage1)");
}

}  // namespace
}  // namespace rehearse::program
