// How a model is split over ranks, and what one training step is: the scenario's `plan:` and `training:` mappings, and
// whether they can be (feasibility rules with the numbers that break them).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/axis.h"
#include "sim/base/diagnostics.h"
#include "sim/base/gradient_code.h"
#include "sim/base/units.h"
#include "sim/model/model.h"
#include "sim/plan/framework.h"

namespace rehearse::plan {

// One file each in schedule/.
enum class Schedule : unsigned char {
  sequential,
  gpipe,
  one_f_one_b,
  interleaved,
  zero_bubble,
  zero_bubble_v,
  dualpipe_v,
  dualpipe
};
inline constexpr std::size_t kSchedules = 8;
// What backward computes again. selective: the core of unfused attention. full: whole layers. ops: layers but for what
// their attention, every second product and reductions over the tensor group gave.
enum class Recompute : unsigned char { none, selective, full, ops };
// What products do besides in the same kernel: GELU of the first of a feed-forward layer, its slope in backward of the
// second; the sums that are a bias's gradient in the product that gives its weight's.
enum class FusedEpilogues : unsigned char { none, bias_gradient, gelu, all };
enum class Precision : unsigned char { fp32, bf16, fp16, fp8, nvfp4 };
// How the scales of 8-bit operands come about, in the words of Megatron-Core's --fp8-recipe: of a tensor from the
// largest values of earlier steps, or from its own; of blocks of 128; of 32 elements (Open Compute's MX formats).
enum class Fp8Recipe : unsigned char { delayed, tensorwise, blockwise, mxfp8, rowwise };
// How rows of tokens come to experts on other ranks: one for each choice, all to all ranks, or one to each node that
// has experts of the token, from where it is passed on to the ranks that have them.
enum class ExpertDispatch : unsigned char { all_to_all, all_gather, forwarding };
// What a host launches as one graph of captured kernels (cudaGraphLaunch): each layer's forward and backward, or all
// forwards and backwards of a step (lower/stage_lowering.cpp).
enum class CudaGraphs : unsigned char { none, layer, step };
// How the ranks of a context group exchange keys and values; see context_rows.h.
enum class ContextKind : unsigned char { ring, all_to_all, all_gather };
// adafactor: Shazeer and Stern 2018, arXiv 1804.04235. muon: Jordan et al. 2024, of hidden matrices; all else AdamW.
// sim/program/op.h has the variants.
enum class OptimizerKind : unsigned char { adamw, sgd, adafactor, muon, lamb };
// Where the tables of sparse features are: on every data-parallel rank, or each whole on one of them.
enum class EmbeddingTables : unsigned char { replicated, sharded };
// What updates them: the optimizer of all else, with gradients of whole tables; or a step on the rows that were looked
// up (program::EmbeddingBags), in backward, as FBGEMM's fused optimizers have it.
enum class SparseOptimizer : unsigned char { none, sgd, adagrad };
// How long the documents are that sequences are packed of (documents.h); none: each sequence is one.
enum class Documents : unsigned char { none, fixed, uniform, lognormal, table };
// What ends a round of local steps (program::OuterStep): the mean of the replicas' parameters, or a step of SGD with
// Nesterov's momentum along the mean of how far they have come.
enum class OuterOptimizer : unsigned char { average, nesterov };
// When parameter servers apply gradients, and what a worker waits for before it pulls: synchronous: the mean of N
// workers' gradients of a step at once, for which all wait; asynchronous: each as it comes (Dean et al. 2012,
// "Large scale distributed deep networks"); bounded: the same, but nobody is more than `staleness` iterations ahead of
// the slowest (Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server").
enum class Consistency : unsigned char { synchronous, asynchronous, bounded };
// Where servers are: on devices of their own, behind those of cluster.gpus, or beside workers, evenly spread.
enum class ServerDevices : unsigned char { own, workers };
// How an optimizer's averages are stored. int8: codes of blocks (sim/base/moment_codes.h).
enum class MomentsKind : unsigned char { fp32, bf16, int8 };

struct Plan {
  std::int64_t tensor = 1, pipeline = 1, context = 1, expert = 1;
  std::int64_t expert_tensor = 0;  // 1, or tensor; 0: tensor
  ExpertDispatch expert_dispatch = ExpertDispatch::all_to_all;
  bool overlap_expert_exchange = false;  // a forward beside another micro-batch's backward, each to hide the other's
  // Routed experts in mxfp8: products of all are one kernel each, which has the activation and its casts inside.
  bool fused_experts = false;
  // The routers' weights are multiplied with the experts' activations, where the rows are; else with what comes back.
  bool weigh_in_experts = false;
  bool overlap_shared_experts = false;  // computed while rows go to the routed experts and come back
  ContextKind context_kind = ContextKind::ring;
  std::int64_t data = 1;  // derived: gpus / (tensor * pipeline * context)
  // Whether every rank of a tensor group has experts of its own, which are not split.
  bool whole_experts() const { return expert > 1 && tensor > 1 && expert_tensor == 1; }
  // Experts are spread over `expert` ranks: those of a tensor group if it does not split them, of a context group, and
  // of so many data-parallel replicas. Megatron-Core's arrangement (megatron/core/parallel_state.py: a grid of
  // expert-tensor x expert x expert-data ranks over the same ranks).
  std::int64_t expert_replicas() const { return expert > 1 ? expert / (context * (whole_experts() ? tensor : 1)) : 1; }
  // What is sharded is sharded over zero_group ranks that hold the same weights, and replicated over `replicas` groups
  // of them. As the file has it: kAllShard, kNodeShards (those of a node) or a number.
  static constexpr std::int64_t kAllShard = 0, kNodeShards = -1;
  std::int64_t zero_group = kAllShard;
  std::int64_t replicas = 1;  // derived: data * context / the ranks of a group; divides data
  Schedule schedule = Schedule::one_f_one_b;
  std::int64_t chunks = 1;  // model chunks a stage; above 1 only where the schedule takes or has them
  // Resolved: one entry a stage; with chunks one a stage and chunk in the model's order (PipelineSchedule::stage_of).
  std::vector<std::int64_t> layers_per_stage;
  // layers_per_stage: by_time, not chosen yet: that is done where costs are known (sim/run/layers_by_time.h), and until
  // then layers_per_stage is as auto has it.
  bool layers_by_time = false;
  bool embedding_as_layer = false;  // where layers_per_stage is auto; then in it
  std::int64_t micro_batch = 1;     // sequences
  int zero = 0;                     // 0..3
  Bytes bucket{25 << 20};           // gradient bytes a bucket; transfers start when it is full
  bool bucket_given = false;        // else it is the framework's
  bool overlap_grad_reduce = true, overlap_param_gather = true, overlap_tensor_backward = true;
  bool async_tensor_parallel = false;  // products go on by parts of the rows beside what is gathered or scattered
  bool fused_weight_gradient = true;   // weight gradients accumulate in the matmul
  bool fused_latent_rope = true;       // latent attention: queries and keys are rotated and joined in one kernel
  std::int64_t reuse_distance = 0;     // elements; 0: recomputed layers keep their weights for backward
  bool sequence_parallel = false;
  CudaGraphs cuda_graphs = CudaGraphs::none;
  FusedEpilogues fused_epilogues = FusedEpilogues::none;
  bool fuses_gelu() const { return fused_epilogues == FusedEpilogues::gelu || fused_epilogues == FusedEpilogues::all; }
  bool fuses_bias_gradients() const {
    return fused_epilogues == FusedEpilogues::bias_gradient || fused_epilogues == FusedEpilogues::all;
  }
  Recompute recompute = Recompute::none;
  std::int64_t recompute_layers = 0;         // of each stage and chunk, its first ones; 0: all
  std::int64_t recompute_every = 1;          // of these each n-th
  bool recompute_latent = false;             // latent attention's heads, from the latents
  bool recompute_norms = false;              // what the norms before a layer's branches give, from their inputs
  bool recompute_expert_activation = false;  // the routed experts' activations, from what goes into them
  // Of the layer of that index, from 0, in its stage and chunk.
  Recompute recompute_of(std::int64_t layer) const {
    const bool chosen = (recompute_layers == 0 || layer < recompute_layers) && (layer + 1) % recompute_every == 0;
    return chosen ? recompute : Recompute::none;
  }
  EmbeddingTables embedding_tables = EmbeddingTables::replicated;
  // What lies in the memory of the node's host (sim/lower/parallel/offload.cpp): the optimizer's states, with its step
  // on the host; inputs of recomputed layers, or all activations of some layers, between their forward and their
  // backward; ZeRO-3's shards of parameters.
  bool offload_optimizer = false, offload_activations = false, offload_parameters = false;
  std::int64_t offload_layers = 0;  // the first so many, all that backward reads of them
  bool offloads_activations() const { return offload_activations || offload_layers > 0; }
  // A chain (gradient_rules.cpp): what of the gradients is sent, in how many bits, and how that is rounded.
  std::vector<std::string> gradient_compression{"none"};
  double gradient_share = 0.01;        // of a bucket's gradients, with top_k and random_k
  std::int64_t gradient_chunk = 2048;  // values that share a scale; 0: all of a bucket
  bool compresses_by(std::string_view word) const {
    return std::find(gradient_compression.begin(), gradient_compression.end(), word) != gradient_compression.end();
  }
  bool compresses_gradients() const { return !compresses_by("none"); }
  bool corrects_momentum() const { return compresses_by("momentum_correction"); }
  // Of a bucket, where gradients are sent as codes; share: of those that are sent.
  GradientCode gradient_code(std::int64_t elements, double share) const;
  GradientCode gradient_code(std::int64_t elements) const { return gradient_code(elements, gradient_share); }
  std::int64_t gradient_warmup_steps = 0;  // with each of warmup_shares()
  // Before gradient_share: 1/4, 1/16, ... of the gradients, down to it.
  std::vector<double> warmup_shares() const;
  std::int64_t gradient_rank = 1;        // of power_sgd
  std::int64_t gradient_start_step = 0;  // before it power_sgd sends all gradients
  double gradient_min_rate = 2, gradient_epsilon = 0;
  // Of what power_sgd sends in the place of a matrix: columns; 0: the matrix is sent.
  std::int64_t rank_of_matrix(std::int64_t rows, std::int64_t cols) const;
  // Optimizer steps that each group of ranks with the same weights takes for itself before all groups become one again;
  // 0: gradients of all are summed in every step. Which ranks are a group: kReplicaGroup (a data-parallel replica),
  // kNodeShards (those of a node) or a number of ranks; `replicas` is how many groups there are then.
  static constexpr std::int64_t kReplicaGroup = 0;
  std::int64_t local_steps = 0, local_group = kReplicaGroup;
  OuterOptimizer outer_optimizer = OuterOptimizer::average;
  double outer_lr = 0.7, outer_momentum = 0.9;  // of nesterov
  bool steps_apart() const { return local_steps > 0; }
  // Groups that step by their own gradients' mean; of parameter servers the gradients that make a global batch.
  std::int64_t workers() const { return steps_apart() ? replicas : served() ? counted() : 1; }
  // Parameter servers, which hold the parameters, each its own of them whole (sim/account/server_shards.h), and apply
  // what the data-parallel ranks, the workers, push; 0: there are none.
  std::int64_t servers = 0;
  ServerDevices server_devices = ServerDevices::own;
  Consistency consistency = Consistency::synchronous;
  std::int64_t staleness = 3;  // of Consistency::bounded
  // Of the data-parallel ranks: a step takes the gradients that come first, of all but so many (Chen et al. 2016,
  // arXiv 1604.00981).
  std::int64_t backup_workers = 0;
  double mode_overhead = 0;  // of a worker's compute, what the mode adds to it
  bool served() const { return servers > 0; }
  std::int64_t own_servers() const { return server_devices == ServerDevices::own ? servers : 0; }
  // Data-parallel ranks whose gradients make a global batch.
  std::int64_t counted() const { return data - backup_workers; }
  // Not keys: a step of forwards alone, without gradients and optimizer, as scoring and generation have them
  // (sim/run/reinforcement/reinforcement.h); and in these the tokens before its own that each sequence has keys and
  // values of, in a cache. With zero 1 and 2 parameters are whole then.
  bool forward_only = false;
  std::int64_t cached_tokens = 0;
  AxisOrder rank_order = {Axis::tensor, Axis::context, Axis::expert, Axis::data, Axis::pipeline};
};

// Where ranks have their first weights from: seeded: each draws its own part, by the seed and places in whole
// parameters, so that all have the same; broadcast: rank 0 draws, and sends to those that hold the same.
enum class FirstWeights : unsigned char { seeded, broadcast };

struct Training {
  std::int64_t global_batch = 1, seq_len = 1;
  Documents documents = Documents::none;
  std::int64_t document_length = 0;            // mean, tokens
  double document_sigma = 1;                   // lognormal: standard deviation of the logarithm
  std::vector<std::int64_t> document_lengths;  // table
  bool packs() const { return documents != Documents::none; }
  Precision precision = Precision::bf16;
  Fp8Recipe fp8_recipe = Fp8Recipe::delayed;
  std::int64_t fp8_bf16_layers = 0;    // at either end of the model
  bool fp8_transposes = true;          // 8-bit products want both operands along the dimension that is summed over
  bool fp8_params = false;             // weights of 8-bit products are held in 8 bits alone
  bool fp8_dispatch = false;           // rows go to experts on other ranks, and their gradients, in 8 bits
  bool fp8_activation_input = false;   // what goes into routed experts' activations is kept for backward in 8 bits
  bool e5m6_attention_output = false;  // what attention gives is kept for backward in 12 bits
  bool eight_bits() const { return precision == Precision::fp8; }
  // Of 8-bit products: scales are of whole rows of either operand, along which a product sums.
  bool fp8_rows() const { return fp8_recipe == Fp8Recipe::rowwise; }
  // Of 8-bit products: elements that have a scale of their own; 0: scales are of whole rows or tensors.
  std::int64_t fp8_block() const {
    return fp8_recipe == Fp8Recipe::blockwise ? 128 : fp8_recipe == Fp8Recipe::mxfp8 ? 32 : 0;
  }
  bool four_bits() const { return precision == Precision::nvfp4; }
  bool narrow() const { return eight_bits() || four_bits(); }  // products of linear layers in transformer blocks
  Precision grad_dtype = Precision::fp32;                      // gradients as stored
  Precision reduce_dtype = Precision::fp32;                    // gradients as sent
  OptimizerKind optimizer = OptimizerKind::adamw;
  SparseOptimizer sparse_optimizer = SparseOptimizer::none;
  MomentsKind moments = MomentsKind::fp32;  // AdamW's two averages as stored, or SGD's momentum
  double lr = 3e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, momentum = 0;
  std::string lr_schedule = "constant";  // constant | cosine
  std::int64_t warmup_steps = 0;
  double clip = 1.0;                // global norm; 0 = off
  std::int64_t ignored_token = -1;  // targets of it count for nothing; -1: all count
  double loss_scale = 65536;        // fp16: at first
  std::int64_t loss_scale_interval = 2000;
  std::int64_t seed = 1;
  bool deterministic = false;       // a GPU's kernels give the same bits in every run
  bool fill_uninitialized = false;  // what the framework allocates is filled before it is written
  FirstWeights first_weights = FirstWeights::seeded;
  // Low-rank adaptation (Hu et al. 2021, arXiv 2106.09685): of rank 0 there is none. Else adapters alone are trained.
  std::int64_t lora_rank = 0;
  double lora_alpha = 0;  // what an adapter gives is multiplied by lora_alpha / lora_rank
  bool lora_qkv = true, lora_proj = true, lora_fc1 = true, lora_fc2 = true;  // which products have one
  bool lora() const { return lora_rank > 0; }
  model::Adapters adapters() const { return {lora_rank, lora_qkv, lora_proj, lora_fc1, lora_fc2}; }
  // Of a run known to train well, for advice on the learning rate (sim/account/epoch.h); 0: not given.
  std::int64_t base_batch = 0;
  double base_lr = 0;

  // Micro-batches a replica runs in a step.
  std::int64_t micro_batches(const Plan& plan) const { return global_batch / (plan.counted() * plan.micro_batch); }
};

// What a pipeline cuts between: transformer layers; for cnn each convolution with its pooling, then each linear layer;
// for mlp each linear layer. `layers_per_stage` counts these.
std::int64_t unit_count(const model::Model& model);

// Layers of each stage when `layers_per_stage: auto`: an even split; a remainder goes one layer each to the stages
// after the first, from the second on (the first and the last stage also hold the embedding and the head). Needs layers
// >= stages.
std::vector<std::int64_t> auto_layers(std::int64_t layers, std::int64_t stages);

// The same where embedding and head count as a layer each: the first stage and the last have one less than the others,
// perhaps none. Needs layers + 2 to divide by stages, of which there are several.
std::vector<std::int64_t> auto_layers_with_embedding(std::int64_t layers, std::int64_t stages);

// Vocabulary as the framework pads it: up to a multiple of profile.vocab_multiple * tensor (and so divisible by
// tensor).
std::int64_t padded_vocab(const model::Model& model, const Plan& plan, const FrameworkProfile& profile);

}  // namespace rehearse::plan
