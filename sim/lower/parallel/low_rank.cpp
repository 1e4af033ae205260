// PowerSGD (plan.gradient_compression: [power_sgd]; Vogels et al. 2019, arXiv 1905.13727, algorithm 1): of a matrix M
// of gradients, [rows, cols], ranks sum P = M Q and then Q = M^T P, and M becomes P Q^T. As PyTorch's hook has it
// (torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py, powerSGD_hook), of a bucket:
//
//   accumulate {gradients, residual} -> residual                 error feedback: M is of the residual then
//   orthogonalise Q, P = M Q of each matrix; pack {M} -> rest    in the stream that computes
//   all_reduce rest; all_reduce P                                r rows of each matrix, and what is no matrix
//   orthogonalise P, Q = M^T P of each matrix; all_reduce Q      r cols
//   M = P Q^T of each matrix; unpack rest                        into the gradients
//   keep {gradients, residual} -> residual
//
// Products, a kernel each, are products (program::Gemm); P and Q of all matrices lie one behind the other. Q is kept
// for the next step (the hook's warm start), begins with normal numbers that all ranks draw alike, and is among the
// optimizer's states, as the residual is. Matrices are as the model has them: of a convolution [c_out, all else], of
// packed tensors of a transformer [all else, inputs]. Those that rank_of_matrix sends whole, and vectors, are the rest.
// Before gradient_start_step, performed, gradients are all-reduced. Left out: batched products of equal shapes, the
// hook's batched variant, a new Q in each step.
#include <string>

#include "sim/lower/parallel/parameters.h"

namespace rehearse::lower {

using program::BufferClass;
using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::Gemm;
using program::LowRank;
using program::LowRankPart;
using program::StreamKind;

ParameterStore::LowRankBucket ParameterStore::low_rank_of(const Bucket& bucket) const {
  LowRankBucket all;
  for (const ParamId id : bucket.params) {
    const Param& p = params_[static_cast<std::size_t>(id)];
    const bool convolution = p.local_shape.size() == 4 && p.spec.matrices == 0;
    const std::int64_t cols = p.local_shape.size() < 2 ? 1
                              : convolution            ? p.elements / p.local_shape.front()
                                                       : p.local_shape.back();
    const std::int64_t rows = p.elements / cols, rank = context_.plan().rank_of_matrix(rows, cols);
    if (rank == 0) {
      all.rest.push_back({p.offset, p.elements});
      continue;
    }
    all.matrices.push_back({p.spec.name, p.offset, rows, cols, rank, all.left, all.right});
    all.left += rows * rank;
    all.right += cols * rank;
  }
  return all;
}

void ParameterStore::make_right_factors(Bucket& bucket, const std::string& suffix) {
  if (!context_.plan().compresses_by("power_sgd") || group_of(bucket) < 0) return;
  const std::int64_t elements = low_rank_of(bucket).right;
  if (elements == 0) return;
  bucket.right = builder_.add_buffer({"right" + suffix,
                                      DType::f32,
                                      {elements},
                                      BufferClass::optimizer,
                                      Lifetime::persistent,
                                      -1,
                                      0,
                                      0,
                                      {},
                                      {program::Init::Kind::normal, 1, {}, -1}});
}

void ParameterStore::reduce_low_rank(const Bucket& bucket, int index, BufferId gradients) {
  const plan::Plan& plan = context_.plan();
  const std::string suffix = ".bucket" + std::to_string(index);
  const std::int64_t start = context_.scenario.purpose == plan::Purpose::perform ? plan.gradient_start_step : 0;
  const auto all_reduce = [&](const std::string& name, BufferId buffer) {
    builder_.op(name + suffix,
                Collective{CollectiveKind::all_reduce, group_of(bucket), builder_.buffer(buffer).elements()},
                DType::f32, {{buffer}}, {{buffer}}, StreamKind::data);
    if (!plan.overlap_grad_reduce) builder_.after_compute(builder_.last_op());
  };
  if (start > 0) {
    builder_.set_steps(0, start);
    all_reduce("all_reduce", gradients);
    builder_.set_steps(start);
  }

  const LowRankBucket all = low_rank_of(bucket);
  LowRank shape;
  shape.elements = bucket.padded;
  shape.epsilon = plan.gradient_epsilon;
  shape.members = members_of(bucket);
  shape.rest = all.rest;
  const auto slot_buffer = [&](const std::string& name, std::int64_t n) {
    return builder_.add_buffer(
        {builder_.here(name + suffix), DType::f32, {n}, BufferClass::communication, Lifetime::slot, -1, 0, 0, {}, {}});
  };
  const auto low_rank = [&](LowRankPart part, const std::string& name, BufferId from, BufferId to, StreamKind stream) {
    shape.part = part;
    std::vector<Operand> reads{{from}};
    if (part == LowRankPart::keep) reads.push_back({to});
    builder_.op(name + suffix, shape, DType::f32, reads, {{to}}, stream);
  };
  BufferId sent = gradients;
  if (bucket.residual >= 0) {
    sent = bucket.residual;
    builder_.op("add_residual" + suffix, Elementwise{ElementwiseFn::accumulate, bucket.padded}, DType::f32,
                {{gradients}, {sent}}, {{sent}});
  }
  const BufferId rest = all.rest.empty() ? -1 : slot_buffer("rest", shape.packed());
  if (rest >= 0) low_rank(LowRankPart::pack, "pack", sent, rest, StreamKind::compute);

  // Views of a matrix, of its factors, and of where its approximation goes.
  struct Views {
    BufferId matrix, left, right, to;
  };
  std::vector<Views> views;
  const BufferId left = all.left == 0 ? -1 : slot_buffer("left", all.left);
  for (const Factors& m : all.matrices) {
    const auto view = [&](const std::string& what, BufferId base, std::int64_t offset, std::int64_t rows,
                          std::int64_t cols) {
      return builder_.view(builder_.here(what + "." + m.name), base, offset, {rows, cols});
    };
    Views v{view("matrix", sent, m.offset, m.rows, m.cols), view("left", left, m.left, m.rows, m.rank),
            view("right", bucket.right, m.right, m.cols, m.rank), -1};
    v.to = sent == gradients ? v.matrix : view("approximation", gradients, m.offset, m.rows, m.cols);
    views.push_back(v);
  }
  const auto each = [&](const auto& emit) {
    for (std::size_t i = 0; i < views.size(); ++i) emit(all.matrices[i], views[i]);
  };
  const auto orthogonalise = [&](const std::string& name, std::int64_t rows, std::int64_t rank, BufferId x,
                                 StreamKind stream) {
    LowRank columns;
    columns.rows = rows, columns.rank = rank, columns.epsilon = plan.gradient_epsilon;
    builder_.op(name, columns, DType::f32, {{x}}, {{x}}, stream);
  };
  each([&](const Factors& m, const Views& v) {
    orthogonalise(m.name + ".orthogonal_right", m.cols, m.rank, v.right, StreamKind::compute);
    builder_.op(m.name + ".left", Gemm{m.rows, m.rank, m.cols}, DType::f32, {{v.matrix}, {v.right}}, {{v.left}});
  });
  if (rest >= 0) all_reduce("all_reduce.rest", rest);
  if (!views.empty()) all_reduce("all_reduce.left", left);
  each([&](const Factors& m, const Views& v) {
    orthogonalise(m.name + ".orthogonal_left", m.rows, m.rank, v.left, StreamKind::data);
    Gemm right{m.cols, m.rank, m.rows};
    right.transpose_a = true;
    builder_.op(m.name + ".right", right, DType::f32, {{v.matrix}, {v.left}}, {{v.right}}, StreamKind::data);
  });
  if (!views.empty()) all_reduce("all_reduce.right", bucket.right);
  each([&](const Factors& m, const Views& v) {
    Gemm product{m.rows, m.cols, m.rank};
    product.transpose_b = true;
    builder_.op(m.name + ".approximation", product, DType::f32, {{v.left}, {v.right}}, {{v.to}}, StreamKind::data);
  });
  if (rest >= 0) low_rank(LowRankPart::unpack, "unpack", rest, gradients, StreamKind::data);
  if (bucket.residual >= 0) low_rank(LowRankPart::keep, "keep", gradients, bucket.residual, StreamKind::data);
  builder_.set_steps(0);
}

}  // namespace rehearse::lower
