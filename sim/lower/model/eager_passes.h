// What PyTorch's eager kernels move where a model writes a layer as a chain of operations, and what autograd makes of
// the chain in backward: a kernel and a pass over memory each. Counted beyond what one fused kernel reads and writes
// (program::Passes), values of rows left out.
//
// Sources: the models' own code, named below, and the derivatives that pytorch's tools/autograd/derivatives.yaml names
// (mul, pow, mean, expand, _to_copy; torch/csrc/autograd/FunctionsManual.cpp: pow_backward, mean_backward).
#pragma once

#include <cstdint>

#include "sim/program/program.h"

namespace rehearse::lower {

struct EagerKernels {
  std::int64_t kernels = 1;
  program::Passes passes;
};

// RMSNorm of `elements` in 16 bits, computed in fp32: (x.float() * rsqrt(mean(x.float() ** 2) + eps)).type_as(x) *
// weight (pytorch/torchtitan@026e23a9 torchtitan/models/norms.py, RMSNorm; transformers' LlamaRMSNorm is the same).
EagerKernels eager_rms_norm(std::int64_t elements);
// Its input's and its weight's gradients.
EagerKernels eager_rms_norm_backward(std::int64_t elements);
EagerKernels eager_rms_norm_weight(std::int64_t elements);

// Sums of gradients, in 16 bits, that `parts` products give of one input: autograd adds them one after the other.
EagerKernels eager_sum(std::int64_t elements, int parts);

// The copy that joins `elements` of gradients, in 16 bits, of the parts that a tensor was split into (split_backward).
EagerKernels eager_join(std::int64_t elements);

// Rotary embedding of `turned` elements of queries and keys in 16 bits as products of complex numbers in fp32, forward
// or backward (pytorch/torchtitan torchtitan/models/llama/model.py, apply_rotary_emb); and the copies of `keys`
// elements of keys and as many of values to `copies` heads each (repeat_kv), whose gradients backward sums.
EagerKernels eager_rotary(std::int64_t turned, std::int64_t keys, std::int64_t copies, bool backward);

// Rotary embedding of `turned` elements of queries and keys in 16 bits as most models in PyTorch have it
// (huggingface/transformers src/transformers/models/llama/modeling_llama.py, apply_rotary_pos_emb and rotate_half):
// times the cosine; its second half negated and joined with the first, times the sine; the sum. Beyond the one kernel
// that reads and writes it.
EagerKernels eager_half_rotary(std::int64_t turned, bool backward);

// Latent attention's rotary embedding of `turned` elements in 16 bits as Megatron-Core's chain (NVIDIA/Megatron-LM
// core_v0.12.0 megatron/core/models/common/embeddings/rope_utils.py, _apply_rotary_pos_emb_bshd with
// multi_latent_attention; core/transformer/multi_latent_attention.py): even and odd columns joined, times the cosine;
// its halves changed, one negated and joined, times the sine; the sum, and its copy beside nothing (cat with what is
// not turned). Backward each product again, the negation, its join and the sum with the other way's; zeros and a copy
// for the slices of even, of odd and of no columns, and their sums. Beyond the copies that put heads together.
EagerKernels eager_latent_rotary(std::int64_t turned, bool backward);

// Rotary embedding of `turned` elements of queries and keys in 16 bits as Megatron-Core's chain, which it is where yarn
// scales what it turns (NVIDIA/Megatron-LM core_v0.14.0 megatron/core/models/common/embeddings/rope_utils.py,
// apply_rotary_pos_emb: "mscale is not supported by TE's fused RoPE"; _apply_rotary_pos_emb_bshd): times the cosine;
// half of it negated and joined with the other, times the sine; the sum, and its copy beside nothing. Backward each
// product again, the negation, its join and the sum of the two ways; zeros and a copy for the slice of all columns,
// zeros for that of none, and their sum. Beyond the one kernel that reads and writes it.
EagerKernels eager_scaled_rotary(std::int64_t turned, bool backward);

// gpt-oss's clamps of `elements` of gates and what they gate, in 16 bits, as Megatron-Core's chain before the kernel of
// its activation (megatron/core/fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl with clamp_value): each
// half clamped, and both joined. Backward a mask of either half's gradient, by what was clamped, and their join. Left
// out: the clamped copy, which is kept beside what was clamped.
EagerKernels eager_clamps(std::int64_t elements, bool backward);

// The bias behind experts' second product, times each row's weight, of `elements` of rows in 16 bits and `experts` of
// this rank (megatron/core/transformer/moe/experts.py, TEGroupedMLP._apply_bias: torch.cat of t + b * p of each
// expert): a product, a sum and their join; back the product of gradient and weights, its sum over rows, and the join
// of the split's gradients; and for the weights the product of gradient and bias and its sum over columns. Beyond the
// one kernel that reads and writes the rows, and those that read their gradient.
EagerKernels eager_expert_bias(std::int64_t elements, std::int64_t experts);
EagerKernels eager_expert_bias_backward(std::int64_t elements, std::int64_t experts);
EagerKernels eager_expert_bias_weights(std::int64_t elements, std::int64_t experts);

// Ring attention as PyTorch has it (pytorch/pytorch, release 2.6, torch/distributed/tensor/experimental/_attention.py:
// _SDPAMerger, _templated_ring_attention and its backward) over `ranks`, of `queries` elements of a rank's queries and
// `keys` of its keys, and as many of values, of all heads. Keys and values are made contiguous and joined in one
// buffer; partial outputs are cast to fp32 and merged by three kernels, half of them into the second half of the rows,
// which is then joined with the first; the sum is cast. Backward adds gradients up in fp32, of queries and, step by
// step, of keys and values, which are joined in a buffer for the next rank, and casts them. With `compiled` kernels
// (Inductor) a merge or a sum with its casts and joins is one. Left out: log-sum-exps.
EagerKernels eager_ring(std::int64_t queries, std::int64_t keys, std::int64_t ranks, bool compiled, bool backward);

// Copies of `queries` elements of queries, in 16 bits, `keys` of keys and as many of values, around attention: apart
// (split, contiguous), keys and values joined (cat) and put beside each other (permute, contiguous); with several
// `sequences` attention's result into the order of tokens; in backward the gradients of keys and values are joined, and
// those of all three (huggingface/nanotron@03b83fc8 src/nanotron/models/llama.py, CausalSelfAttention).
EagerKernels eager_head_copies(std::int64_t queries, std::int64_t keys, std::int64_t sequences, bool backward);

}  // namespace rehearse::lower
