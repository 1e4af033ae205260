// A scenario that takes no time: four ranks, of tensor and pipeline pairs, of a GPT with two layers.
#pragma once

namespace rehearse {

inline constexpr char kSmallGpt[] = R"(rehearse: 1
framework: rehearse
name: small
model: {family: gpt, layers: 2, hidden: 16, heads: 2, vocab: 256, max_seq_len: 8}
cluster: {topology: dgx-a100, gpus: 4}
plan: {tensor: 2, pipeline: 2, micro_batch: 1}
training: {global_batch: 4, precision: fp32, lr: 1e-2}
)";

}  // namespace rehearse
