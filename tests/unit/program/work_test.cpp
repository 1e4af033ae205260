// FLOPs and bytes of ops against values worked out by hand.
#include "sim/program/work.h"

#include <gtest/gtest.h>

#include "tests/unit/program/builder.h"

namespace rehearse::program {
namespace {

using testing::RoleBuilder;

class WorkTest : public ::testing::Test {
 protected:
  BufferId buffer(std::vector<std::int64_t> shape, DType dtype = DType::f32) {
    const BufferId id = b.buffer("b", std::move(shape), Lifetime::slot);
    b.role.buffers.back().dtype = dtype;
    return id;
  }
  Work work(OpShape shape, std::vector<BufferId> reads, std::vector<BufferId> writes) {
    return work_of(b.role, b.op(body, "op", std::move(shape), 0, std::move(reads), std::move(writes)));
  }

  RoleBuilder b{"stage0"};
  BodyId body = b.body("body");
};

// [2,3] x [3,5] in bf16 is 2*2*5*3 = 60 FLOPs; it reads 6 + 15 and writes 10 elements of 2 bytes.
TEST_F(WorkTest, Gemm) {
  const auto a = buffer({2, 3}, DType::bf16), w = buffer({3, 5}, DType::bf16), c = buffer({2, 5}, DType::bf16);
  const Work x = work(Gemm{2, 5, 3}, {a, w}, {c});
  EXPECT_EQ(x.flops, 60);
  EXPECT_EQ(x.bytes_read, 42);
  EXPECT_EQ(x.bytes_written, 20);
}

// Accumulating into fp32 reads and writes C: 10 elements of 4 bytes each way on top of A and B.
TEST_F(WorkTest, GemmThatAccumulatesReadsAndWritesC) {
  const auto a = buffer({2, 3}, DType::bf16), w = buffer({3, 5}, DType::bf16), c = buffer({2, 5});
  Gemm g{2, 5, 3};
  g.accumulate = true;
  const Work x = work(g, {a, w, c}, {c});
  EXPECT_EQ(x.bytes_read, 42 + 40);
  EXPECT_EQ(x.bytes_written, 40);
}

// A batch of 7 products is 7 times the FLOPs.
TEST_F(WorkTest, GemmBatch) {
  const auto a = buffer({7, 2, 3}), w = buffer({7, 3, 5}), c = buffer({7, 2, 5});
  EXPECT_EQ(work(Gemm{2, 5, 3, 7}, {a, w}, {c}).flops, 420);
}

// Bound by memory: 6 predictions in bf16 and 6 targets in fp32 are read, the loss is read and written; backward writes
// 6 gradients in bf16.
TEST_F(WorkTest, MeanSquaredError) {
  const auto x = buffer({2, 3}, DType::bf16), target = buffer({2, 3}), loss = buffer({1});
  const auto dx = buffer({2, 3}, DType::bf16);
  const Work forward = work(MeanSquaredError{false, 6}, {x, target, loss}, {loss});
  EXPECT_EQ(forward.flops, 0);
  EXPECT_EQ(forward.bytes_read, 12 + 24 + 4);
  EXPECT_EQ(forward.bytes_written, 4);
  const Work backward = work(MeanSquaredError{true, 6}, {x, target}, {dx});
  EXPECT_EQ(backward.flops, 0);
  EXPECT_EQ(backward.bytes_read, 12 + 24);
  EXPECT_EQ(backward.bytes_written, 12);
}

// b=2 h=3 s=4 d=5: one product is 2*2*3*4*4*5 = 960 FLOPs. Flash does 2 forward and 5 backward and keeps no scores; the
// unfused softmax has none.
TEST_F(WorkTest, Attention) {
  Attention a{AttentionPart::flash_forward, 2, 3, 3, 4, 5};
  const auto qkv = buffer({8, 45}, DType::bf16), out = buffer({8, 15}, DType::bf16), lse = buffer({8, 3});
  const auto s = buffer({2, 3, 4, 4}), dqkv = buffer({8, 45}, DType::bf16);
  const Work forward = work(a, {qkv}, {out, lse});
  EXPECT_EQ(forward.flops, 1920);
  EXPECT_EQ(forward.bytes_read, 8 * 45 * 2);
  EXPECT_EQ(forward.bytes_written, 8 * 15 * 2 + 8 * 3 * 4);
  a.part = AttentionPart::flash_backward;
  EXPECT_EQ(work(a, {out, qkv, out, lse}, {dqkv}).flops, 4800);
  a.part = AttentionPart::scores;
  const Work scores = work(a, {qkv}, {s});
  EXPECT_EQ(scores.flops, 960);
  EXPECT_EQ(scores.bytes_written, 96 * 4);
  a.part = AttentionPart::softmax;
  EXPECT_EQ(work(a, {s}, {s}).flops, 0);
}

// A window of 3 keys of 4: three quarters of what flash counts, in full; scores are all computed.
TEST_F(WorkTest, AttentionWithAWindow) {
  Attention a{AttentionPart::flash_forward, 2, 3, 3, 4, 5};
  a.window = 3;
  const auto qkv = buffer({8, 45}, DType::bf16), out = buffer({8, 15}, DType::bf16), lse = buffer({8, 3});
  const auto s = buffer({2, 3, 4, 4}), dqkv = buffer({8, 45}, DType::bf16);
  EXPECT_EQ(work(a, {qkv}, {out, lse}).flops, 1440);
  a.part = AttentionPart::flash_backward;
  EXPECT_EQ(work(a, {out, qkv, out, lse}, {dqkv}).flops, 3600);
  a.part = AttentionPart::scores;
  EXPECT_EQ(work(a, {qkv}, {s}).flops, 960);
}

// Four tokens of a table of 1000 rows of 8 touch four rows; backward reads and writes them.
TEST_F(WorkTest, EmbeddingCountsTheRowsUsed) {
  const auto ids = buffer({4}, DType::i32), table = buffer({1000, 8}), y = buffer({4, 8});
  const Work forward = work(Embedding{false, false, 4, 1000, 8}, {ids, table}, {y});
  EXPECT_EQ(forward.flops, 0);
  EXPECT_EQ(forward.bytes_read, 16 + 128);
  EXPECT_EQ(forward.bytes_written, 128);
  const Work backward = work(Embedding{true, false, 4, 1000, 8}, {y, ids, table}, {table});
  EXPECT_EQ(backward.bytes_read, 128 + 16 + 128);
  EXPECT_EQ(backward.bytes_written, 128);
}

// More tokens than rows touch no more than the whole table.
TEST_F(WorkTest, EmbeddingReadsTheTableOnceAtMost) {
  const auto ids = buffer({40}, DType::i32), table = buffer({10, 8}), y = buffer({40, 8});
  EXPECT_EQ(work(Embedding{false, false, 40, 10, 8}, {ids, table}, {y}).bytes_read, 160 + 320);
}

// 1x1x5x5 to 2 channels with a 3x3 kernel, stride 1, pad 1: 2 * 2*25 * 1*9 = 900 FLOPs in each of the three parts;
// stride 2 halves the output to 3x3.
TEST_F(WorkTest, Convolution) {
  const auto x = buffer({1, 1, 5, 5}), w = buffer({2, 1, 3, 3}), bias = buffer({2}), y = buffer({1, 2, 5, 5});
  Conv2d c{ConvPart::forward, 1, 1, 2, 5, 5};
  EXPECT_EQ(work(c, {x, w, bias}, {y}).flops, 900);
  c.part = ConvPart::backward_weight;
  EXPECT_EQ(work(c, {y, x, w, bias}, {w, bias}).flops, 900);
  c.part = ConvPart::backward_input;
  EXPECT_EQ(work(c, {y, w}, {x}).flops, 900);
  c.stride = 2;
  EXPECT_EQ(work(c, {y, w}, {x}).flops, 2 * 2 * 9 * 9);
  const Conv2d dense{ConvPart::forward, 1, 6, 4, 5, 5};
  Conv2d grouped = dense;
  grouped.groups = 2;
  const auto maps = buffer({1, 6, 5, 5}), weights = buffer({4, 3, 3, 3}), made = buffer({1, 4, 5, 5}),
             none = buffer({4});
  EXPECT_EQ(work(grouped, {maps, weights, none}, {made}).flops, 2 * 4 * 25 * 3 * 9) << "of 3 of the 6 maps";
}

// Of an op that a framework makes inside another's kernel only the passes that it adds count.
TEST_F(WorkTest, AnOpInsideAnothersKernelMovesItsPassesAlone) {
  const auto x = buffer({100}), y = buffer({100});
  Op op = b.op(body, "op", Activation{ActivationFn::relu, false, 1, 100}, 0, {x}, {y});
  op.fused = true, op.passes = {30, 4};
  EXPECT_EQ(work_of(b.role, op).bytes_read, 30);
  EXPECT_EQ(work_of(b.role, op).bytes_written, 4);
}

// A view counts with its own size, not its base's.
TEST_F(WorkTest, ViewsHaveTheirOwnSize) {
  const auto base = buffer({100});
  const auto part = b.view("part", base, 10, 20);
  const Work x = work(Elementwise{ElementwiseFn::scale, 20}, {part}, {part});
  EXPECT_EQ(x.bytes_read, 80);
  EXPECT_EQ(x.bytes_written, 80);
}

// Rotary embedding touches queries and keys of a packed qkv, not its values.
TEST_F(WorkTest, RopeLeavesValuesAlone) {
  const auto qkv = buffer({8, 45}, DType::bf16);
  const Work x = work(Elementwise{ElementwiseFn::rope, 8 * 30}, {qkv}, {qkv});
  EXPECT_EQ(x.bytes_read, 480);
  EXPECT_EQ(x.bytes_written, 480);
}

// Queries and keys of 24 columns, values of 16: of a product's 2 x 2 x 3 x 8 x 8 FLOPs a column those with keys count
// 24 times, those with values 16 times. Forward is one of each; backward recomputes the scores and gives the gradients
// of queries and keys (24 each), of the probabilities and of values (16 each).
TEST_F(WorkTest, AttentionWithValuesOfAnotherWidth) {
  const auto any = buffer({1});
  Attention a;
  a.micro_batch = 2, a.heads = a.kv_heads = 3, a.seq = 8, a.head_dim = 24, a.value_dim = 16;
  const double column = 2.0 * 2 * 3 * 8 * 8;
  const std::pair<AttentionPart, double> columns[] = {{AttentionPart::flash_forward, 24 + 16},
                                                      {AttentionPart::flash_backward, 3 * 24 + 2 * 16},
                                                      {AttentionPart::scores, 24},
                                                      {AttentionPart::context, 16},
                                                      {AttentionPart::context_backward_probs, 16},
                                                      {AttentionPart::context_backward_value, 16},
                                                      {AttentionPart::scores_backward_query, 24},
                                                      {AttentionPart::scores_backward_key, 24}};
  for (const auto& [part, counted] : columns) {
    a.part = part;
    EXPECT_EQ(work(a, {any}, {any}).flops, column * counted) << static_cast<int>(part);
  }
}

// AdamW on 10 elements with an fp32 master: gradient, bf16 parameter, master and two moments are read; all but the
// gradient are written.
TEST_F(WorkTest, OptimizerIsItsOperands) {
  const auto g = buffer({10}), p = buffer({10}, DType::bf16), m = buffer({10}), e = buffer({10}), e2 = buffer({10});
  const Work x = work(Optimizer{true, true, false, 10}, {g, p, m, e, e2}, {p, m, e, e2});
  EXPECT_EQ(x.bytes_read, 4 * 40 + 20);
  EXPECT_EQ(x.bytes_written, 3 * 40 + 20);
}

// Moments in bf16: 4 bytes an element fewer are read, and written. Where every operation is a pass of its own, moments
// are 5 of the 12 elements read and 3 of the 8 written.
TEST_F(WorkTest, MomentsOfBf16AreHalfTheBytes) {
  const auto g = buffer({10}), p = buffer({10}), e = buffer({10}, DType::bf16), e2 = buffer({10}, DType::bf16);
  const Work fused = work(Optimizer{true, false, false, 10}, {g, p, e, e2}, {p, e, e2});
  EXPECT_EQ(fused.bytes_read, 2 * 40 + 2 * 20);
  EXPECT_EQ(fused.bytes_written, 40 + 2 * 20);
  const Work passes = work(Optimizer{true, false, false, 10, true}, {g, p, e, e2}, {p, e, e2});
  EXPECT_EQ(passes.bytes_read, 7 * 40 + 5 * 20);
  EXPECT_EQ(passes.bytes_written, 5 * 40 + 3 * 20);
  const Work sgd = work(Optimizer{false, false, false, 10}, {g, p, e}, {p, e});
  EXPECT_EQ(sgd.bytes_read, 2 * 40 + 20);
  EXPECT_EQ(sgd.bytes_written, 40 + 20);
}

// Transfers do no kernel work; their bytes are elements of the type sent.
TEST_F(WorkTest, TransfersHaveBytesButNoWork) {
  const auto x = buffer({10}, DType::bf16);
  Op& reduce = b.op(body, "r", Collective{CollectiveKind::all_reduce, 0, 10}, 0, {x}, {x});
  reduce.dtype = DType::bf16;
  EXPECT_EQ(work_of(b.role, reduce).bytes_read, 0);
  EXPECT_EQ(collective_bytes(reduce), 20);
  Op& send = b.op(body, "s", testing::send_to(1, 10), 0, {x}, {});
  EXPECT_EQ(leg_bytes(send, std::get<PointToPoint>(send.shape).legs[0]), 40);
}

}  // namespace
}  // namespace rehearse::program
