// Roles of one op for the tests of costs.
#pragma once

#include <string>
#include <vector>

#include "sim/program/program.h"

namespace rehearse::cost::test {

struct OneOp {
  program::Role role;
  program::Op op;

  program::Operand buffer(program::DType dtype, std::vector<std::int64_t> shape) {
    program::Buffer b;
    b.dtype = dtype;
    b.shape = std::move(shape);
    role.buffers.push_back(b);
    return {static_cast<program::BufferId>(role.buffers.size() - 1), 0};
  }
};

inline OneOp gemm(std::int64_t m, std::int64_t n, std::int64_t k, program::DType dtype = program::DType::bf16,
                  bool accumulate_f32 = false, std::int64_t batch = 1) {
  OneOp one;
  program::Gemm shape;
  shape.m = m, shape.n = n, shape.k = k, shape.batch = batch;
  shape.accumulate = accumulate_f32;
  one.op.name = "layer0.mlp.up.forward";
  one.op.dtype = dtype;
  one.op.shape = shape;
  one.op.reads = {one.buffer(dtype, {batch, m, k}), one.buffer(dtype, {batch, k, n})};
  const auto c = one.buffer(accumulate_f32 ? program::DType::f32 : dtype, {batch, m, n});
  if (accumulate_f32) one.op.reads.push_back(c);
  one.op.writes = {c};
  return one;
}

// Of `groups` groups of rows / groups each.
inline OneOp grouped(program::GroupedPart part, std::int64_t groups, std::int64_t rows, std::int64_t n, std::int64_t k,
                     bool accumulate_f32 = false) {
  OneOp one;
  one.op.name = "layer0.experts.up";
  one.op.dtype = program::DType::bf16;
  one.op.shape = program::GroupedGemm{part, groups, rows, n, k, accumulate_f32, false};
  const auto x = one.buffer(program::DType::bf16, {rows, k}), y = one.buffer(program::DType::bf16, {rows, n});
  const auto w = one.buffer(accumulate_f32 ? program::DType::f32 : program::DType::bf16, {groups, n, k});
  using program::GroupedPart;
  one.op.reads = part == GroupedPart::forward          ? std::vector{x, w}
                 : part == GroupedPart::backward_input ? std::vector{y, w}
                                                       : std::vector{y, x};
  if (accumulate_f32) one.op.reads.push_back(w);
  one.op.writes = {part == GroupedPart::forward ? y : part == GroupedPart::backward_input ? x : w};
  return one;
}

// y = x + x over `elements` bf16: three times 2 bytes an element.
inline OneOp add(std::int64_t elements) {
  OneOp one;
  program::Elementwise shape;
  shape.fn = program::ElementwiseFn::add;
  shape.elements = elements;
  one.op.name = "residual";
  one.op.dtype = program::DType::bf16;
  one.op.shape = shape;
  one.op.reads = {one.buffer(program::DType::bf16, {elements}), one.buffer(program::DType::bf16, {elements})};
  one.op.writes = {one.buffer(program::DType::bf16, {elements})};
  return one;
}

inline OneOp attention(program::AttentionPart part, std::int64_t batch, std::int64_t heads, std::int64_t seq) {
  OneOp one;
  program::Attention shape;
  shape.part = part;
  shape.micro_batch = batch, shape.heads = heads, shape.kv_heads = heads, shape.seq = seq, shape.head_dim = 128;
  one.op.name = "layer0.attention";
  one.op.dtype = program::DType::bf16;
  one.op.shape = shape;
  one.op.reads = {one.buffer(program::DType::bf16, {batch * seq, heads, 3, 128})};
  one.op.writes = {one.buffer(program::DType::bf16, {batch * seq, heads, 128})};
  return one;
}

}  // namespace rehearse::cost::test
