// Adafactor (training.optimizer: adafactor): an operation a tensor where ranks have whole ones (program::Adafactor has
// the rule), else in parts (program::AdafactorParts), of each bucket a pass for the sums of squares along rows and
// columns, one for the means and the squares of the updates, and one that applies these. Between them what ranks have
// of a tensor is summed up, over ZeRO's shards and the tensor group: rows + columns of each matrix, then one number a
// tensor. The means are those of whole matrices whatever cuts them: a sum over the ranks that have parts, as
// ColossalAI's DistributedAdafactor has them of tensor groups (hpcaitech/ColossalAI pull request 5484), and PyTorch's
// discussion of its own of parameters that are sharded one by one (pytorch/pytorch issue 109581, which says too why
// FSDP's flat shards, without shapes, cannot). Here a flat shard knows which elements of which tensors it has. Every
// rank keeps the means whole. Each expert's matrix is a matrix by itself, as where experts are parameters of their own.
#include <array>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/check.h"
#include "sim/lower/parallel/parameters.h"

namespace rehearse::lower {

using program::AdafactorPart;
using program::AdafactorParts;
using program::AdafactorTensor;
using program::BufferClass;
using program::Collective;
using program::CollectiveKind;
using program::StreamKind;

// A tensor of two or more dimensions is a matrix of as many columns as the last has.
void ParameterStore::make_factors(Param& p, const Bucket& bucket) {
  const auto means = [&](const std::string& name, std::int64_t elements) {
    return builder_.add_buffer({name + p.spec.name,
                                DType::f32,
                                {elements},
                                BufferClass::optimizer,
                                Lifetime::persistent,
                                -1,
                                0,
                                0,
                                {},
                                {program::Init::Kind::zeros, 0, {}, -1}});
  };
  const std::int64_t cols = p.local_shape.back();
  if (p.local_shape.size() > 1) p.row_means = means("row_means.", p.elements / cols);
  p.col_means = means("col_means.", cols);
  if (context_.master)
    p.updated_master = builder_.view("updated_master." + p.spec.name, bucket.master, p.offset, p.local_shape);
}

// Whether all ranks have whole tensors of one matrix.
bool ParameterStore::adafactor_of_whole_tensors() const {
  return context_.groups.adafactor < 0 && context_.model().family != model::Family::moe;
}

void ParameterStore::emit_adafactor(const Param& p, const Bucket& bucket, BufferId coefficient) {
  const bool factored = p.row_means >= 0;
  REHEARSE_CHECK(!sharded(bucket) && context_.tensor == 1, "{}: whole tensors", p.spec.name);
  std::vector<Operand> reads{{p.gradient}}, writes{{p.value}};
  if (coefficient >= 0) reads.push_back({coefficient});
  reads.push_back({p.value});
  for (const BufferId state : {p.updated_master, p.row_means, p.col_means}) {
    if (state < 0) continue;
    reads.push_back({state});
    writes.push_back({state});
  }
  const std::int64_t cols = p.local_shape.back();
  builder_.op("optimizer." + p.spec.name,
              program::Adafactor{context_.master, coefficient >= 0, factored ? p.elements / cols : 0, cols}, DType::f32,
              reads, writes);
}

// The bucket's tensors; of experts one for each.
AdafactorParts ParameterStore::adafactor_parts_of(const Bucket& bucket) const {
  AdafactorParts parts;
  parts.elements = bucket.shard;
  if (sharded(bucket)) parts.shards = axes_of(bucket);
  for (const ParamId id : bucket.params) {
    const Param& p = params_[static_cast<std::size_t>(id)];
    const std::vector<std::int64_t>& shape = p.local_shape;
    const auto dims = static_cast<int>(shape.size());
    // The first dimension counts experts.
    const std::int64_t matrices = p.spec.experts ? shape.front() : 1;
    AdafactorTensor t;
    t.elements = p.elements / matrices;
    t.once = bucket.replicated;
    const std::int64_t ranks = split_over_tensor(p) ? context_.tensor : 1;
    t.whole = t.elements * ranks;
    if (dims > 1) {
      t.own_cols = shape.back();
      const bool by_columns = ranks > 1 && p.spec.tensor_dim == dims - 1;
      t.cols = t.own_cols * (by_columns ? ranks : 1);
      t.rows = t.whole / t.cols;
      if (ranks > 1 && !by_columns)
        t.block =
            std::accumulate(shape.begin() + p.spec.tensor_dim, shape.end() - 1, std::int64_t{1}, std::multiplies<>());
    }
    t.parts = ranks;
    for (std::int64_t m = 0; m < matrices; ++m) {
      t.offset = p.offset + m * t.elements;
      t.means = parts.means, t.sums = parts.sums;
      parts.means += t.kept(), parts.sums += t.summed();
      parts.tensors.push_back(t);
    }
  }
  return parts;
}

void ParameterStore::make_factors(Bucket& bucket, const std::string& suffix) {
  bucket.means = builder_.add_buffer({"means" + suffix,
                                      DType::f32,
                                      {adafactor_parts_of(bucket).means},
                                      BufferClass::optimizer,
                                      Lifetime::persistent,
                                      -1,
                                      0,
                                      0,
                                      {},
                                      {program::Init::Kind::zeros, 0, {}, -1}});
}

// Over the ranks that have parts of the same tensors; group -1: there are no others.
void ParameterStore::sum_parts(const std::string& name, BufferId all, std::int64_t first, std::int64_t count,
                               program::GroupId group) {
  if (group < 0 || count == 0) return;
  const BufferId part =
      count == builder_.buffer(all).elements() ? all : builder_.view(name + ".summed", all, first, {count});
  builder_.op_on("norm", StreamKind::data, name + ".all_reduce", Collective{CollectiveKind::all_reduce, group, count},
                 DType::f32, {{part}}, {{part}});
}

void ParameterStore::emit_adafactor_parts(BufferId coefficient) {
  struct Pass {
    std::string suffix;
    AdafactorParts shape;
    const Bucket* bucket;
    BufferId sums = -1, squares = -1;
  };
  std::vector<Pass> passes;
  // In forward order: those that all ranks of a stage have parts of, experts, and what this rank alone has.
  std::array<std::int64_t, 4> sums{}, squares{};  // where each of the three begins
  for (std::size_t kind = 0; kind < 3; ++kind) {
    sums[kind + 1] = sums[kind], squares[kind + 1] = squares[kind];
    for (std::size_t i = buckets_.size(); i-- > 0;) {
      const Bucket& b = buckets_[i];
      if (b.frozen || (b.owned ? 2U : b.experts ? 1U : 0U) != kind) continue;
      Pass pass{".bucket" + std::to_string(i), adafactor_parts_of(b), &b};
      pass.shape.clip = coefficient >= 0;
      sums[kind + 1] += pass.shape.sums;
      squares[kind + 1] += static_cast<std::int64_t>(pass.shape.tensors.size());
      passes.push_back(std::move(pass));
    }
  }
  if (passes.empty()) return;
  const BufferId all_sums =
      sums.back() > 0 ? builder_.workspace("adafactor.sums", DType::f32, {sums.back()}, Lifetime::step) : -1;
  const BufferId all_squares = builder_.workspace("adafactor.squares", DType::f32, {squares.back()}, Lifetime::step);
  std::int64_t sum = 0, square = 0;
  for (Pass& pass : passes) {
    if (pass.shape.sums > 0)
      pass.sums = builder_.view("adafactor.sums" + pass.suffix, all_sums, sum, {pass.shape.sums});
    const auto tensors = static_cast<std::int64_t>(pass.shape.tensors.size());
    pass.squares = builder_.view("adafactor.squares" + pass.suffix, all_squares, square, {tensors});
    sum += pass.shape.sums, square += tensors;
  }
  const auto gradient = [&](const Pass& pass) {
    std::vector<Operand> reads{{pass.bucket->gradient_shard}};
    if (pass.shape.clip) reads.push_back({coefficient});
    return reads;
  };
  const auto reduce = [&](const std::string& name, BufferId all, const std::array<std::int64_t, 4>& begin) {
    sum_parts(name, all, 0, begin[1], context_.groups.adafactor);
    sum_parts(name + ".experts", all, begin[1], begin[2] - begin[1], context_.groups.adafactor_experts);
  };
  for (Pass& pass : passes) {
    pass.shape.part = AdafactorPart::sums;
    if (pass.sums >= 0)
      builder_.op("adafactor.sums" + pass.suffix, pass.shape, DType::f32, gradient(pass), {{pass.sums}});
  }
  reduce("adafactor.sums", all_sums, sums);
  for (Pass& pass : passes) {
    pass.shape.part = AdafactorPart::squares;
    std::vector<Operand> reads = gradient(pass);
    if (pass.sums >= 0) reads.push_back({pass.sums});
    reads.push_back({pass.bucket->means});
    builder_.op("adafactor.squares" + pass.suffix, pass.shape, DType::f32, reads,
                {{pass.bucket->means}, {pass.squares}});
  }
  reduce("adafactor.squares", all_squares, squares);
  for (Pass& pass : passes) {
    const Bucket& b = *pass.bucket;
    pass.shape.part = AdafactorPart::apply;
    pass.shape.master = b.master >= 0;
    std::vector<Operand> reads = gradient(pass), writes{{b.value_shard}};
    reads.push_back({b.means});
    reads.push_back({pass.squares});
    if (pass.shape.master) writes.push_back({b.master});
    reads.insert(reads.end(), writes.begin(), writes.end());
    builder_.op("optimizer" + pass.suffix, pass.shape, DType::f32, reads, writes);
  }
}

}  // namespace rehearse::lower
