// Operands and shapes of program ops as arguments of device calls; the masks' sites and the vocabulary's offsets are
// where the rank's coordinate and the step come in.
#include "execute/rank/kernel_call.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <type_traits>

#include "execute/rank/adafactor_call.h"
#include "execute/rank/cpu_only_call.h"
#include "execute/rank/expert_rows.h"
#include "execute/rank/fp8_call.h"
#include "execute/rank/low_rank_call.h"
#include "execute/rank/map_calls.h"
#include "execute/rank/muon_call.h"
#include "execute/rank/norm_call.h"
#include "execute/rank/outer_call.h"
#include "execute/rank/packed_rows.h"
#include "execute/rank/tensor_ranges.h"
#include "kernels/state_space_calls.h"
#include "sim/base/check.h"
#include "sim/plan/context_rows.h"
#include "sim/plan/documents.h"

namespace rehearse::execute {
namespace {

using kernels::In;
using kernels::Out;
using program::AttentionPart;
using program::ConvPart;
using program::CrossEntropyPart;
using program::ElementwiseFn;

class KernelCall {
 public:
  KernelCall(std::span<const kernels::Out> reads, std::span<const kernels::Out> writes, const CallContext& c)
      : reads_(reads), writes_(writes), c_(c), d_(c.device) {}

  void operator()(const program::Gemm& g) const {
    const kernels::Gemm shape{g.m, g.n, g.k, g.transpose_a, g.transpose_b, g.accumulate};
    const In bias = g.bias ? in(2) : nullptr;
    const bool narrow = is_narrow(in(0).type);
    REHEARSE_CHECK((g.epilogue == program::Epilogue::none && !narrow) || g.batch == 1,
                   "an epilogue, or 8 bits, of {} products", g.batch);
    In a = in(0), b = in(1);
    kernels::Fp8Layout of_a, of_b;
    if (narrow) {
      const plan::Training& t = c_.scenario.training;
      of_a = g.transpose_a ? fp8_layout(t, g.k, g.m, true) : fp8_layout(t, g.m, g.k, false);
      of_b = g.transpose_b ? fp8_layout(t, g.n, g.k, false) : fp8_layout(t, g.k, g.n, true);
      if (of_a.block == 0 || of_a.packed > 1)
        of_a.inverse = f32(reads_.size() - 2), of_b.inverse = f32(reads_.size() - 1);
      a.layout = &of_a, b.layout = &of_b;
    }
    switch (g.epilogue) {
      case program::Epilogue::none:
        break;
      case program::Epilogue::gelu:
        return d_.gemm_gelu(shape, a, b, bias, out(1), out(0));
      case program::Epilogue::gelu_backward:
        return d_.gemm_gelu_backward(shape, a, b, in(2), out(0));
      case program::Epilogue::bias_gradient:
        REHEARSE_CHECK(g.transpose_a, "the gradient of a bias out of a product whose first operand is not transposed");
        return d_.gemm_bias_grad(shape, a, b, out(0), out(1));
    }
    if (narrow) return d_.gemm(shape, a, b, bias, out(0));
    for (std::int64_t i = 0; i < g.batch; ++i)
      d_.gemm(shape, from(a, i * g.m * g.k), from(b, i * g.k * g.n), bias, from(out(0), i * g.m * g.n));
  }

  void operator()(const program::Attention& a) const {
    kernels::AttentionShape s{a.micro_batch, a.heads, a.kv_heads, a.seq, a.head_dim, a.causal, a.value_dim};
    s.window = a.window;
    s.softcap = a.softcap, s.score_scale = a.score_scale;
    s.unscaled = a.unscaled, s.bias_buckets = a.bias_buckets, s.bias_distance = a.bias_distance;
    const std::vector<std::int32_t> starts =
        a.document > 0 ? starts_of_documents(a.document, a.chunks) : std::vector<std::int32_t>();
    if (a.part == AttentionPart::sinks || a.part == AttentionPart::sink_gradient)
      return call_sinks(s, a, reads_, writes_, c_);
    if (a.document > 0) s.document_starts = starts.data(), s.document_row = c_.scenario.training.seq_len;
    const std::int64_t split = a.heads_split_over_context ? c_.scenario.plan.context : 1;
    const std::int64_t place = c_.tensor_coordinate * split + (split > 1 ? c_.context_coordinate : 0);
    s.alibi_heads = a.alibi_heads, s.first_head = place * a.heads;
    const kernels::DropoutSite site = dropout(a.dropout, a.site, 0, place * a.heads);
    const bool flash = a.part == AttentionPart::flash_forward || a.part == AttentionPart::flash_backward;
    if (a.keys > 0 && flash) return context_attention(a, s, site);
    s.keys = a.keys;
    switch (a.part) {
      case AttentionPart::flash_forward:
        return d_.flash_forward(s, site, in(0), out(0), f32_out(1));
      case AttentionPart::flash_backward:
        return d_.flash_backward(s, site, in(0), in(1), in(2), f32(3), out(0));
      case AttentionPart::scores:
        return a.keys > 0 ? d_.cross_attention_scores(s, in(0), in(1), out(0)) : d_.attention_scores(s, in(0), out(0));
      case AttentionPart::bias_gradient:
        return d_.attention_bias_gradient(s, in(0), out(0));
      case AttentionPart::softmax:
        if (a.bias_buckets > 0) return d_.attention_biased_softmax(s, in(0), in(1), out(0));
        return d_.attention_softmax(s, in(0), out(0));
      case AttentionPart::dropout:
        return d_.attention_dropout(s, site, in(0), out(0), bytes(writes_, 1));
      case AttentionPart::context:
        return d_.attention_context(s, in(0), in(1), out(0));
      case AttentionPart::context_backward_probs:
        return d_.attention_context_backward_probs(s, in(0), in(1), out(0));
      case AttentionPart::context_backward_value:
        return d_.attention_context_backward_value(s, in(0), in(1), out(0));
      case AttentionPart::dropout_backward:
        return d_.attention_dropout_backward(s, a.dropout, in(0), bytes(reads_, 1), out(0));
      case AttentionPart::softmax_backward:
        if (a.softcap > 0) return d_.attention_capped_softmax_backward(s, in(0), in(1), in(2), out(0));
        return d_.attention_softmax_backward(s, in(0), in(1), out(0));
      case AttentionPart::scores_backward_query:
        return d_.attention_scores_backward_query(s, in(0), in(1), out(0));
      case AttentionPart::scores_backward_key:
        return d_.attention_scores_backward_key(s, in(0), in(1), out(0));
      case AttentionPart::sinks:
      case AttentionPart::sink_gradient:
        break;  // above
    }
  }

  void operator()(const program::LatentHeads& l) const {
    const std::int64_t mb = micro_batch();
    std::int64_t done = 0;
    for (const plan::TokenRun& run : tokens()) {
      const kernels::LatentShape s{mb, l.heads, run.count, l.nope, l.rope, l.value, c_.scenario.model.rotation()};
      const std::int64_t row = done * mb, head = row * l.heads;
      const std::int64_t q = head * s.query(), kv = head * (l.nope + l.value), k = row * l.rope,
                         packed = head * s.packed();
      if (l.backward)
        d_.latent_heads_backward(s, run.first, from(in(0), packed), from(out(0), q), from(out(1), kv), from(out(2), k));
      else
        d_.latent_heads(s, run.first, from(in(0), q), from(in(1), kv), from(in(2), k), from(out(0), packed));
      done += run.count;
    }
  }

  void operator()(const StateSpace& s) const {
    auto* const mixers = dynamic_cast<kernels::StateSpaceCalls*>(&d_);
    REHEARSE_CHECK(mixers != nullptr, "this device has no kernels of {}", name_of(s.part));
    mixers->state_space(s, reads_, writes_);
  }
  void operator()(const program::Norm& n) const { call_norm(d_, n, reads_, writes_); }
  void operator()(const program::HeadNorm& n) const { call_head_norm(d_, n, reads_, writes_); }

  void operator()(const program::Activation& a) const {
    if (a.fn == program::ActivationFn::swiglu_oai) return call_swiglu_oai(a, up_of(a), reads_, writes_, c_);
    if (a.weighted && !is_gated(a.fn)) {
      if (!a.backward) return d_.weighted_activation_forward(unary(a.fn), a.rows, a.cols, in(0), f32(1), out(0));
      return d_.weighted_activation_backward(unary(a.fn), a.rows, a.cols, in(0), in(1), f32(2), out(0), f32_out(1));
    }
    if (a.weighted) {
      if (a.backward) return d_.weighted_swiglu_backward(a.rows, a.cols, in(0), in(1), f32(2), out(0), f32_out(1));
      return d_.weighted_swiglu_forward(a.rows, a.cols, in(0), f32(1), out(0));
    }
    if (is_gated(a.fn)) {
      const bool gelu = a.fn == program::ActivationFn::geglu;
      const In up = up_of(a);
      if (a.backward && gelu) return d_.geglu_backward(a.rows, a.cols, in(0), in(1), up, out(0));
      if (a.backward) return d_.swiglu_backward(a.rows, a.cols, in(0), in(1), up, out(0));
      if (gelu) return d_.geglu_forward(a.rows, a.cols, in(0), up, out(0));
      return d_.swiglu_forward(a.rows, a.cols, in(0), up, out(0));
    }
    if (a.backward) return d_.activation_backward(unary(a.fn), a.rows * a.cols, in(0), in(1), out(0));
    d_.activation_forward(unary(a.fn), a.rows * a.cols, in(0), out(0));
  }

  void operator()(const program::Elementwise& e) const {
    const std::int64_t n = e.elements, rows = e.cols > 0 ? n / e.cols : 0;
    switch (e.fn) {
      case ElementwiseFn::add:
        return d_.add(n, in(0), in(1), out(0));
      case ElementwiseFn::accumulate:
        return d_.accumulate(n, in(0), out(0));
      case ElementwiseFn::cast:
      case ElementwiseFn::copy:
        return d_.copy(n, in(0), out(0));
      case ElementwiseFn::fill:
        return d_.fill(n, static_cast<float>(e.value), out(0));
      case ElementwiseFn::scale:
        return d_.scale(n, static_cast<float>(e.value), in(0), out(0));
      case ElementwiseFn::bias_dropout_add:
        return over_runs(e, [&](const Run& r) {
          d_.bias_dropout_add(r.rows, e.cols, dropout(e.dropout, e.site, r.position, 0), from(in(0), r.first),
                              e.bias ? in(1) : nullptr, from(in(e.bias ? 2 : 1), r.first), from(out(0), r.first),
                              e.dropout > 0 ? bytes(writes_, 1) + r.first : nullptr);
        });
      case ElementwiseFn::dropout:
        return over_runs(e, [&](const Run& r) {
          d_.dropout(r.rows, e.cols, dropout(e.dropout, e.site, r.position, 0), from(in(0), r.first),
                     from(out(0), r.first), bytes(writes_, 1) + r.first);
        });
      case ElementwiseFn::dropout_backward:
        return d_.dropout_backward(n, e.dropout, in(0), bytes(reads_, 1), out(0));
      case ElementwiseFn::bias_grad:
        return d_.bias_grad(rows, e.cols, in(0), out(0));
      case ElementwiseFn::add_position:
        if (e.documents) return position_by_documents(e, e.fn == ElementwiseFn::position_grad);
        return over_runs(e, [&](const Run& r) {
          d_.add_position(r.rows, e.cols, micro_batch(), r.position, from(in(0), r.first), in(1),
                          from(out(0), r.first));
        });
      case ElementwiseFn::position_grad:
        if (e.documents) return position_by_documents(e, e.fn == ElementwiseFn::position_grad);
        return over_runs(e, [&](const Run& r) {
          d_.position_grad(r.rows, e.cols, micro_batch(), r.position, from(in(0), r.first), out(0));
        });
      case ElementwiseFn::rope:
      case ElementwiseFn::rope_backward:
        return rope(e.fn == ElementwiseFn::rope_backward, e);
      case ElementwiseFn::fp8_amax:
      case ElementwiseFn::fp8_cast:
      case ElementwiseFn::fp8_cast_transpose:
      case ElementwiseFn::hadamard_cast:
      case ElementwiseFn::fp8_transpose:
      case ElementwiseFn::fp8_widen:
      case ElementwiseFn::fp8_scale_update:
        return call_fp8(e, reads_, writes_, c_);
    }
  }

  void operator()(const program::StridedCopy& s) const {
    const auto strides = [](const program::Strides& of) {
      return kernels::StridedCopy::Strides{of.outer, of.inner, of.first};
    };
    d_.copy_strided({s.outer, s.inner, s.cols, strides(s.from), strides(s.to)}, in(0), out(0));
  }

  void operator()(const program::Router& r) const {
    const kernels::RouterShape s{r.tokens, r.experts,          r.top_k, r.capacity, r.sigmoid,
                                 r.groups, r.groups_per_token, r.raw};
    switch (r.part) {
      case program::RouterPart::gate:
        return d_.router_gate(s, in(0), f32_out(0), ids_out(1));
      case program::RouterPart::place:
        if (r.own == 0) return d_.router_place(s, ids(0), ids_out(0), f32_out(1));
        if (!d_.queues()) return place_own_rows(r, place_of(r), ids(0), ids_out(0), f32_out(1));
        return d_.place_own_rows({r.tokens, r.top_k, place_of(r) * r.own, r.own}, ids(0), ids_out(0), f32_out(1));
      case program::RouterPart::receive:
        if (!d_.queues()) return receive_rows(r, place_of(r), f32(0), ids_out(0), f32_out(1));
        return d_.receive_rows({r.tokens, r.experts, place_of(r) * r.own, r.own, r.sources, r.slices}, f32(0),
                               ids_out(0), f32_out(1));
      case program::RouterPart::gate_backward:
        return d_.router_gate_backward(s, r.aux, f32(0), in(1), ids(2), r.aux > 0 ? f32(3) : nullptr,
                                       r.scaled ? f32(r.aux > 0 ? 4 : 3) : nullptr, out(0));
    }
  }

  void operator()(const program::Permute& p) const {
    const kernels::PermuteShape s{p.tokens, p.top_k, p.rows, p.cols};
    switch (p.part) {
      case program::PermutePart::permute:
        return d_.permute(s, in(0), ids(1), out(0));
      case program::PermutePart::unpermute:
        return d_.unpermute(s, in(0), ids(1), f32(2), out(0));
      case program::PermutePart::unpermute_backward:
        return d_.unpermute_backward(s, in(0), in(1), ids(2), f32(3), out(0), f32_out(1));
      case program::PermutePart::permute_backward:
        return d_.unpermute(s, in(0), ids(1), nullptr, out(0));
    }
  }

  void operator()(const program::GroupedGemm& g) const {
    if (is_fp8(in(0).type)) return call_fp8(g, reads_, writes_, c_);
    const kernels::GroupedShape s{
        static_cast<kernels::GroupedPart>(g.part), g.groups, std::max(g.rows, g.room), g.n, g.k, g.accumulate};
    d_.grouped_gemm(s, in(0), in(1), g.counted ? f32(2) : nullptr, out(0));
  }
  void operator()(const program::GroupedBias& g) const { call_grouped_bias(g, reads_, writes_, c_); }
  void operator()(const program::RowScale& r) const { call_row_scale(r, reads_, writes_, c_); }
  void operator()(const program::Embedding& e) const {
    const std::int64_t first = e.vocab_parallel ? c_.tensor_coordinate * e.rows : 0;
    if (e.backward) return d_.embedding_backward(e.tokens, e.rows, e.cols, first, in(0), ids(1), out(0));
    d_.embedding_forward(e.tokens, e.rows, e.cols, first, ids(0), in(1), out(0));
  }
  void operator()(const program::EmbeddingBags& e) const {
    const bool forward = e.part == program::BagPart::forward;
    std::vector<kernels::BagTable> tables;
    for (std::size_t f = 0; f < e.tables.size(); ++f)
      tables.push_back({e.tables[f].rows, e.tables[f].lookups, reads_[f + (forward ? 1 : 2)],
                        e.adagrad ? f32_out(e.tables.size() + f) : nullptr});
    const kernels::BagShape s{e.slices, e.batch, e.cols, e.mean};
    switch (e.part) {
      case program::BagPart::forward:
        return d_.embedding_bags_forward(s, tables, ids(0), out(0));
      case program::BagPart::backward:
        return d_.embedding_bags_backward(s, tables, in(0), ids(1));
      case program::BagPart::update:
        return d_.embedding_bags_update(s, {c_.scenario.training.eps, c_.step}, tables, in(0), ids(1));
    }
  }
  void operator()(const program::Pairs& p) const {
    const kernels::PairShape s{p.batch, p.vectors, p.cols};
    if (p.backward) return d_.pairs_backward(s, in(0), out(0), out(1));
    d_.pairs_forward(s, in(0), in(1), out(0));
  }
  void operator()(const program::BinaryCrossEntropy& b) const {
    if (!b.backward) return d_.bce_forward(b.elements, b.scale, in(0), f32(1), f32_out(0));
    d_.bce_backward(b.elements, b.scale, b.scaled ? f32(2) : nullptr, in(0), f32(1), out(0));
  }
  void operator()(const program::CrossEntropy& e) const {
    const std::int64_t first = e.vocab_parallel ? c_.tensor_coordinate * e.cols : 0;
    switch (e.part) {
      case CrossEntropyPart::fused_forward:
        return d_.cross_entropy_forward(e.rows, e.cols, e.valid_cols, e.scale, in(0), ids(1), f32_out(0), f32_out(1));
      case CrossEntropyPart::row_max:
        return d_.cross_entropy_max(e.rows, e.cols, e.valid_cols, first, in(0), f32_out(0));
      case CrossEntropyPart::exp_sum:
        return d_.cross_entropy_exp_sum(e.rows, e.cols, e.valid_cols, first, in(0), ids(1), f32(2), f32_out(0));
      case CrossEntropyPart::loss:
        return d_.cross_entropy_loss(e.rows, e.scale, f32(0), f32_out(0));
      case CrossEntropyPart::backward: {
        // Statistics interleaved [rows, 2], or maxima [rows] and sums [rows, 2] whose first column is the sum.
        const bool apart = reads_.size() == (e.scaled ? 5 : 4);
        const float* loss_scale = e.scaled ? f32(reads_.size() - 1) : nullptr;
        const float* max = f32(2);
        const float* sum = apart ? f32(3) : f32(2) + 1;
        return d_.cross_entropy_backward(e.rows, e.cols, e.valid_cols, first, e.scale, loss_scale, in(0), ids(1), max,
                                         apart ? 1 : 2, sum, 2, out(0));
      }
    }
  }
  void operator()(const program::MeanSquaredError& m) const {
    if (!m.backward) return d_.mse_forward(m.elements, m.scale, in(0), f32(1), f32_out(0));
    d_.mse_backward(m.elements, m.scale, m.scaled ? f32(2) : nullptr, in(0), f32(1), out(0));
  }

  void operator()(const program::Optimizer& o) const {
    const plan::Training& t = c_.scenario.training;
    const float* coefficient = o.clip ? f32(1) : nullptr;
    float* master = o.master ? f32_out(1) : nullptr;
    const std::size_t state = o.master ? 2 : 1;
    if (o.adam) {
      kernels::AdamW rule{t.beta1, t.beta2, t.eps, t.weight_decay, c_.step};
      if (o.eight_bits) rule.exp_avg_largest = f32_out(state + 2), rule.exp_avg_sq_largest = f32_out(state + 3);
      return d_.adamw(o.elements, rule, in(0), coefficient, out(0), master, out(state), out(state + 1));
    }
    d_.sgd(o.elements, {t.momentum, t.weight_decay, c_.step, o.eight_bits ? f32_out(state + 1) : nullptr}, in(0),
           coefficient, out(0), master, writes_.size() > state ? out(state) : Out());
  }
  void operator()(const program::Adafactor& a) const {
    const std::size_t state = a.master ? 2 : 1;
    d_.adafactor({a.rows, a.cols, c_.scenario.training.weight_decay, c_.step}, in(0), a.clip ? f32(1) : nullptr, out(0),
                 a.master ? f32_out(1) : nullptr, a.rows > 0 ? f32_out(state) : nullptr,
                 f32_out(a.rows > 0 ? state + 1 : state));
  }

  void operator()(const program::AdafactorParts& a) const { call_adafactor_parts(a, c_, d_, reads_, writes_); }

  void operator()(const program::Lamb& l) const {
    const plan::Training& t = c_.scenario.training;
    const kernels::Lamb rule{t.beta1, t.beta2, t.eps, t.weight_decay, c_.step};
    const std::vector<kernels::LambTensor> tensors = tensors_here(l, c_);
    if (l.part == program::LambPart::moments) {
      const std::size_t value = l.clip ? 2 : 1;
      return d_.lamb_moments(l.elements, rule, tensors, in(0), l.clip ? f32(1) : nullptr, in(value), f32_out(0),
                             f32_out(1), f32_out(2), f32_out(3));
    }
    d_.lamb_apply(l.elements, rule, tensors, f32(0), f32(1), l.clip ? f32(2) : nullptr, out(0),
                  l.master ? f32_out(1) : nullptr);
  }

  void operator()(const program::Muon& m) const { call_muon(m, c_, reads_, writes_); }
  void operator()(const program::Compress& c) const {
    GradientDraw draw{static_cast<std::uint64_t>(c_.scenario.training.seed), static_cast<std::uint64_t>(c.site), 0,
                      static_cast<std::uint64_t>(c_.step->step)};
    if (c_.grid != nullptr) draw.member = static_cast<std::uint64_t>(c_.grid->position(c_.rank, c.spread));
    if (c.decompress)
      return d_.decompress(c.code, draw, c.members, static_cast<const std::uint8_t*>(in(0).data), out(0));
    if (c.corrected)
      return d_.compress_corrected(c.code, draw, c_.scenario.training.momentum, in(0), c.clip ? f32(3) : nullptr,
                                   f32_out(2), f32_out(1), static_cast<std::uint8_t*>(out(0).data));
    d_.compress(c.code, draw, in(0), c.feedback ? f32_out(1) : nullptr, static_cast<std::uint8_t*>(out(0).data));
  }
  void operator()(const program::LowRank& l) const { call_low_rank(l, d_, reads_, writes_); }
  void operator()(const program::OuterStep& o) const { call_outer_step(o, d_, reads_, writes_); }
  void operator()(const program::CountedTargets& t) const {
    if (t.mean) return d_.mean_of_counted(f32(1), f32_out(0));
    if (c_.tensor_coordinate % t.copies == 0) d_.count_targets(t.rows, ids(0), f32_out(0));
  }
  void operator()(const program::SumSquares& s) const {
    if (c_.tensor_coordinate % s.copies != 0) return;
    d_.sum_squares(s.elements, in(0), f32_out(0));
  }
  void operator()(const program::ClipCoefficient& clip) const {
    d_.clip_coefficient(clip.max_norm, f32(0), clip.scaled ? f32(1) : nullptr, f32_out(0));
  }
  void operator()(const program::UpdateLossScale& update) const {
    kernels::LossScaleRule rule;
    rule.interval = update.interval;
    d_.update_loss_scale(rule, f32(0), f32_out(0));
  }

  void operator()(const program::Conv2d& v) const {
    const kernels::ConvShape s{v.batch, v.c_in, v.c_out, v.height, v.width, v.kernel, v.stride, v.pad, v.groups};
    switch (v.part) {
      case ConvPart::forward:
        return d_.conv_forward(s, in(0), in(1), v.bias ? in(2) : nullptr, out(0));
      case ConvPart::backward_input:
        return d_.conv_backward_input(s, in(0), in(1), out(0));
      case ConvPart::backward_weight:
        return d_.conv_backward_weight(s, in(0), in(1), out(0), v.bias ? out(1) : nullptr);
    }
  }
  void operator()(const program::Pool2d& p) const { call_pool(p, d_, reads_, writes_); }
  void operator()(const program::AveragePool& p) const { call_average_pool(p, d_, reads_, writes_); }
  void operator()(const program::ChannelScale& s) const { call_channel_scale(s, d_, reads_, writes_); }
  void operator()(const program::BatchNorm& n) const {
    using program::BatchNormPart;
    const kernels::BatchNormShape s{n.batch, n.channels, n.pixels, n.count, n.eps};
    switch (n.part) {
      case BatchNormPart::forward:
        d_.batch_norm_sums(s, in(0), f32_out(1));
        return d_.batch_norm_normalise(s, in(0), f32_out(1), in(1), in(2), out(0));
      case BatchNormPart::backward:
        d_.batch_norm_backward_sums(s, in(0), in(1), f32(2), f32_out(3));
        d_.batch_norm_backward_weight(s, f32_out(3), out(1), out(2));
        return d_.batch_norm_backward_input(s, in(0), in(1), f32(2), in(3), f32_out(3), out(0));
      case BatchNormPart::sums:
        return d_.batch_norm_sums(s, in(0), f32_out(0));
      case BatchNormPart::normalise:
        return d_.batch_norm_normalise(s, in(0), f32(1), in(2), in(3), out(0));
      case BatchNormPart::backward_sums:
        return d_.batch_norm_backward_sums(s, in(0), in(1), f32(2), f32_out(0));
      case BatchNormPart::backward_weight:
        return d_.batch_norm_backward_weight(s, f32(0), out(0), out(1));
      case BatchNormPart::backward_input:
        return d_.batch_norm_backward_input(s, in(0), in(1), f32(2), in(3), f32(4), out(0));
    }
  }

  void operator()(const program::HostSync&) const {}
  template <class Transfer>
  void operator()(const Transfer&) const {
    REHEARSE_CHECK(false, "a transfer or an input is no kernel");
  }

 private:
  static kernels::Unary unary(program::ActivationFn fn) {
    return fn == program::ActivationFn::gelu           ? kernels::Unary::gelu
           : fn == program::ActivationFn::squared_relu ? kernels::Unary::squared_relu
           : fn == program::ActivationFn::tanh         ? kernels::Unary::tanh
           : fn == program::ActivationFn::sigmoid      ? kernels::Unary::sigmoid
           : fn == program::ActivationFn::silu         ? kernels::Unary::silu
                                                       : kernels::Unary::relu;
  }
  In in(std::size_t i) const { return reads_[i]; }
  In optional(std::size_t i) const { return i < reads_.size() ? in(i) : In(); }
  Out out(std::size_t i) const { return writes_[i]; }
  // Of a gated activation whose gate and up are operands of their own.
  In up_of(const program::Activation& a) const {
    if (a.weighted) return {};
    if (!a.backward) return optional(1);
    const bool kept = a.separate && reads_.size() > 2;  // the last operand, of which no kernel here has need
    return reads_.size() == (kept ? 4 : 3) ? in(2) : In();
  }
  // Among the ranks that experts are spread over.
  int place_of(const program::Router& r) const { return c_.grid != nullptr ? c_.grid->position(c_.rank, r.spread) : 0; }
  // Operands that are fp32 whatever the precision.
  const float* f32(std::size_t i) const { return fp32(reads_[i]); }
  float* f32_out(std::size_t i) const { return fp32(writes_[i]); }
  static float* fp32(const Out& operand) {
    REHEARSE_CHECK(operand.type == DType::f32, "an operand of {} where fp32 is needed", name_of(operand.type));
    return static_cast<float*>(operand.data);
  }
  const std::int32_t* ids(std::size_t i) const { return static_cast<const std::int32_t*>(reads_[i].data); }
  std::int32_t* ids_out(std::size_t i) const { return static_cast<std::int32_t*>(writes_[i].data); }
  static std::uint8_t* bytes(std::span<const Out> operands, std::size_t i) {
    return static_cast<std::uint8_t*>(operands[i].data);
  }
  template <class Operand>
  static Operand from(Operand o, std::int64_t element) {
    return {static_cast<std::conditional_t<std::is_same_v<Operand, In>, const std::byte*, std::byte*>>(o.data) +
                element * size_of(o.type),
            o.type};
  }

  void context_attention(const program::Attention& a, const kernels::AttentionShape& s,
                         const kernels::DropoutSite& site) const {
    const std::int64_t ranks = c_.scenario.plan.context, rank = c_.context_coordinate;
    const std::int64_t key_rank = a.key_steps < 0 ? -1 : (rank - a.key_steps + ranks) % ranks;
    const kernels::ContextPart part{ranks, rank, key_rank, a.merge};
    if (a.key_steps >= 0 && a.document > 0) return call_ring(d_, a, part, site, s, documents(), reads_, writes_);
    if (a.part == AttentionPart::flash_forward)
      return d_.context_forward(s, part, site, in(0), in(1), out(0), f32_out(1));
    d_.context_backward(s, part, site, in(0), in(1), in(2), in(3), f32(4), out(0), out(1));
  }

  std::int64_t micro_batch() const { return c_.scenario.plan.micro_batch; }
  std::vector<plan::TokenRun> tokens() const {  // reads the step, which on GPUs the host cannot, only where it counts
    const plan::Training& t = c_.scenario.training;
    if (c_.equal_documents || !plan::rings_by_document(c_.scenario.plan, t))
      return plan::context_tokens(c_.scenario.plan, t.seq_len, c_.context_coordinate);
    return plan::held_tokens(c_.scenario.plan, t, example(), c_.context_coordinate);
  }
  std::int64_t example() const { return c_.step->first_sequence + c_.first_sequence; }  // the micro-batch's first
  std::vector<std::int64_t> documents() const {                                         // of its row; none: equal ones
    return c_.equal_documents ? std::vector<std::int64_t>() : plan::document_lengths(c_.scenario.training, example());
  }

  // Rows of an operand whose positions in the sequence follow one another.
  struct Run {
    std::int64_t first;  // element of the operand
    std::int64_t rows, position;
  };
  template <class Body>
  void over_runs(const program::Elementwise& e, const Body& body) const {
    const std::int64_t mb = micro_batch(), held = e.elements / e.cols / mb;
    const std::int64_t before = e.rows_split_over_tensor ? c_.tensor_coordinate * held : 0;
    // seq_len is not a list's tokens
    if (c_.scenario.plan.context == 1 || !c_.scenario.model.is_transformer()) return body(Run{0, held * mb, before});
    std::int64_t done = 0;
    for (const plan::TokenRun& run : plan::part_of(tokens(), before, held)) {
      body(Run{done * mb * e.cols, run.count * mb, run.first});
      done += run.count;
    }
  }
  // int32 [micro_batch, seq_len]: of each token the first one of its document. `equal`: tokens of documents that are
  // equal ones, as chunks always are.
  std::vector<std::int32_t> starts_of_documents(std::int64_t equal, bool chunks = false) const {
    const plan::Training& t = c_.scenario.training;
    if (c_.equal_documents || chunks) return equal_starts(micro_batch(), t.seq_len, equal);
    std::vector<std::int32_t> starts(static_cast<std::size_t>(micro_batch() * t.seq_len));
    for (std::int64_t b = 0; b < micro_batch(); ++b)
      plan::document_starts(t, example() + b, starts.data() + b * t.seq_len);
    return starts;
  }
  // A token at a time: sequences of a micro-batch have documents of their own.
  void position_by_documents(const program::Elementwise& e, bool backward) const {
    const std::int64_t mb = micro_batch(), seq = c_.scenario.training.seq_len;
    const std::vector<std::int32_t> starts = starts_of_documents(seq);
    over_runs(e, [&](const Run& r) {
      for (std::int64_t row = 0; row < r.rows; ++row) {
        const std::int64_t token = r.position + row / mb, at = r.first + row * e.cols;
        const std::int64_t position = token - starts[static_cast<std::size_t>(row % mb * seq + token)];
        if (backward)
          d_.position_grad(1, e.cols, 1, position, from(in(0), at), out(0));
        else
          d_.add_position(1, e.cols, 1, position, from(in(0), at), in(1), from(out(0), at));
      }
    });
  }
  // Of packed qkv, all of whose tokens a tensor-parallel rank holds.
  void rope(bool backward, const program::Elementwise& e) const {
    const model::Model& m = c_.scenario.model;
    const std::int64_t t = c_.scenario.plan.tensor, heads = m.heads / t,
                       kv_heads = std::max<std::int64_t>(1, m.kv_heads / t);  // one may be several ranks'
    const std::int64_t row = micro_batch() * (heads + 2 * kv_heads) * m.head_dim;
    std::int64_t done = 0;
    for (const plan::TokenRun& run : tokens()) {
      kernels::AttentionShape s{micro_batch(), heads, kv_heads, run.count, m.head_dim, true, 0, m.rotary_dim};
      if (e.scaled_angles) s.rotation = m.rotation();
      if (e.value > 0) s.rotation.base = e.value;
      d_.rope(s, run.first, backward, from(out(0), done * row));
      done += run.count;
    }
  }
  kernels::DropoutSite dropout(double probability, int site, std::int64_t first_position,
                               std::int64_t first_head) const {
    kernels::DropoutSite d;
    d.probability = probability;
    d.seed = static_cast<std::uint64_t>(c_.scenario.training.seed);
    d.site = static_cast<std::uint64_t>(site);
    d.step = c_.step;
    d.first_sequence = c_.first_sequence;
    d.micro_batch = micro_batch();
    d.first_position = first_position;
    d.first_head = first_head;
    return d;
  }

  std::span<const Out> reads_, writes_;
  const CallContext& c_;
  kernels::Device& d_;
};

}  // namespace

void call_kernel(const program::Op& op, std::span<const kernels::Out> reads, std::span<const kernels::Out> writes,
                 const CallContext& c) {
  std::visit(KernelCall(reads, writes, c), op.shape);
}

}  // namespace rehearse::execute
