// The operations a device is fed: each a kind with its shape. One struct a kind; its comment gives the operands in
// order (reads -> writes) and their shapes. A buffer that is both read and written (accumulated into) is in both lists.
//
// Layout: activations are row-major [sequence, micro_batch, width], so tokens = sequence * micro_batch rows and a
// sequence-parallel shard is contiguous. Weights are [out, in] as in torch.nn.Linear. Packed qkv is
// [tokens, kv_heads, heads / kv_heads + 2, head_dim] (the queries of a group, then its key, then its value; the value
// may be of another width, Attention::value_dim).
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/base/axis.h"
#include "sim/base/gradient_code.h"
#include "sim/base/state_space.h"
#include "sim/program/expert_ops.h"
#include "sim/program/ids.h"
#include "sim/program/image_ops.h"
#include "sim/program/optimizer_ops.h"
#include "sim/program/outer_step.h"

namespace rehearse::program {

// C[batch][m, n] = op(A) op(B) (+ bias[n]) (+ C if accumulate). {A, B, bias?, C?} -> {C}. op(A) is [m, k], op(B) is [k,
// n].
//
// With an epilogue one kernel does more; batch is 1. gelu {A, B, bias?} -> {C, X [m, n]}: X is the product, C =
// gelu(X). gelu_backward {A, B, X} -> {C}: the product times gelu's slope at X. bias_gradient {A, B, C?, dbias [m]} ->
// {C, dbias}: dbias += the sum of each row of op(A), which is transposed: A = dy of a weight gradient.
//
// In 8 bits A and B are copies that ElementwiseFn::fp8_cast made: by rows where a row as stored is summed over, else
// transposed (unless products take any layout). Performed, with scales of whole tensors, two more operands are read
// after all others: what A's and B's elements are multiplied by, f32 [1] each. row_scales: the scales, in the copies,
// are of whole rows of op(A) and columns of op(B).
enum class Epilogue : unsigned char { none, gelu, gelu_backward, bias_gradient };
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  bool transpose_a = false, transpose_b = false;  // A stored [k, m], B stored [n, k]
  bool accumulate = false, bias = false;
  Epilogue epilogue = Epilogue::none;
  bool row_scales = false;
  friend bool operator==(const Gemm&, const Gemm&) = default;
};
std::string_view name_of(Epilogue epilogue);  // "gelu_backward"; of none ""

// Attention over packed qkv. flash_forward {qkv} -> {out [tokens, heads*value_dim], logsumexp f32 [tokens, heads]};
// flash_backward {dout, qkv, out, logsumexp} -> {dqkv}. Unfused parts, P = [micro_batch, heads, seq, seq]:
// scores {qkv} -> {S}; softmax (scaled, masked) {S} -> {P}; dropout {P} -> {D, mask}; context {D, qkv} -> {out};
// context_backward_probs {dout, qkv} -> {dD}; context_backward_value {dout, D} -> {dqkv: value part};
// dropout_backward {dD, mask} -> {dP}; softmax_backward {dP, P} -> {dS}; scores_backward_query {dS, qkv} -> {dqkv:
// query part}; scores_backward_key {dS, qkv} -> {dqkv: key part}.
//
// Unfused parts with `keys`: attention to another sequence of so many tokens, a decoder's to its encoder's output.
// Queries are q [tokens, heads, head_dim], keys and values kv [keys, micro_batch, kv_heads, head_dim + value_dim], and
// P is [micro_batch, heads, seq, keys]: scores {q, kv} -> {S}; context {D, kv} -> {out}; context_backward_probs {dout,
// kv}
// -> {dD}; context_backward_value {dout, D} -> {dkv: value part}; scores_backward_query {dS, kv} -> {dq};
// scores_backward_key {dS, q} -> {dkv: key part}.
//
// With softcap scaled scores x become softcap * tanh(x / softcap) before the softmax (Bello et al. 2016, arXiv
// 1611.09940, section 4; Gemma Team 2024, arXiv 2408.00118), and softmax_backward {dP, P, S} -> {dS}.
//
// With sinks, a logit a head that stands in the softmax beside the scores (Agarwal et al. 2025, arXiv 2508.10925): what
// attention gives without them, o and its logsumexp l, becomes o sigmoid(l - sink) and log(e^l + e^sink), from which
// flash_backward has its gradients as ever. sinks {out, logsumexp, sinks [heads]} -> {out, logsumexp}; sink_gradient
// {dout, out, logsumexp, sinks, dsinks} -> {dsinks} (accumulates): -sum over tokens of e^(sink - l) (dout . out).
// `sinks` says how many numbers there are; `heads` are those from the place on that this rank's heads have in them.
//
// With a bias of the scores by distance (sim/base/relative_position.h), table [heads, bias_buckets]: softmax {S, table}
// -> {P}; bias_gradient {dS, dtable} -> {dtable} (accumulates).
enum class AttentionPart : unsigned char {
  flash_forward,
  flash_backward,
  scores,
  softmax,
  dropout,
  context,
  context_backward_probs,
  context_backward_value,
  dropout_backward,
  softmax_backward,
  scores_backward_query,
  scores_backward_key,
  bias_gradient,
  sinks,
  sink_gradient
};
// Which fused kernel a framework launches for flash_forward and flash_backward (costs; the result is the same). best:
// the fastest known for the device.
enum class AttentionKernel : unsigned char { best, flash1, flash2, sdpa_flash, flash3, flash_triton, cudnn };
struct Attention {
  AttentionPart part = AttentionPart::flash_forward;
  std::int64_t micro_batch = 0, heads = 0, kv_heads = 0, seq = 0, head_dim = 0;  // heads of this rank
  bool causal = true;
  double dropout = 0;
  int site = 0;  // see Elementwise
  AttentionKernel kernel = AttentionKernel::best;
  bool heads_split_over_context = false;  // `heads` are those of this rank of the context group
  // Flash parts where the tokens of a sequence are spread over a context group: keys and values are an operand of their
  // own, kv [keys, micro_batch, kv_heads, head_dim + value_dim]. forward {qkv, kv, out?, logsumexp?} -> {out,
  // logsumexp}; backward {dout, qkv, kv, out, logsumexp, dq?} -> {dq [tokens, heads * head_dim], dkv}. `merge`: the
  // operands with a question mark hold what other keys gave, and these are added. keys: tokens of them, 0 elsewhere.
  // Those of the rank `key_steps` places before ours in the group (around), or of all ranks in their order (-1).
  std::int64_t keys = 0;
  int key_steps = -1;
  bool merge = false;
  std::int64_t value_dim = 0;  // columns of a head's value; 0: head_dim
  // Causal, without keys of their own: keys that a query sees, itself the last of them, fewer than seq; 0: all before
  // it (sim/base/window.h). Masked where scores are kept.
  std::int64_t window = 0;
  // Causal, of sequences packed of documents: a query sees keys of its own document alone. Which documents those are
  // the example decides; FLOPs and times are those of equal documents of so many tokens (sim/plan/documents.h). Masked
  // where scores are kept. 0: a sequence is one document.
  std::int64_t document = 0;
  bool chunks = false;  // documents are equal ones of so many tokens in what is performed too (model.attention_chunk)
  // flash_forward: tokens before the sequence's own whose keys and values are read from a cache, of each sequence of
  // the micro-batch. The cache is no operand: performed, it is what generation keeps
  // (execute/reinforcement/generation.h).
  std::int64_t cached = 0;
  bool unscaled = false;  // softmax of S, not of S / sqrt(head_dim)
  // Buckets of the bias, and the distance from which on all have the last; 0: no bias. Not causal: of both directions.
  std::int64_t bias_buckets = 0, bias_distance = 0;
  double softcap = 0;            // 0: scores as they are
  std::int64_t score_scale = 0;  // scores are divided by its square root; 0: head_dim
  // flash_backward (costs; the result is the same): the gradients of queries are added up in an order of their own, and
  // what the kernel allocates for itself is filled first.
  bool deterministic = false, filled = false;
  std::int64_t sinks = 0;        // of the parts sinks and sink_gradient
  std::int64_t alibi_heads = 0;  // heads of the model whose slopes are added by distance (sim/base/alibi.h); 0: none

  std::int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
  // The keys that queries are compared with.
  std::int64_t compared() const { return keys > 0 ? keys : seq; }
  friend bool operator==(const Attention&, const Attention&) = default;
};

// Latent attention's heads from its products: forward {q [tokens, heads, nope + rope], kv [tokens, heads, nope +
// value], k_rope [tokens, rope]} -> {qkv [tokens, heads, 2 (nope + rope) + value]}, packed as Attention reads it: a
// head's query, its key, whose last columns are the k_rope of all heads, and its value; the last `rope` columns of
// queries and keys are rotated as ElementwiseFn::rope does. backward {dqkv} -> {dq, dkv, dk_rope}: dk_rope is the sum
// over the heads.
struct LatentHeads {
  bool backward = false;
  std::int64_t tokens = 0, heads = 0, nope = 0, rope = 0, value = 0;

  std::int64_t query_elements() const { return tokens * heads * (nope + rope); }
  std::int64_t key_value_elements() const { return tokens * heads * (nope + value); }
  std::int64_t packed_elements() const { return tokens * heads * (2 * (nope + rope) + value); }
  friend bool operator==(const LatentHeads&, const LatentHeads&) = default;
};

// forward {x, gamma, beta?, largest?} -> {y, stats f32 [rows, 2] (layer) or [rows, 1] (rms), amax?, inverse?}: y may be
// in 8 bits, the operands for that as ElementwiseFn::fp8_cast has them;
// backward_input {dy, x, stats, gamma, residual_grad?} -> {dx} (+ residual_grad if add_residual);
// backward_weight {dy, x, stats, dgamma, dbeta?} -> {dgamma, dbeta?} (accumulates).
enum class NormPart : unsigned char { forward, backward_input, backward_weight };
struct Norm {
  NormPart part = NormPart::forward;
  bool rms = false, add_residual = false;
  std::int64_t rows = 0, cols = 0;
  double eps = 1e-5;
  bool zero_centered = false;  // rms: gamma is what is added to 1
  friend bool operator==(const Norm&, const Norm&) = default;
};

// RMSNorm of each head's query and key in packed qkv [rows, kv_heads, group + 2, head_dim], all queries with one gamma
// [head_dim] and all keys with another. raw [rows, kv_heads, group + 1, head_dim] is what they were before, stats one
// number a head and row. forward {qkv, gamma_q, gamma_k} -> {qkv, raw, stats f32} in place; backward_input {dqkv, raw,
// stats, gamma_q, gamma_k} -> {dqkv} in place; backward_weight {dqkv, raw, stats, dgamma_q, dgamma_k} -> {dgamma_q,
// dgamma_k} (accumulates). zero_centered as Norm has it.
struct HeadNorm {
  NormPart part = NormPart::forward;
  std::int64_t rows = 0, kv_heads = 0, group = 0, head_dim = 0;
  double eps = 1e-5;
  bool zero_centered = false;

  std::int64_t heads() const { return rows * kv_heads * (group + 1); }
  std::int64_t packed() const { return rows * kv_heads * (group + 2) * head_dim; }
  friend bool operator==(const HeadNorm&, const HeadNorm&) = default;
};

// gelu, relu: forward {x [rows, cols]} -> {y}; backward {dy, x} -> {dx}. swiglu: forward {gate_up [rows, 2, cols]} ->
// {y [rows, cols]}, y = silu(gate) * up; backward {dy, gate_up} -> {d_gate_up}. In the place of gate_up may stand two
// operands, gate and up, [rows, cols] each. geglu: the same, y = gelu(gate) * up; swiglu_oai: as sim/base/swiglu_oai.h
// says. tanh, sigmoid: backward {dy, y} -> {dx}. silu: x sigmoid(x), backward {dy, x} -> {dx}.
enum class ActivationFn : unsigned char { gelu, relu, swiglu, squared_relu, tanh, geglu, swiglu_oai, sigmoid, silu };
constexpr bool is_gated(ActivationFn fn) {
  return fn == ActivationFn::swiglu || fn == ActivationFn::geglu || fn == ActivationFn::swiglu_oai;
}
struct Activation {
  ActivationFn fn = ActivationFn::gelu;
  bool backward = false;
  std::int64_t rows = 0, cols = 0;
  bool separate =
      false;  // gated: the gate's function and the product are kernels of their own (costs; the result is the same)
  // Of experts, each row times its weight, but for geglu: forward {x, weights f32 [rows]} -> {y};
  // backward {dy, x, weights} -> {dx, dweights f32 [rows]}.
  bool weighted = false;
  friend bool operator==(const Activation&, const Activation&) = default;
};

// Element by element; `elements` counts the output.
//   add {a, b} -> {y};   accumulate {x, y} -> {y} (y += x);   cast / copy {x} -> {y};   fill {} -> {y} (y = value);
//   scale {x} -> {y} (y = value * x);
//   bias_dropout_add {x, bias?, residual} -> {y, mask u8?} (mask only if dropout > 0);
//   dropout {x} -> {y, mask u8};   dropout_backward {dy, mask} -> {dx};
//   bias_grad {dy [rows, cols], dbias} -> {dbias} (accumulates; elements = rows * cols, cols of the bias);
//   add_position {x, table [max_seq, cols]} -> {y};   position_grad {dy, dtable} -> {dtable} (accumulates);
//   rope / rope_backward {qkv} -> {qkv} in place (elements = those of queries and keys that turn; value: the base of
//   the angles, 0: 10000).
// Of 8-bit products, and of 4-bit ones (op.dtype e2m1). A copy has its scales with its elements, where blocks have
// scales of their own; so its size is not checked. In 4 bits `inverse` is there besides, and hadamard_cast {x, largest}
// -> {y by columns, inverse?} is of what a random Hadamard transform makes of x.
//   fp8_amax {x} -> {amax f32 [1]}: the largest absolute value, of current scaling; of each column, f32 [cols];
//   fp8_cast {x, largest?} -> {y, amax?, inverse?}: y in 8 bits, row by row; largest: what the scale is made of, of
//   current scaling or of the window of delayed scaling, whose amax f32 [1] grows to x's; inverse f32 [1]: what y's
//   elements are multiplied by;
//   fp8_cast_transpose {x, largest?} -> {y?, y transposed, amax?, inverse?};   fp8_transpose {y} -> {y transposed};
//   fp8_widen {y} -> {x}: what a copy by rows with scales of blocks stands for, of which `elements` are;
//   fp8_scale_update {amax f32 [elements], history f32 [elements * (1 + kFp8History)], window f32 [elements]} -> {same,
//   old window?}: delayed scaling; amax joins the history and begins again with 0, window is the largest of history.
// Simulated, delayed scaling has no window and no inverse: casts write all of amax, and the update knows nothing else.
// Performed, `cols` are those of x, or of y that is transposed; with scales of blocks a transposed copy's blocks are of
// columns, and its elements lie as they do in x.
//   hadamard_cast {x, amax} -> {y}: 4 bits by columns, of x after a random Hadamard transform of each 16 elements.
inline constexpr std::int64_t kFp8History = 1024;  // updates
enum class ElementwiseFn : unsigned char {
  add,
  accumulate,
  cast,
  copy,
  fill,
  scale,
  bias_dropout_add,
  dropout,
  dropout_backward,
  bias_grad,
  add_position,
  position_grad,
  rope,
  rope_backward,
  fp8_amax,
  fp8_cast,
  fp8_cast_transpose,
  fp8_transpose,
  fp8_scale_update,
  hadamard_cast,
  fp8_widen
};
struct Elementwise {
  ElementwiseFn fn = ElementwiseFn::add;
  std::int64_t elements = 0, cols = 0;
  double value = 0;  // fill, scale
  double dropout = 0;
  int site = 0;       // dropout: the place in the model; masks are keyed by (seed, step, site, sequence, global index)
  bool bias = false;  // bias_dropout_add has a bias operand
  bool square = false;  // fp8_cast: of a weight, whose blocks of 128 are of 128 x 128
  // fp8_cast, fp8_transpose: the rows are of so many groups, each of which has its copy by columns on its own. They
  // have as many rows each, or, if counted, those that the last operand read, f32 [groups], says.
  std::int64_t groups = 1;
  bool counted = false;
  bool at_random = false;    // casts in 4 bits: rounded up or down by chance
  bool each_column = false;  // fp8_amax, fp8_cast_transpose: each of `cols` columns of x has a largest value of its own
  // For dropout and positions: which rows of the global tensor these are. A rank of a context group holds some tokens
  // of the sequence (sim/plan/context_rows.h), and of these a sequence-parallel rank holds `rows` rows from
  // coordinate(tensor) * rows on, so masks and positions do not depend on the split.
  bool rows_split_over_tensor = false;
  bool documents = false;      // add_position, position_grad: positions begin again with each document of a sequence
  bool scaled_angles = false;  // rope: as the model's rope_scaling says
  // A cast of 16 bits to fp32 by a kernel for any types, which loads one element at a time; an fp8_cast_transpose that
  // a compiler generated (sim/cost/kernel_shape.h, share_of_class).
  bool unrolled = false;
  friend bool operator==(const Elementwise&, const Elementwise&) = default;
};

// A copy of pieces of `cols` elements with strides, {x} -> {y}: piece (i, j), i < outer and j < inner, begins at first
// + i * outer_stride + j * inner_stride of each. What it leaves out of y stays as it is.
struct Strides {
  std::int64_t outer = 0, inner = 0, first = 0;
  friend bool operator==(const Strides&, const Strides&) = default;
};
struct StridedCopy {
  std::int64_t outer = 1, inner = 1, cols = 0;
  Strides from, to;
  friend bool operator==(const StridedCopy&, const StridedCopy&) = default;
};

// To which experts a rank's tokens go. gate {logits [tokens, experts]} -> {weights f32 [tokens, top_k], chosen i32
// [tokens, top_k]}: the top_k experts of the highest scores (softmax of the logits, or the sigmoid of each), highest
// first, equal ones by their number; their scores, scaled to add to 1, or as they are (`raw`). place {chosen} ->
// {places i32 [tokens, top_k], loads f32 [experts]}: the row that each choice has in the buffer that is sorted by
// experts, and how often each expert was chosen. With a capacity expert e has the rows [e * capacity, ...); first
// choices of all tokens, in their order, come before second ones, and what finds no row is dropped (-1). Without (0) it
// has as many rows as it was chosen. receive {counts f32 [sources, experts]} -> {places i32 [tokens], loads f32 [own]}:
// of rows that came from `sources` ranks, one after the other and each rank's sorted by experts, the row that each has
// in the buffer that is sorted by experts, and how many each of this rank's experts has. The rows are in `slices` equal
// slices of the buffer, with those of as many ranks each, and after them perhaps room (-1). These are `own` experts,
// from place * own on, place being that among the ranks that differ on `spread` only; counts: how often each rank's
// tokens chose each expert. top_k is 1. place with `own` {chosen of all members' tokens} -> {places, loads f32 [own]}:
// of own experts alone, the others' choices have no row (-1); more choices of any member's experts than `room` rows are
// an error. gate_backward {dweights f32 [tokens, top_k], logits, chosen, loads f32 [experts]?, loss_scale f32 [2]?}
// -> {dlogits [tokens, experts]}, to which the auxiliary loss adds aux * loads as the gradient of the scores, which add
// to 1.
// With groups the gate chooses among the experts of groups_per_token of `groups` equal groups: those of the highest sum
// of their two best scores with sigmoid, else of the highest score, equal ones by their number.
enum class RouterPart : unsigned char { gate, place, receive, gate_backward };
struct Router {
  RouterPart part = RouterPart::gate;
  std::int64_t tokens = 0, experts = 0, top_k = 0, capacity = 0;
  bool sigmoid = false, scaled = false;           // scaled: there is a loss scale
  bool raw = false;                               // gate and its backward
  double aux = 0;                                 // 0: no loads
  std::int64_t groups = 1, groups_per_token = 1;  // gate
  std::int64_t sources = 0, slices = 1, own = 0;  // receive; own also of place
  std::int64_t room = 0;                          // place with `own`
  AxisSet spread = {};
  std::int64_t layer = -1;  // gate: of the model, for what records its choices
  friend bool operator==(const Router&, const Router&) = default;
};

// Between tokens and rows sorted by experts (Router). permute {x [tokens, cols], places} -> {y [rows, cols]}: rows
// without a token are 0. unpermute {y, places, weights f32 [tokens, top_k]} -> {out [tokens, cols]}: the sum of a
// token's rows times their weights. unpermute_backward {dout, y, places, weights} -> {dy, dweights}. permute_backward
// {dy, places} -> {dx [tokens, cols]}.
enum class PermutePart : unsigned char { permute, unpermute, unpermute_backward, permute_backward };
struct Permute {
  PermutePart part = PermutePart::permute;
  std::int64_t tokens = 0, top_k = 0, rows = 0, cols = 0;
  friend bool operator==(const Permute&, const Permute&) = default;
};

// Products of groups of rows with a matrix each: weights w [groups, n, k]. forward {x [rows, k], w, loads f32
// [groups]?} -> {y [rows, n]}; backward_input {dy [rows, n], w, loads?} -> {dx [rows, k]}; backward_weight {dy, x,
// loads?, dw?} -> {dw [groups, n, k]} (+ dw if accumulate). The groups have as many rows each, or, if counted, those
// that `loads` says.
enum class GroupedPart : unsigned char { forward, backward_input, backward_weight };
struct GroupedGemm {
  GroupedPart part = GroupedPart::forward;
  std::int64_t groups = 1, rows = 0, n = 0, k = 0;
  bool accumulate = false, counted = false;
  bool each = false;      // a kernel for each group, one after the other; else one for all
  std::int64_t room = 0;  // counted: rows of the buffers, if they have more than the `rows` that are expected
  // Counted: groups of which any row is expected, whose weights alone are read (plan::expected_experts); 0: all.
  double chosen = 0;
  friend bool operator==(const GroupedGemm&, const GroupedGemm&) = default;
};

// Vocabulary rows [coordinate(tensor) * rows, ...) of the table when vocab_parallel. forward {ids i32 [tokens], table
// [rows, cols]} -> {y [tokens, cols]} (zero where the id is another rank's); backward {dy, ids, dtable} -> {dtable}.
struct Embedding {
  bool backward = false, vocab_parallel = false;
  std::int64_t tokens = 0, rows = 0, cols = 0;
  friend bool operator==(const Embedding&, const Embedding&) = default;
};

// Look-ups of sparse features, each in a table of its own, in one kernel: feature f of an example names
// tables[f].lookups rows of table f, whose sum, or with `mean` mean, is its vector. ids i32: of each feature in turn
// [batch, lookups]; of `slices` batches, which came from as many ranks, one after the other, and so is y. forward {ids,
// table 0 [rows, cols], table 1, ...} -> {y [slices, features, batch, cols]}; backward {dy, ids, dtable 0, ...} ->
// {dtable 0, ...} (accumulates). update {dy, ids, table 0, ..., sum f32 [rows] 0?, ...} -> {table 0, ..., sum 0?, ...}:
// the optimizer's step on the rows that were looked up alone, g being the sum of a row's gradients: row -= lr g, or
// with `adagrad` sum += mean of g^2 over the row, row -= lr g / (sqrt(sum) + eps), as FBGEMM's EXACT_SGD and
// EXACT_ROWWISE_ADAGRAD do (fbgemm_gpu, split_embedding_configs.py).
struct BagTable {
  std::int64_t rows = 0, lookups = 1;
  friend bool operator==(const BagTable&, const BagTable&) = default;
};
enum class BagPart : unsigned char { forward, backward, update };
struct EmbeddingBags {
  BagPart part = BagPart::forward;
  std::int64_t slices = 1, batch = 0, cols = 0;
  bool mean = false, adagrad = false;
  std::vector<BagTable> tables;

  std::int64_t ids() const {
    std::int64_t sum = 0;
    for (const BagTable& t : tables) sum += slices * batch * t.lookups;
    return sum;
  }
  friend bool operator==(const EmbeddingBags&, const EmbeddingBags&) = default;
};
// The products of every two of an example's vectors, each pair once (Naumov et al. 2019, arXiv 1906.00091): of P
// [batch, vectors, vectors] what is below the diagonal, row by row. forward {P, x [batch, cols]} -> {y [batch, cols +
// pairs]}, x before the pairs; backward {dy} -> {dP, dx}: dP is symmetric with 0 on its diagonal, so that the gradient
// of the vectors is dP times them.
struct Pairs {
  bool backward = false;
  std::int64_t batch = 0, vectors = 0, cols = 0;

  std::int64_t count() const { return vectors * (vectors - 1) / 2; }
  friend bool operator==(const Pairs&, const Pairs&) = default;
};

// Mean over the tokens of the global batch. fused_forward {logits [rows, cols], targets, loss} -> {stats f32 [rows, 2],
// loss f32 [1]} (accumulates the loss). Vocabulary-parallel in three parts with collectives between: row_max {logits}
// -> {max f32 [rows]}; exp_sum {logits, targets, max} -> {sums f32 [rows, 2]: sum of exponentials, the target's shifted
// logit}; loss {sums, loss} -> {loss}. backward {logits, targets, stats | (max, sums), loss_scale f32 [2]?} ->
// {dlogits} (may be in place), times the scale if there is one.
enum class CrossEntropyPart : unsigned char { fused_forward, row_max, exp_sum, loss, backward };
struct CrossEntropy {
  static constexpr std::int32_t kNoTarget = -1;  // a row that has it adds nothing to the loss, and its gradient is 0
  CrossEntropyPart part = CrossEntropyPart::fused_forward;
  bool vocab_parallel = false;
  std::int64_t rows = 0, cols = 0;  // cols of this rank
  std::int64_t valid_cols = 0;      // columns of the unpadded vocabulary, over all ranks
  double scale = 1;                 // 1 / tokens of the global batch
  bool scaled = false;              // backward: there is a loss scale
  // log_softmax and nll_loss are kernels of their own, or, vocabulary-parallel, what Megatron's function does one by
  // one (costs; the result is the same).
  bool separate = false;
  friend bool operator==(const CrossEntropy&, const CrossEntropy&) = default;
};

// Mean squared error over the `elements` of all ranks' predictions, as torch.nn.MSELoss: forward {prediction, target
// f32, loss} -> {loss f32 [1]} (adds scale * sum of (prediction - target)^2); backward {prediction, target f32,
// loss_scale f32 [2]?} -> {dprediction} = 2 scale (prediction - target), times the loss scale if there is one.
struct MeanSquaredError {
  bool backward = false;
  std::int64_t elements = 0;  // of this rank's micro-batch
  double scale = 1;           // 1 / elements of the global batch
  bool scaled = false;        // backward: there is a loss scale
  friend bool operator==(const MeanSquaredError&, const MeanSquaredError&) = default;
};

// Binary cross-entropy of `elements` logits, as torch.nn.BCEWithLogitsLoss: forward {x, target f32, loss} -> {loss f32
// [1]} (adds scale * sum of log(1 + e^x) - target x); backward {x, target f32, loss_scale f32 [2]?} -> {dx} = scale
// (1 / (1 + e^-x) - target), times the loss scale if there is one.
struct BinaryCrossEntropy {
  bool backward = false;
  std::int64_t elements = 0;  // of this rank's micro-batch
  double scale = 1;           // 1 / elements of the global batch
  bool scaled = false;        // backward: there is a loss scale
  friend bool operator==(const BinaryCrossEntropy&, const BinaryCrossEntropy&) = default;
};

// The next micro-batch of data, host to device: {} -> {y}. values: what a regression's outputs should be. segments: of
// each token; predictions: rows of the tokens that are predicted, whose `targets` there are then.
// patches: of images, [patch, micro_batch, width]. sparse: rows that sparse features name, as EmbeddingBags has them.
// decoder_tokens: what a decoder beside an encoder reads.
// In a simulation with loaders (sim/engine/simulator/loaders.h) an op `taken` waits until the rank's loader has the
// micro-batch, and one `with` copies another part of it. Elsewhere all is `there` when it is asked for.
enum class InputKind : unsigned char {
  tokens,
  targets,
  images,
  labels,
  features,
  values,
  segments,
  predictions,
  patches,
  sparse,
  decoder_tokens
};
enum class InputFrom : unsigned char { there, taken, with };
struct Input {
  InputKind kind = InputKind::tokens;
  std::int64_t elements = 0;
  InputFrom from = InputFrom::there;
  std::int64_t bytes = 0;  // what is copied, if it is another size than the elements; 0: they
  std::int64_t ahead = 0;  // of tokens, targets: the place so many further on; past the end 0, CrossEntropy::kNoTarget
  friend bool operator==(const Input&, const Input&) = default;
};

// Collectives. `elements` is the full size a rank sees: all_reduce, broadcast, reduce: its tensor; all_gather: the
// output; reduce_scatter: the input; all_to_all: the input. {x} -> {y}; x and y may be the same buffer or a shard view
// of it. A broadcast is from the group's first member, a reduce to it: there alone y is written.
// An all_to_all may have unequal parts: of what each member sends, which is `elements`, member i of the group, in its
// order, gets Program::parts[parts][i]; or, where each member sends others, parts[parts] has a row for each: of what
// member i sends, member j gets [i * members + j]. `back`: the way back, where member i sends each of the others that
// many and `elements` is what each gets. `own`: elements of this rank's buffer on the other side, y or on the way back
// x, which has room for what comes together there (and is 0 where it is `elements`). Counted: {x, counts f32 [members,
// experts]}
// -> {y}: rows of `row` elements, sorted by experts, and how many of each member's tokens go to each expert, of which
// the members have as many each, in order; they say what is sent where it is performed. What does not fit is an error.
// Forwarded (`to`): of a token's rows to experts of one node one crosses the network, and of those to experts of one
// rank one reaches it (plan.expert_dispatch).
enum class CollectiveKind : unsigned char { all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, reduce };
// From one member to all, or from all to one.
constexpr bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce;
}
enum class ReduceOp : unsigned char { sum, max };
// Among which experts each token's rows are spread, as far as nothing more is known of them than its sizes: per_token
// different ones of groups_per_token of `groups` equal groups, all as likely. Member i of n has the experts
// [i * experts / n, (i + 1) * experts / n).
struct ExpertChoice {
  std::int64_t experts = 0, per_token = 0, groups = 1, groups_per_token = 1;
  friend bool operator==(const ExpertChoice&, const ExpertChoice&) = default;
};
struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  GroupId group = 0;
  std::int64_t elements = 0;
  ReduceOp reduce = ReduceOp::sum;
  std::int32_t parts = -1;  // -1: equal ones
  bool back = false, counted = false;
  std::int64_t own = 0, row = 0, experts = 0;
  ExpertChoice to = {};  // without experts: not forwarded
  friend bool operator==(const Collective&, const Collective&) = default;
};

// Sends and receives that start and finish together (ncclGroupStart/End). The peer of a leg is the rank whose
// coordinate on `axis` is ours + offset, wrapping around. Between two ranks, sends and receives of one channel match in
// order. Operands: reads are the send legs' buffers in leg order, writes the receive legs' buffers in leg order.
struct Leg {
  bool send = false;
  Axis axis = Axis::pipeline;
  int offset = 1;
  int channel = 0;
  std::int64_t elements = 0;
  friend bool operator==(const Leg&, const Leg&) = default;
};
struct PointToPoint {
  std::vector<Leg> legs;
  friend bool operator==(const PointToPoint&, const PointToPoint&) = default;
};

// The host waits for this op's waits before it launches anything later in program order.
struct HostSync {
  friend bool operator==(const HostSync&, const HostSync&) = default;
};

using OpShape =
    std::variant<Gemm, Attention, LatentHeads, StateSpace, Norm, HeadNorm, Activation, Elementwise, StridedCopy, Router,
                 Permute, GroupedGemm, GroupedBias, RowScale, Embedding, EmbeddingBags, Pairs, CrossEntropy,
                 CountedTargets, MeanSquaredError, BinaryCrossEntropy, Optimizer, Adafactor, AdafactorParts, Muon, Lamb,
                 Compress, LowRank, OuterStep, SumSquares, ClipCoefficient, UpdateLossScale, Conv2d, Pool2d,
                 AveragePool, ChannelScale, BatchNorm, Input, Collective, PointToPoint, HostSync>;

// "gemm", "flash_attention_forward", "layer_norm_backward_input", "all_reduce", ...: the class reports group by.
std::string_view kind_name(const OpShape& shape);

}  // namespace rehearse::program
