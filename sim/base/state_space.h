// A Mamba-2 mixer (Dao and Gu 2024, arXiv 2405.21060) in the kernels that train it: state-spaces/mamba
// mamba_ssm/ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn, as Megatron-Core calls it
// (megatron/core/ssm/mamba_mixer.py), and the norm behind it (ops/triton/layernorm_gated.py).
//
// A head has P = head_dim channels and a state of P x N, N = state; heads of a group share B and C. Of token t:
//   step_t = softplus(dt_t + dt_bias), decay_t = exp(-step_t e^a_log), state_t = decay_t state_{t-1} + step_t x_t B_t^T
//   raw_t = state_t C_t + d x_t, y_t = raw_t silu(z_t)
// It is computed in chunks of Q = chunk tokens: products within a chunk, and states passed from chunk to chunk. l is
// the sum of log decays from the chunk's first token to t.
//
// T = seq * micro_batch tokens, rows [seq, micro_batch] as everywhere, H heads and G groups of this rank, h = H / G.
//   in [T, G, W]: of a group z [hP], x [hP], B [N], C [N], dt [h]; xbc [T, G, X = hP + 2N]: x, B, C after convolution
//   w [G, X, K], b [G, X]: a filter of K = conv tokens for each channel, the last of them the token itself, and SiLU
//   step, l, d_step, d_l..: f32 [T, H]; states, entering, d_states, d_entering: f32 [micro_batch, chunks, H, P, N]
//   cb f32 [micro_batch, chunks, G, Q, Q]: C_i . B_j; y, raw [T, H P]; d_b, d_c f32 [T, G, N]; stats f32 [T, G]
//   d_l_pass f32 [micro_batch, chunks, H]
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace rehearse {

// Operands, reads -> writes. What is marked + accumulates and is read and written; d_in and d_xbc are written in parts.
enum class StateSpacePart : unsigned char {
  conv,               // {in, w, b} -> {xbc}
  conv_backward,      // {d_xbc, in, w, b, dw+, db+} -> {d_in: x, B, C; dw, db}
  steps,              // {in, dt_bias, a_log} -> {step, l}
  steps_backward,     // {d_l_scan, d_l_state, d_l_read, d_l_pass, d_step, step, in, dt_bias, a_log, d_dt_bias+,
                      //  d_a_log+} -> {d_in: dt; d_dt_bias, d_a_log}
  states,             // {xbc, step, l} -> {states}: what a chunk's tokens leave at its end
  passing,            // {states, l} -> {entering}: the state before each chunk
  passing_backward,   // {d_entering, entering, l} -> {d_states, d_l_pass}
  scores,             // {xbc} -> {cb}
  scan,               // {cb, xbc, step, l, entering, d, in} -> {y, raw}
  gate_backward,      // {dy, in, raw, xbc, dd+} -> {d_in: z; d_raw, dd}
  entering_backward,  // {d_raw, xbc, l} -> {d_entering}
  x_backward,         // {d_raw, cb, xbc, step, l, d_states, d} -> {d_xbc: x; d_step}
  b_backward,         // {xbc, step, l, d_states} -> {d_b, d_l_state}
  c_backward,         // {d_raw, l, entering, xbc} -> {d_c, d_l_read}
  scores_backward,    // {d_raw, xbc, step, l} -> {d_cb}
  b_product,          // {d_cb, xbc, d_b} -> {d_xbc: B}
  c_product,          // {d_cb, xbc, d_c} -> {d_xbc: C}
  decay_backward,     // {d_raw, cb, xbc, step, l} -> {d_l_scan}
  norm,               // {y, gamma} -> {out, stats}: RMSNorm of each group's hP channels
  norm_backward,      // {d_out, y, stats, gamma, dgamma+} -> {dy, dgamma}
};

struct StateSpace {
  StateSpacePart part = StateSpacePart::conv;
  std::int64_t micro_batch = 1, seq = 0, heads = 0, groups = 1, head_dim = 0, state = 0, conv = 4, chunk = 128;

  std::int64_t tokens() const { return seq * micro_batch; }
  std::int64_t chunks() const { return (seq + chunk - 1) / chunk; }
  std::int64_t group_heads() const { return heads / groups; }
  std::int64_t group_inner() const { return group_heads() * head_dim; }                   // h P
  std::int64_t group_conv() const { return group_inner() + 2 * state; }                   // X
  std::int64_t group_in() const { return group_inner() + group_conv() + group_heads(); }  // W
  std::int64_t inner() const { return heads * head_dim; }

  // Elements of the operands, in their order.
  std::vector<std::int64_t> reads() const;
  std::vector<std::int64_t> writes() const;
  // Of products, a multiply-add is 2; what a causal mask hides within a chunk is counted. The convolution, bound by
  // memory, counts none, as norms and activations do.
  double flops() const;
  // Elements that are touched of an operand that is read or written in parts; else all of it.
  std::vector<std::int64_t> touched_reads() const;
  std::vector<std::int64_t> touched_writes() const;

  friend bool operator==(const StateSpace&, const StateSpace&) = default;
};

std::string_view name_of(StateSpacePart part);  // "mamba_scan", a key of files
std::string_view word_of(StateSpacePart part);  // "scan"

}  // namespace rehearse
