// Framework profiles: what a named framework and version really launches, read by lowering and cost. Documented
// behaviour with its source; numbers that are judgements say so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"
#include "sim/model/model.h"

namespace rehearse::plan {

// When ZeRO-3 gathers a layer's parameters. ahead: while the layer before it computes. after_reduce: as `ahead` in
// forward; in backward behind the reduction of the layer before it, so that compute waits for both (FSDP's
// BACKWARD_POST: one process group has one NCCL stream). on_use: when compute gets there, and compute waits.
// alone: one by one when reached, behind what was computed before; the host waits for each, and for each reduction.
enum class ShardGather : unsigned char { ahead, after_reduce, on_use, alone };

// Where an all-gather of data parallelism writes. place: where the parameters are used. flat: into a buffer that is
// copied to them. list: into a tensor a rank, made by copying the parameters together; the library gathers into a flat
// buffer of its own, copies that to the list, and the list is copied to the parameters: three copies of everything.
enum class GatherInto : unsigned char { place, flat, list };

// How memory for tensors is found. arena: every buffer has its place before the first step, and what is written into
// a place waits for the last use of what lay there before. caching: an allocator that keeps what is freed, as
// PyTorch's; nothing waits, some of it is wasted.
enum class Allocator : unsigned char { arena, caching };

struct FrameworkProfile {
  std::string name, summary;  // one line on what it stands for
  std::vector<std::string> sources;
  std::string replicas_as;  // the profile whose policies hold for whole replicas (zero 0); "": its own
  // Defaults for scenario keys that are not given.
  model::AttentionKind attention = model::AttentionKind::flash;   // model.attention
  double dropout = 0;                                             // model.dropout
  model::MapLayout map_layout = model::MapLayout::channels_last;  // model.map_layout
  bool fp32_gradients = true;  // training.grad_dtype and reduce_dtype: fp32; false: the training precision
  bool fp32_reduction = true;  // false: training.reduce_dtype alone is the training precision
  bool overlap_grad_reduce = true, overlap_param_gather = true, overlap_tensor_backward = true;  // plan's
  static constexpr Bytes kOneBucket{std::int64_t{1} << 50};                                      // all gradients
  Bytes bucket{25 << 20};                                                                        // plan.bucket
  // plan.bucket is of overlapped reductions of the first stage's first chunk; gradients of other chunks, and all of
  // reductions that are not overlapped, are one bucket a chunk. Where the key is not given, a bucket has so much a
  // replica if that is more than `bucket`. ZeRO-2, which keeps no whole gradients, has a bucket a layer then.
  bool buckets_first_chunk = false;
  Bytes bucket_per_replica{0};
  std::int64_t bucket_elements = 0;  // above 0: what `bucket` is, whatever the gradients' type
  bool layers_by_cost = false;       // plan.layers_per_stage: auto is by the cost of layers and head (layers_by_cost.h)
  // Lowering.
  bool fused_weight_gradient = true;  // plan.fused_weight_gradient
  // A parameter's first gradient in a step becomes the gradient, which nothing has filled with zeros; false: all are
  // added.
  bool takes_first_gradient = false;
  bool unrolled_casts = false;           // casts from 16 bits to fp32 are program::Elementwise::unrolled
  bool fused_residual_gradient = true;   // norm backward adds the residual's gradient; false: a separate add kernel
  bool alternates_in_one_round = false;  // PipelinePlace's
  bool batched_point_to_point =
      false;                          // pipeline send and the next receive as one group op the compute stream waits for
  bool split_point_to_point = true;   // pipeline tensors sent as 1/tensor slices, gathered by the receiver
  bool recompute_stops_early = true;  // full recomputation ends at the last tensor backward needs; false: whole layer
  bool fp32_logits = false;           // logits cast to fp32 and kept so for the loss
  int loss_metrics = 0;               // metrics of training that each make the eager loss of the logits again
  bool autocast = false;  // transformers: parameters and what is added between layers stay in fp32; casts before
                          // each matrix product, of weights anew in each forward
  // 8-bit products: backward casts its operands from their 16 bits again, and Inductor generates the casts (torchao).
  bool fp8_casts_again = false;
  bool fused_elementwise = true;  // false: bias in the matmul, then dropout, residual add and the parts of SwiGLU as
                                  // kernels of their own
  bool norm_reads_once = true;    // false: LayerNorm's forward reads its input for the statistics, and again
  bool fused_norm = true;         // false: RMSNorm is a chain of kernels in fp32 (sim/lower/model/eager_passes.h)
  bool fused_rope = true;         // false: rotary embedding is complex products in fp32, and keys and values that heads
                                  // share are copied to each head before attention
  bool fused_latent_rope = true;  // plan.fused_latent_rope
  // Rotary embedding of queries and of keys is a chain of kernels in 16 bits, which changes the halves of what it
  // turns.
  bool rope_in_halves = false;
  bool fused_scaled_rope = true;  // false: what yarn scales besides turning it is a chain of kernels in 16 bits
  bool clamps_apart =
      false;  // swiglu_oai of experts: inputs are clamped by kernels of their own, in halves, and joined
  // Attention by a ring of keys (plan.context_kind): partial results, and gradients of keys and values, are added up in
  // fp32 by kernels of their own.
  bool ring_in_fp32 = false;
  bool packed_heads = true;     // false: queries, keys and values are copied apart after their product, keys and values
                                // together again, and what attention gives to the order of tokens
  bool joins_heads = false;     // backward joins the gradients of queries, keys and values, if one product's, by a copy
  bool packed_products = true;  // false: queries, keys and values are a product each, and so are a gate and what it
                                // gates; their inputs' gradients are added by kernels
  bool splits_gate = false;     // true: a gate and what it gates are halves of one product, apart from each other;
                                // backward joins their gradients by a copy
  bool fused_scores = true;     // false: scores that are kept are scaled and masked by a kernel of their own, and their
                                // gradients scaled by one
  bool fused_score_bias = false;  // true: a bias of scores is added in the kernel of their softmax
  // Tensors are [batch, sequence, width], and collectives along the sequence, the second, copy: what was gathered by
  // rank into the order of tokens, what is to be scattered into that of ranks.
  bool copies_sequence_shards = false;
  // A column-parallel layer's input stays gathered from forward, or from its recomputation, for the weight's gradient;
  // false: shards are kept and gathered again.
  bool keeps_gathered_input = false;
  bool fused_loss = true;  // false: log_softmax, nll_loss and casts are kernels of their own
  // Under training.deterministic. What kernels write into new tensors is filled first (training.fill_uninitialized),
  // with `extension_products` the results of linear layers too, whose library allocates them as it does all else. The
  // fused loss is refused, and rings are asked for.
  bool fills_new_tensors = false, extension_products = false, unfuses_deterministic_loss = false,
       deterministic_rings = false;
  bool vocab_parallel_loss = false;  // the chain of kernels that is a split vocabulary's loss is a whole one's too
  bool loss_keeps_logits = false;    // that chain begins with a copy of the fp32 logits; false: overwrites them
  // Networks of convolutions, in 16 bits and in fp32. Batch normalisation, the residual sum and ReLU behind it are one
  // kernel each way, and where the gradients of two branches meet, the one that comes later is added in its kernel.
  bool fused_batch_norm = false, fused_batch_norm_fp32 = false;
  // Batch normalisation in kernels that keep on the chip what fits there of the channels they work on, and do not read
  // it again (cuDNN's persistent mode): of 16-bit maps whose channels lie together, and of maps that lie channel by
  // channel.
  bool keeps_norm_channels_last = false, keeps_norm_channels_first = false;
  // How ranks come by the same weights before the first step: training.first_weights; if they are sent, from so many
  // bytes on a message is full (0: each parameter alone), and whether the model is cast to the training's precision
  // before (else what is sent is in the fp32 of the optimizer's copy).
  bool broadcasts_first_weights = false, first_weights_cast = false;
  Bytes first_weights_bucket{250 << 20};
  bool fused_optimizer = true;  // false: a pass over the tensors an arithmetic operation
  ShardGather shard_gather = ShardGather::ahead;
  // ZeRO-3: a parameter of at least so many elements is sharded, gathered and reduced on its own; the others stay
  // whole, are reduced a layer together and gathered after the step. 0: all of a layer together.
  std::int64_t shard_alone = 0;
  // ZeRO-3: the shard is the parameter in fp32, cast to the training's precision before each gather; false: it is in
  // that precision, beside the optimizer's fp32 copy. Of what stays on devices.
  bool fp32_shards = false;
  bool copies_buckets = false;  // gradients are copied into buckets to be reduced, and back
  // ZeRO 2 and 3, each a pass over a layer's gradients: copied together into one tensor; cast from the training
  // precision to training.reduce_dtype (false: products write that); divided by the number of ranks before they are
  // summed.
  bool flattens_gradients = false, casts_gradients = false, divides_gradients = false;
  bool all_reduces_gradients = false;  // ZeRO 2 and 3: where a reduce-scatter would do
  GatherInto gather_into = GatherInto::place;
  // Collectives of data parallelism over lists of tensors: what the host does for each rank's piece of a parameter that
  // is gathered, of a bucket that is reduced, in launches.
  double gather_launches = 0, reduce_launches = 0;
  // ZeRO-3 with full recomputation: a weight is gathered again for backward where at least so many elements of other
  // weights are used between (plan.reuse_distance). 0: never.
  std::int64_t reuse_distance = 0;
  bool reduces_replicas_always = false;  // hybrid sharding: the replicas' all-reduce after each micro-batch
  bool context_parallel = true;          // it has context parallelism
  bool expert_parallel = false;          // experts may be spread over ranks
  bool cuda_graphs = false;              // it launches captured graphs (plan.cuda_graphs)
  // Of 8-bit products, in launches: what the host does for one, besides for the scales of its operands' blocks (mxfp8),
  // and for a cast of an expert's rows.
  double fp8_product_launches = 1, fp8_scale_launches = 0, fp8_cast_launches = 1;
  // The partial sums that row-parallel layers hand to a collective in forward are free when the device has come there,
  // and not when the host has: while it is a queue of launches ahead, those of the layers between are held.
  bool holds_sent = false;
  // Rows that are forwarded (plan.expert_dispatch) come as tokens, and one kernel puts them in the order of experts
  // where they arrive, another sums them there; else rows are ordered by experts where they come from, and once more
  // where they arrive.
  bool orders_forwarded_once = false;
  bool weighs_in_experts = false;     // plan.weigh_in_experts
  bool launches_each_expert = false;  // a launch for every expert's product; else one for all of them
  bool data_parallel_only = false;    // replicas of a whole model: no tensor or pipeline parallelism, no ZeRO
  bool host_sync_on_norm = false;     // the host reads the gradient norm before it launches the optimizer
  std::int64_t vocab_multiple = 1;    // vocabulary padded to a multiple of this times tensor
  // Memory.
  Allocator allocator = Allocator::caching;
  // Cost.
  // A device file's times of launches and of memory beyond tensors were measured with this framework (our Performer),
  // and hold instead of the two below.
  bool measured_host = false;
  Time launch_cost;  // host time to launch one op
  // Where every launch blocks until the kernel has ended: idle time of the device with each op. Zero: launches do not
  // block.
  Time blocking_gap;
  // Memory held beyond tensors on a device that is no CPU: context, communicator buffers, library workspaces.
  Bytes memory_reserve;
  double fragmentation = 0;  // share of the tensors' peak an allocator wastes
  // ShardGather::alone: what the host does for each rank's piece of a parameter before its gather begins, in launches;
  // `gather_launches` are while it goes on.
  double gather_list_launches = 0;
};

// nullptr if there is no such profile.
const FrameworkProfile* find_framework(std::string_view name);
std::vector<std::string> framework_names();

}  // namespace rehearse::plan
