// FLOPs and device memory traffic of an op. Matrix products count a multiply-add as 2; norms, activations, softmax and
// the like count no FLOPs (they are bound by memory; the FLOP formulas of the field leave them out too: Narayanan et
// al. 2021, arXiv 2104.04473, appendix). Traffic is each operand once, as if caches held a tile and nothing longer:
// what a well written kernel moves. A matrix product that accumulates names C in reads and in writes, so it is counted
// twice.
#include "sim/program/work.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/base/window.h"

namespace rehearse::program {
namespace {

std::int64_t bytes_of(const Role& role, const std::vector<Operand>& operands) {
  std::int64_t sum = 0;
  for (const Operand& o : operands) sum += role.buffers[static_cast<std::size_t>(o.buffer)].bytes();
  return sum;
}

std::int64_t operand_bytes(const Role& role, const std::vector<Operand>& operands, std::size_t index) {
  return index < operands.size() ? role.buffers[static_cast<std::size_t>(operands[index].buffer)].bytes() : 0;
}

// Bytes of `operands[index]` when at most `elements` of it are touched.
std::int64_t touched_bytes(const Role& role, const std::vector<Operand>& operands, std::size_t index,
                           std::int64_t elements) {
  if (index >= operands.size()) return 0;
  const Buffer& b = role.buffers[static_cast<std::size_t>(operands[index].buffer)];
  return std::min(elements, b.elements()) * size_of(b.dtype);
}

double gemm_flops(const Gemm& g) {
  return 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k) *
         static_cast<double>(g.batch);
}

// One product is 2 b h s s d, with d the width of queries and keys or that of values. FlashAttention's backward does
// five: it recomputes the scores, then the gradients of the value, the probabilities, the query and the key (Dao 2023,
// arXiv 2307.08691, section 3.1), the second and third of them with values.
double attention_flops(const Attention& a) {
  const bool flash = a.part == AttentionPart::flash_forward || a.part == AttentionPart::flash_backward;
  const std::int64_t together = a.document > 0 ? std::min(a.document, a.compared()) : a.compared();
  const std::int64_t compared = flash ? counted_keys(together, a.window) + a.cached : a.compared();
  const double column = 2.0 * static_cast<double>(a.micro_batch) * static_cast<double>(a.heads) *
                        static_cast<double>(a.seq) * static_cast<double>(compared);
  const double keys = column * static_cast<double>(a.head_dim), values = column * static_cast<double>(a.values());
  switch (a.part) {
    case AttentionPart::flash_forward:
      return keys + values;
    case AttentionPart::flash_backward:
      return 3 * keys + 2 * values;
    case AttentionPart::scores:
    case AttentionPart::scores_backward_query:
    case AttentionPart::scores_backward_key:
      return keys;
    case AttentionPart::context:
    case AttentionPart::context_backward_probs:
    case AttentionPart::context_backward_value:
      return values;
    case AttentionPart::softmax:
    case AttentionPart::dropout:
    case AttentionPart::dropout_backward:
    case AttentionPart::softmax_backward:
    case AttentionPart::bias_gradient:
    case AttentionPart::sinks:
    case AttentionPart::sink_gradient:
      return 0;
  }
  return 0;
}

// Forward, input gradient and weight gradient are the same sum of products in another order.
double conv_flops(const Conv2d& c) {
  return 2.0 * static_cast<double>(c.batch * c.c_out) * static_cast<double>(c.out_height() * c.out_width()) *
         static_cast<double>(c.group_in() * c.kernel * c.kernel);
}

// What kernels of their own move besides the operands, which a fused one would move alone. Sources: the ops of PyTorch
// 2.x named in plan/framework.cpp, torch-ddp.
Work extra_of(const Role& role, const Op& op) {
  if (const auto* a = std::get_if<Activation>(&op.shape); a != nullptr && a->separate && is_gated(a->fn)) {
    // Forward: silu's result is written and read. Backward: y = silu * up is undone into d_silu, written and read; dy
    // is read twice, silu and gate each once more.
    const std::int64_t one = a->rows * a->cols * size_of(op.dtype);
    // What of it is an operand is counted.
    const bool silu = a->backward ? op.reads.size() > 2 : op.writes.size() == 2;
    return a->backward ? Work{0, (silu ? 2 : 3) * one, one} : Work{0, one, silu ? 0 : one};
  }
  if (const auto* c = std::get_if<ChannelScale>(&op.shape); c != nullptr && c->separate && c->backward) {
    const std::int64_t all = operand_bytes(role, op.reads, 0);  // dy again; dy x is written, and read for its sum
    return {0, 2 * all, all};
  }
  if (const auto* e = std::get_if<CrossEntropy>(&op.shape); e != nullptr && e->separate) {
    const std::int64_t all = operand_bytes(role, op.reads, 0);
    // Forward: the maximum is subtracted (read and written), exp, its sum, the division by it; backward multiplies what
    // that left, in place (NVIDIA/Megatron-LM megatron/mpu/cross_entropy.py, _VocabParallelCrossEntropy;
    // huggingface/nanotron parallel/tensor_parallel/functional.py, _ShardedCrossEntropy). One kernel reads the logits.
    if (e->part == CrossEntropyPart::exp_sum) return {0, 3 * all, 3 * all};
    if (e->vocab_parallel) return {};
    // log_softmax writes its result; nll_loss's backward writes zeros, which log_softmax's backward reads: for their
    // sum, and again where they do not stay on the chip.
    const std::int64_t reads = log_softmax_reads(all / std::max<std::int64_t>(1, e->rows));
    if (e->part == CrossEntropyPart::fused_forward) return {0, (reads - 1) * all, all};
    if (e->part == CrossEntropyPart::backward) return {0, reads > 1 ? 2 * all : all, all};
  }
  if (const auto* n = std::get_if<BatchNorm>(&op.shape)) {
    // Nothing is normalised before all of a channel is summed: x, and backward dy too, are read twice.
    if (n->part == BatchNormPart::forward) return {0, operand_bytes(role, op.reads, 0), 0};
    if (n->part == BatchNormPart::backward)
      return {0, operand_bytes(role, op.reads, 0) + operand_bytes(role, op.reads, 1), 0};
  }
  if (std::holds_alternative<Adafactor>(op.shape)) {
    // No update is known before all means are, nor clipped before all updates are: the gradient is read three times.
    return {0, 2 * operand_bytes(role, op.reads, 0), 0};
  }
  if (const auto* o = std::get_if<Optimizer>(&op.shape); o != nullptr && o->separate && o->adam) {
    // In fp32 elements a parameter: mul of the parameter 1 read 1 written, lerp 2 1, mul 1 1, addcmul 2 1, sqrt 1 1,
    // div 1 1, add 1 1, addcdiv 3 1: 12 and 8; one kernel reads 4 and writes 3. Clipping: 1 and 1 more. Of the 8 and 5
    // that one kernel would not move, 3 and 1 are moments, which may be of fewer bytes.
    const std::int64_t one = 4 * o->elements, clip = o->clip ? one : 0;
    const std::int64_t moment = operand_bytes(role, op.writes, op.writes.size() - 1);
    return {0, 5 * one + 3 * moment + clip, 4 * one + moment + clip};
  }
  return {};
}

// Products of one iteration with X [r, c], r <= c: X X^T, A A, and B X. Besides the tensor's part, what an iteration
// reads and writes of scratch: X three times and A three times read, A and B and X twice written.
Work muon_work(const Role& role, const Op& op, const Muon& m) {
  if (!m.multiplies()) return {0, bytes_of(role, op.reads), bytes_of(role, op.writes)};
  constexpr double kIterations = 5;
  const auto r = static_cast<double>(m.small()), c = static_cast<double>(m.rows + m.cols - m.small());
  const std::int64_t x = m.rows * m.cols, a = m.small() * m.small(), size = size_of(op.dtype);
  Work work;
  work.flops = static_cast<double>(m.matrices) * kIterations * (4 * r * r * c + 2 * r * r * r);
  for (const auto& [operands, bytes] :
       {std::pair{&op.reads, &work.bytes_read}, std::pair{&op.writes, &work.bytes_written}})
    for (std::size_t i = 0; i < operands->size() - (operands == &op.writes ? 1 : 0); ++i) {  // all but scratch
      const Buffer& b = role.buffers[static_cast<std::size_t>((*operands)[i].buffer)];
      if (operands == &op.reads && i == 0 && m.part != MuonPart::whole)
        *bytes += m.matrices * x * size_of(b.dtype);
      else
        *bytes += b.elements() == m.elements ? m.matrices * (x / m.parts) * size_of(b.dtype) : b.bytes();
    }
  work.bytes_read += m.matrices * 5 * (3 * x + 3 * a) * size;
  work.bytes_written += m.matrices * 5 * (2 * x + 2 * a) * size;
  return work;
}

// Compressing reads the sums once and, before anything can be sent, as often again as it takes to know what: the
// largest by four passes of a radix select over 8 bits each (Alabi et al. 2012, "Fast k-selection algorithms for
// graphics processing units"; PyTorch's sbtopk and mbtopk, aten/src/ATen/native/cuda/TensorTopK.cu), a chunk's least
// and greatest value by one, unless the chunk stays on the chip. With a residual the sums are written there first. Of
// those drawn at random only these are read. Decompressing clears the gradients and adds to those in the places that
// were sent.
Work compress_work(const Role& role, const Op& op, const Compress& c) {
  constexpr std::int64_t kOnChip = 64 << 10, kSelectPasses = 4;
  const GradientCode& code = c.code;
  const bool sparse = code.sent != GradientCode::Sent::all;
  Work work{0, bytes_of(role, op.reads), bytes_of(role, op.writes)};
  if (c.decompress) {
    const std::int64_t each = c.members * code.kept * operand_bytes(role, op.writes, 0) / code.elements;
    if (sparse) work.bytes_read += each, work.bytes_written += each;
    return work;
  }
  const std::int64_t sums = operand_bytes(role, op.reads, c.feedback ? 1 : 0);
  if (code.sent == GradientCode::Sent::largest) work.bytes_read += kSelectPasses * sums;
  if (code.sent == GradientCode::Sent::all && code.quantised() && 4 * code.chunk > kOnChip) work.bytes_read += sums;
  if (code.sent == GradientCode::Sent::random && !c.feedback)
    work.bytes_read = code.kept * operand_bytes(role, op.reads, 0) / code.elements;
  return work;
}

// Gram-Schmidt twice: each of rank (rank - 1) / 2 pairs of columns has a dot product and an update, 4 FLOPs a row, and
// each column is read for its norm and divided. The columns are few, and stay on the chip.
Work low_rank_work(const Role& role, const Op& op, const LowRank& l) {
  Work work{0, bytes_of(role, op.reads), bytes_of(role, op.writes)};
  const auto rows = static_cast<double>(l.rows), rank = static_cast<double>(l.rank);
  if (l.part == LowRankPart::orthogonalise) work.flops = 4 * rows * rank * (rank - 1) + 3 * rows * rank;
  if (l.part == LowRankPart::pack || l.part == LowRankPart::unpack)
    work.bytes_read = work.bytes_written = 4 * l.packed();
  return work;
}

}  // namespace

std::int64_t log_softmax_reads(std::int64_t row_bytes) {
  constexpr std::int64_t kOnChip = 64 << 10;
  return row_bytes > kOnChip ? 3 : 1;
}

Work work_of(const Role& role, const Op& op) {
  if (is_transfer(op) || std::holds_alternative<HostSync>(op.shape)) return {};
  if (const auto* m = std::get_if<Muon>(&op.shape)) return muon_work(role, op, *m);
  if (const auto* c = std::get_if<Compress>(&op.shape)) return compress_work(role, op, *c);
  if (const auto* l = std::get_if<LowRank>(&op.shape)) return low_rank_work(role, op, *l);
  Work work{0, bytes_of(role, op.reads), bytes_of(role, op.writes)};
  if (const auto* g = std::get_if<Gemm>(&op.shape)) {
    work.flops = gemm_flops(*g);
  } else if (const auto* grouped = std::get_if<GroupedGemm>(&op.shape)) {
    work.flops =
        2.0 * static_cast<double>(grouped->rows) * static_cast<double>(grouped->n) * static_cast<double>(grouped->k);
    if (grouped->chosen > 0) {
      const auto weights = static_cast<double>(operand_bytes(role, op.reads, 1));
      work.bytes_read -= std::llround(weights * (1 - grouped->chosen / static_cast<double>(grouped->groups)));
    }
  } else if (const auto* p = std::get_if<Permute>(&op.shape)) {
    // A token is read, or added to, once for each of its rows, which may be other ranks' for most of the tokens.
    const std::int64_t taken = std::min(p->top_k * p->tokens, p->rows);
    const std::int64_t again = (taken - p->tokens) * p->cols * size_of(op.dtype);
    if (p->part == PermutePart::permute || p->part == PermutePart::unpermute_backward) work.bytes_read += again;
  } else if (const auto* a = std::get_if<Attention>(&op.shape)) {
    work.flops = attention_flops(*a);
    work.bytes_read += a->micro_batch * a->kv_heads * a->cached * (a->head_dim + a->values()) * size_of(op.dtype);
  } else if (const auto* mixer = std::get_if<StateSpace>(&op.shape)) {
    work.flops = mixer->flops();
    const std::vector<std::int64_t> reads = mixer->touched_reads(), writes = mixer->touched_writes();
    work.bytes_read = work.bytes_written = 0;
    for (std::size_t i = 0; i < reads.size(); ++i) work.bytes_read += touched_bytes(role, op.reads, i, reads[i]);
    for (std::size_t i = 0; i < writes.size(); ++i) work.bytes_written += touched_bytes(role, op.writes, i, writes[i]);
  } else if (const auto* heads = std::get_if<HeadNorm>(&op.shape)) {
    // Values are not touched; where frameworks keep what queries and keys were, the kernel writes beside it.
    const std::int64_t turned = heads->heads() * heads->head_dim;
    work.bytes_read -= operand_bytes(role, op.reads, 0) - touched_bytes(role, op.reads, 0, turned);
    if (heads->part == NormPart::forward)
      work.bytes_written -= operand_bytes(role, op.writes, 0);
    else if (heads->part == NormPart::backward_input)
      work.bytes_written = touched_bytes(role, op.writes, 0, turned);
  } else if (const auto* c = std::get_if<Conv2d>(&op.shape)) {
    work.flops = conv_flops(*c);
  } else if (const auto* e = std::get_if<Embedding>(&op.shape)) {
    // The table's rows that the tokens name: at most one a token, at most all.
    const std::size_t table = e->backward ? 2 : 1;
    const std::int64_t used = std::min(e->tokens, e->rows) * e->cols;
    work.bytes_read += touched_bytes(role, op.reads, table, used) - operand_bytes(role, op.reads, table);
    if (e->backward) work.bytes_written = touched_bytes(role, op.writes, 0, used);
  } else if (const auto* bags = std::get_if<EmbeddingBags>(&op.shape)) {
    // Every look-up reads a row; of gradients and updates each row that is named moves once each way.
    const bool forward = bags->part == BagPart::forward;
    const std::size_t tables = bags->tables.size(), first = forward ? 1 : 2;
    for (std::size_t f = 0; f < tables; ++f) {
      const BagTable& t = bags->tables[f];
      const std::int64_t named = bags->slices * bags->batch * t.lookups,
                         used = forward ? named : std::min(named, t.rows);
      const Buffer& table = role.buffers[static_cast<std::size_t>(op.reads[first + f].buffer)];
      work.bytes_read += used * bags->cols * size_of(table.dtype) - table.bytes();
      if (forward) continue;
      work.bytes_written += used * bags->cols * size_of(table.dtype) - operand_bytes(role, op.writes, f);
      if (!bags->adagrad) continue;
      work.bytes_read += 4 * used - operand_bytes(role, op.reads, first + tables + f);
      work.bytes_written += 4 * used - operand_bytes(role, op.writes, tables + f);
    }
  } else if (const auto* entropy = std::get_if<CrossEntropy>(&op.shape)) {
    // What a chain of kernels hands on (`separate`, or passes of the op) is counted as passes.
    const std::size_t results = entropy->part == CrossEntropyPart::fused_forward ? 2 : 1;
    for (std::size_t i = results; i < op.writes.size(); ++i) work.bytes_written -= operand_bytes(role, op.writes, i);
  } else if (const auto* strided = std::get_if<StridedCopy>(&op.shape)) {
    work.bytes_read = work.bytes_written = strided->outer * strided->inner * strided->cols * size_of(op.dtype);
  } else if (const auto* w = std::get_if<Elementwise>(&op.shape)) {
    if (w->fn == ElementwiseFn::rope || w->fn == ElementwiseFn::rope_backward) {  // the values are not touched
      work.bytes_read = touched_bytes(role, op.reads, 0, w->elements);
      work.bytes_written = touched_bytes(role, op.writes, 0, w->elements);
    } else if (w->fn == ElementwiseFn::add_position || w->fn == ElementwiseFn::position_grad) {  // rows in use
      work.bytes_read += touched_bytes(role, op.reads, 1, w->elements) - operand_bytes(role, op.reads, 1);
      work.bytes_written = touched_bytes(role, op.writes, 0, w->elements);
    }
  }
  if (op.fused) return {work.flops, op.passes.read, op.passes.written};
  const Work extra = extra_of(role, op);
  work.bytes_read += extra.bytes_read + op.passes.read;
  work.bytes_written += extra.bytes_written + op.passes.written;
  return work;
}

std::int64_t collective_bytes(const Op& op) {
  return std::get<Collective>(op.shape).elements * size_of(op.dtype);
}
std::vector<Bytes> part_bytes(const Program& program, std::int32_t parts, std::int64_t bytes, std::size_t members) {
  if (parts < 0) return std::vector<Bytes>(members, Bytes(bytes / static_cast<std::int64_t>(members)));
  const std::vector<std::int64_t>& elements = program.parts.at(static_cast<std::size_t>(parts));
  const auto senders = static_cast<std::int64_t>(elements.size() / members);  // 1, where all send the same
  const std::int64_t size = bytes * senders / std::accumulate(elements.begin(), elements.end(), std::int64_t{0});
  std::vector<Bytes> all;
  for (const std::int64_t n : elements) all.emplace_back(n * size);
  return all;
}
std::int64_t leg_bytes(const Op& op, const Leg& leg) {
  return leg.elements * size_of(op.dtype);
}

}  // namespace rehearse::program
