// The parameters of a stage and how data parallelism stores them: parameters are views of flat buckets, so that a
// bucket is what is reduced, gathered, sharded and updated. What a rank keeps of a bucket of n elements over d
// data-parallel ranks (with hybrid sharding: the ranks that shard together):
//
//   ZeRO   parameters   gradients                              optimizer states
//   0      n            n                                      n
//   1      n            n (each rank reduces into its shard)   n / d
//   2      n            n / d, full only within a backward     n / d
//   3      n / d, full  n / d, full only within a backward     n / d
//          only in use
//
// (Rajbhandari et al. 2020, arXiv 1910.02054.) Buckets are padded to a multiple of d. With ZeRO 0 to 2 a bucket is
// filled in backward order up to plan.bucket bytes; with ZeRO-3 a unit (layer) has one, with ZeRO-2 where frameworks
// have whole chunks (reduces_by_unit). Parameters replicated over the tensor group have buckets of their own: their
// gradients count once in the norm and, under sequence parallelism, are summed over the tensor group first. A tied
// embedding is a bucket of its own too: its gradient is summed with the other copy's. So are experts that are spread
// over ranks: their d are the ranks that hold the same experts. So are weights held in 8 bits alone
// (training.fp8_params; fp8_parameters.cpp). So are parameters whose moments are in 8 bits (training.moments): each
// begins at a multiple of kMomentBlock elements, and the bucket is padded to a multiple of d * kMomentBlock, so that no
// block of them has elements of two tensors or on two ranks. So are frozen parameters (training.lora_rank; lora.h) and
// tables whose rows backward updates (training.sparse_optimizer): a rank keeps their values alone, whole or with ZeRO-3
// its shard, and no gradients and optimizer states. So are tables that one data-parallel rank has
// (plan.embedding_tables), whose gradients are of all ranks' examples already.
//
// Where the optimizer's step is on the host (plan.offload_optimizer; offload.cpp) its states lie in the host's memory,
// and so do the reduced gradients that it reads; with ZeRO 2 and 3 no others are kept.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/lower/parallel/fp8_scales.h"
#include "sim/lower/stage.h"

namespace rehearse::lower {

struct ParamSpec {
  std::string name;
  std::vector<std::int64_t> global_shape;
  int tensor_dim = -1;  // dimension split over the tensor group; -1: replicated
  program::Init::Kind init = program::Init::Kind::normal;
  double scale = 0.02;
  bool tied = false;        // also held by another stage (embedding)
  bool spread = false;      // dimension 0, experts, is split over the expert group, where there is one
  bool eight_bits = false;  // its products are in 8 bits
  bool adapter = false;     // of low-rank adaptation
  bool complete = false;    // each rank of the tensor group has all of its gradient (adapters, biases of experts)
  bool copy = false;        // the head's own copy of a tied one: gradients count in the norm where the embedding is
  bool table = false;       // whose rows are looked up: its moments are not kept in 8 bits
  bool owned = false;       // of the data-parallel ranks this one alone has it (plan.embedding_tables)
  bool sparse = false;      // an op of backward updates it (training.sparse_optimizer): it has no gradient, no moments
  bool partial = false;     // each rank of those of the tensor group that hold it has a part of its gradient
  // Above 0: of key-value heads (dimension 0) that so many ranks in a row of the tensor group have in common;
  // tensor_dim is split over these ranks.
  std::int64_t key_ranks = 0;
  // Of a part of what plans without a tensor group hold in one parameter: its shape and name, and where it begins
  // there.
  std::vector<std::int64_t> whole_shape = {};
  std::string whole = {};
  std::int64_t whole_first = 0;
  program::GroupId held_by = -1;  // of a tied one: the stages that hold it; -1: Groups::embedding
  // Matrices that Muon updates, one after the other, of as many columns as the last dimension: of a product in a block.
  // 0: AdamW's, as tables, the head, norms and biases are.
  std::int64_t matrices = 0;
  bool experts = false;     // dimension 0 counts experts
  bool packed_qkv = false;  // [kv_heads, rows of a group's queries, key and value, hidden]: three matrices
};

using ParamId = int;

class ParameterStore {
 public:
  ParameterStore(const Context& context, RoleBuilder& builder)
      : context_(context), builder_(builder), fp8_scales_(context, builder) {}

  // In forward order; `unit` numbers the units of the stage. A new chunk starts new buckets. Call layout() after the
  // last.
  void begin_chunk() { ++chunk_; }
  ParamId add(int unit, ParamSpec spec);
  void add_use(ParamId id) { ++params_[static_cast<std::size_t>(id)].uses; }  // a second unit uses it (tied embedding)
  void layout();

  // The parameter's values, as a view compute ops read.
  BufferId value(ParamId id) const { return params_[static_cast<std::size_t>(id)].value; }
  std::int64_t rows(ParamId id) const;
  // Whether it is trained: where there are adapters, every other parameter is frozen. What follows about gradients is
  // of trained parameters; of frozen ones weight_gradient and gradient_done do nothing.
  bool trains(ParamId id) const { return !frozen(params_[static_cast<std::size_t>(id)]); }

  // Under autocast: the values a product is about to read, from the fp32 copy.
  void cast_weight(ParamId id);
  // One of several equal parts of the parameter's elements, as a view; cast as above.
  BufferId cast_part(ParamId id, int part, int parts);
  // Of any buffer of parameters.
  BufferId part_of(BufferId whole, int part, int parts);

  // Copies of a weight for 8-bit products, along either dimension: row for forward, column for the input's gradient
  // (the same buffer where products take any layout). Where whole weights are kept both are made in the first
  // micro-batch's forward (Transformer Engine's is_first_microbatch), else in the body that reads them.
  BufferId fp8_row(ParamId id);
  BufferId fp8_column(ParamId id);
  // training.fp8_params: how weights of 8-bit products are held. eight_bits: a bucket's values are its copies by rows,
  // with scales of whole tensors. blocks: the optimizer gives 16 bits, which lie where the gradients do until both
  // copies are cast of them. none: in 16 bits (also weights whose products are not in 8 bits).
  enum class Held : unsigned char { none, eight_bits, blocks };
  bool keeps_fp8_weights() const {
    return !gathers() && !context_.profile().autocast && !context_.scenario.training.fp8_rows();
  }
  void begin_forward(bool first_micro_batch) { first_forward_ = first_micro_batch; }
  // Whether an op makes such a copy of a weight, or clears the place that its 16 bits had.
  static bool casts_weight(const program::Role& role, const program::Op& op);
  Fp8Scales& fp8_scales() { return fp8_scales_; }  // of whole tensors

  // Gathers a unit's parameters (ZeRO-3; else nothing) on the data stream.
  void gather(int unit);
  // After a unit's recomputation: those that were released since, by plan.reuse_distance.
  void gather_again(int unit);
  bool gathers() const { return context_.plan().zero == 3 && context_.groups.data >= 0; }

  // Starts a backward body of a chunk. `first`: where the framework takes the first gradient as it is, no earlier
  // micro-batch of the step has given one; `last`: no later one does, so the chunk's buckets are reduced as they
  // complete.
  void begin_backward(int chunk, bool first, bool last);
  // The gradient buffer of a parameter for an op that adds to it (filled with zeros first where nothing else has).
  BufferId accumulated_gradient(ParamId id);
  // dW = A B as a matrix product into the parameter's gradient, fused or by a separate add as the framework does.
  // `bias`: whose gradient, A's columns added up, comes out of the same product; -1: of none.
  void weight_gradient(ParamId id, const std::string& name, program::Gemm gemm, BufferId a, BufferId b,
                       ParamId bias = -1);
  // The same of every expert's product; `loads` of a counted one.
  void weight_gradient(ParamId id, const std::string& name, program::GroupedGemm gemm, BufferId a, BufferId b,
                       BufferId loads);
  // After an op of this backward that adds to the parameter's gradient, once a use.
  void gradient_done(ParamId id);

  // fp16: the loss scale and how many steps it has stood, f32 [2], the same on every rank; -1: none.
  BufferId loss_scale() const { return loss_scale_; }
  // training.ignored_token: f32 [2], of which the first number is how many targets have counted so far, and from
  // emit_step() on their share of the batch's; -1: all count.
  BufferId counted() const { return counted_; }
  // The loss of a stage that has one, to be divided by that share.
  void add_loss(BufferId loss) { losses_.push_back(loss); }

  void emit_zero_gradients();  // start of the step
  void emit_step();            // the rest of the reductions, norm, optimizer, gathers (optimizer.cpp)
  void emit_outer_step();      // the end of a round of local steps (outer_step.cpp)

 private:
  struct Param {
    ParamSpec spec;
    int unit = 0, chunk = 0, bucket = -1;
    std::int64_t elements = 0;
    std::vector<std::int64_t> local_shape;
    std::int64_t offset = 0;  // in the bucket
    BufferId value = -1, gradient = -1;
    BufferId master = -1;                                          // under autocast, as `value`
    BufferId row_means = -1, col_means = -1, updated_master = -1;  // of Adafactor
    BufferId momentum = -1;                                        // of Muon, and updated_master
    int uses = 1, pending_uses = 0;
    bool written = false, scattered = false;  // in this backward: its gradient, of a table by a tensor of its own
    BufferId apart = -1;                      // that tensor, until it is added
    BufferId fp8_row = -1, fp8_column = -1, amax = -1;
    BodyId row_in = -1, column_in = -1, amax_in = -1;  // the body that made them last
  };
  struct Bucket {
    std::vector<ParamId> params;
    int unit = 0, chunk = 0;
    bool replicated = false, tied = false, copy = false, experts = false, frozen = false, owned = false;
    bool partial = false, complete = false;
    std::int64_t key_ranks = 0;     // of key-value heads: ranks of the tensor group that have the same; 0: all
    program::GroupId held_by = -1;  // of a tied one: the stages whose gradients are summed; -1: this stage alone
    program::GroupId copies = -1;   // with two copies of the parameters: the stages that have one; -1: there is one
    bool muon = false;              // of matrices that Muon updates
    // Of shards of matrices that Muon updates: elements of a matrix, or of packed ones together. 0: cut anywhere.
    std::int64_t piece = 0;
    Held held = Held::none;
    std::int64_t elements = 0, padded = 0, shard = 0;
    BufferId values = -1, value_shard = -1;        // full values (ZeRO-3: gathered); our shard of them
    BufferId gradients = -1, gradient_shard = -1;  // full gradients; our shard, reduced
    std::vector<BufferId> gathered_pads;           // padding of transient gradients, zeroed
    bool kept_whole = false;                       // ZeRO-3: small parameters, which are not gathered before use
    DType moments = DType::f32;
    BufferId master = -1, exp_avg = -1, exp_avg_sq = -1, exp_avg_largest = -1, exp_avg_sq_largest = -1;
    BufferId means = -1;  // of Adafactor, of tensors in parts
    // In the host's memory: our shard's reduced gradients, and its updated values in 16 bits.
    BufferId host_gradient = -1, host_values = -1;
    BufferId residual = -1;        // what was not sent of our gradients (compression.cpp)
    BufferId local_momentum = -1;  // of our gradients alone
    BufferId right = -1;           // factors that the next step begins with (low_rank.cpp)
    // Of our part of the bucket: its values now and when the round began, and the outer optimizer's (outer_step.cpp).
    BufferId outer_part = -1, outer = -1, outer_momentum = -1;
    int pending = 0;
    bool reduced = false, copied_out = false;
  };

  void cast_fp8(Param& p, bool row, bool column);
  BufferId fp8_copy(const Param& p, bool by_columns, bool kept);
  Held held(const Param& p) const;
  void hold_in_place_of_gradients(Bucket& bucket, const std::string& suffix);
  void transpose_held(Param& p);
  void emit_held();
  // The ranks that hold the bucket's parameters, or with hybrid sharding those that shard them together; -1: no others.
  program::GroupId group_of(const Bucket& bucket) const {
    if (bucket.owned) return -1;
    if (replicated_alone(bucket)) return context_.groups.replica;
    return bucket.experts ? context_.groups.expert_data : context_.groups.data;
  }
  // Of experts that no two ranks of those that shard together have: they are whole, and groups that shard apart have
  // the same.
  bool replicated_alone(const Bucket& bucket) const {
    return bucket.experts && context_.groups.expert_data < 0 && context_.groups.replica >= 0;
  }
  bool may_shard(const Bucket& bucket) const { return group_of(bucket) >= 0 && !replicated_alone(bucket); }
  std::int64_t members_of(const Bucket& bucket) const {
    if (bucket.owned) return 1;
    return bucket.experts ? context_.expert_shards : context_.shards;
  }
  // Over which a parameter's experts are spread.
  AxisSet expert_axes(const Param& param) const {
    if (!param.spec.spread) return {};
    return context_.plan().whole_experts() ? AxisSet{Axis::tensor, Axis::context, Axis::expert} : kExpertAxes;
  }
  static AxisSet axes_of(const Bucket& bucket) {
    if (bucket.owned) return {};
    return bucket.experts ? kExpertShardAxes : kShardAxes;
  }
  DType moments_of(const Param& param) const;
  program::Init initial_of(const Param& param) const;
  static std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
  }
  bool frozen(const Param& param) const {
    return param.spec.sparse || (context_.scenario.training.lora() && !param.spec.adapter);
  }
  bool sharded(const Bucket& bucket) const {
    return context_.plan().zero > (bucket.frozen ? 2 : 0) && may_shard(bucket);
  }
  // Whether each rank of the tensor group has a part of the gradients of parameters that all of them hold: of its shard
  // of the sequence, or of adapters, whose other matrix is split.
  bool sums_over_tensor(const Bucket& bucket) const {
    const bool parts = context_.sequence_parallel || bucket.partial || context_.scenario.training.lora();
    return bucket.replicated && parts && !bucket.complete;
  }
  // A layer's gradients are a bucket: with ZeRO-3, and with ZeRO-2 where the framework's buckets are of whole
  // gradients.
  bool reduces_by_unit() const {
    const plan::Plan& plan = context_.plan();
    const plan::FrameworkProfile& profile = context_.profile();
    const bool whole = profile.buckets_first_chunk || plan.bucket == plan::FrameworkProfile::kOneBucket;
    return plan.zero == 3 || (plan.zero == 2 && !plan.bucket_given && whole);
  }
  bool transient_gradients(const Bucket& bucket) const {
    return context_.plan().zero >= 2 && (may_shard(bucket) || keeps_gradients_on_host(bucket));
  }
  // offload.cpp. Whether the optimizer's step is on the host; whether the reduced gradients lie there alone.
  bool steps_on_host(const Bucket& bucket) const { return context_.plan().offload_optimizer && !bucket.frozen; }
  bool keeps_gradients_on_host(const Bucket& bucket) const;
  bool values_on_host(const Bucket& bucket) const { return builder_.buffer(bucket.value_shard).on_host; }
  bool shards_in_fp32(const Bucket& bucket) const;
  BufferId shard_to_gather(const Bucket& bucket, const std::string& suffix);
  void make_host_buffers(Bucket& bucket, const std::string& suffix);
  OpRef copy_to_host(const std::string& name, BufferId from, BufferId to);
  void gradients_to_host(Bucket& bucket, int index, BufferId reduced);
  void copy_gradients_out(Bucket& bucket, int index);
  void emit_host_squares(BufferId sum);
  BufferId coefficient_on_host(BufferId coefficient);
  void emit_host_optimizer(Bucket& bucket, int index, BufferId coefficient);
  void wait_for_host_optimizer();
  // Whether the gradient that backward gives next is the parameter's first, in memory that nothing has filled.
  bool gives_first_gradient(const Param& param) const {
    if (param.written) return false;
    const Bucket& bucket = buckets_[static_cast<std::size_t>(param.bucket)];
    return transient_gradients(bucket) || (takes_first_gradient() && first_backward_);
  }
  bool takes_first_gradient() const { return context_.profile().takes_first_gradient; }
  template <class Product>
  void add_weight_gradient(Param& param, const std::string& name, Product product, std::vector<Operand> reads,
                           BufferId bias_gradient = -1);
  bool counted(const Bucket& bucket) const;
  // Ranks of the tensor group in a row that have the same of it.
  std::int64_t copies(const Bucket& bucket) const {
    if (!bucket.replicated) return 1;
    return bucket.key_ranks > 0 ? bucket.key_ranks : context_.tensor;
  }
  bool deferred(const Bucket& bucket) const;
  // Whether every rank of those that shard it has as many matrices of it, where none is cut.
  bool shares_evenly(const Bucket& bucket) const {
    return bucket.piece == 0 || bucket.elements % (bucket.piece * (sharded(bucket) ? members_of(bucket) : 1)) == 0;
  }
  void keep_copies_of_buckets();
  void form_buckets();
  std::int64_t bucket_limit(int chunk) const;
  void make_buffers(Bucket& bucket, int index);
  void view_padding(Bucket& bucket, const std::string& suffix);
  void make_optimizer_state(Bucket& bucket, int index);
  // adafactor.cpp
  bool adafactor_of_whole_tensors() const;
  void make_factors(Param& param, const Bucket& bucket);
  void make_factors(Bucket& bucket, const std::string& suffix);
  program::AdafactorParts adafactor_parts_of(const Bucket& bucket) const;
  void emit_adafactor_parts(BufferId coefficient);
  void sum_parts(const std::string& name, BufferId all, std::int64_t first, std::int64_t count, program::GroupId group);
  void emit_adafactor(const Param& param, const Bucket& bucket, BufferId coefficient);
  bool by_muon(const Param& param) const;
  void make_muon_views(Param& param, const Bucket& bucket);
  // What Muon updates in one go: a parameter, or a bucket's shard of several alike.
  struct MuonOperands {
    std::string name;
    BufferId gradient = -1, value = -1, master = -1, momentum = -1;
    std::int64_t elements = 0, matrices = 0;  // of packed ones tensors
  };
  bool split_over_tensor(const Param& param) const { return context_.tensor > 1 && param.spec.tensor_dim >= 0; }
  std::int64_t muon_piece(const Param& param) const;
  int& open_muon_bucket(const Param& param);
  void emit_muon(const Bucket& bucket, int index, BufferId coefficient);
  void emit_muon(const Param& like, const MuonOperands& on, BufferId coefficient);
  void emit_muon_part(const MuonOperands& on, const std::string& what, program::Muon part, BufferId from,
                      BufferId coefficient);
  template <class Emit>
  void each_matrix(const Param& param, std::int64_t row_parts, program::Muon all, const Emit& emit) const;
  bool alike(const Bucket& a, const Bucket& b) const;
  void emit_muon_of_layers(int index, BufferId coefficient);
  void emit_muon_of_layers(std::span<const Bucket* const> layers, const std::string& name, BufferId coefficient);
  void emit_muon_of_whole_layer(const Bucket& like, const std::string& name, BufferId whole);
  void reduce_over_tensor(Bucket& bucket, int index);
  void reduce_over_embedding(Bucket& bucket, int index);
  void reduce_over_copies(const Bucket& bucket, int index);
  void reduce(Bucket& bucket, int index);
  void make_residual(Bucket& bucket, const std::string& suffix);
  void reduce_compressed(const Bucket& bucket, int index, BufferId gradients);
  void reduce_codes(const Bucket& bucket, const std::string& suffix, int index, BufferId gradients,
                    const GradientCode& code);
  void compress_codes(const Bucket& bucket, const std::string& suffix, program::Compress shape, BufferId gradients,
                      BufferId packed);
  void emit_local_clip();
  // Whether ranks add up the momentum of the bucket each for itself.
  bool corrects_momentum(const Bucket& bucket) const {
    return context_.plan().corrects_momentum() && group_of(bucket) >= 0;
  }
  // low_rank.cpp. A matrix of a bucket's whose factors are sent: where these lie among the bucket's.
  struct Factors {
    std::string name;
    std::int64_t offset = 0, rows = 0, cols = 0, rank = 0, left = 0, right = 0;
  };
  struct LowRankBucket {
    std::vector<Factors> matrices;
    std::vector<program::FlatRange> rest;
    std::int64_t left = 0, right = 0;  // elements of all left and right factors
  };
  LowRankBucket low_rank_of(const Bucket& bucket) const;
  void make_right_factors(Bucket& bucket, const std::string& suffix);
  void reduce_low_rank(const Bucket& bucket, int index, BufferId gradients);
  // Ranks of a worker of local steps, each of which has a part of the bucket to make one with the other workers'.
  std::int64_t outer_parts(const Bucket& bucket) const {
    return context_.plan().steps_apart() && !bucket.frozen && group_of(bucket) >= 0 ? members_of(bucket) : 1;
  }
  void make_outer_state(Bucket& bucket, const std::string& suffix);
  BufferId emit_outer_reduce(const Bucket& bucket, int index);
  void emit_outer_update(const Bucket& bucket, int index, BufferId sum);
  void gather_outer(const Bucket& bucket, int index);
  void reduce_transient(Bucket& bucket, int index);
  void reduce_over_replicas(BufferId shard, int index);
  BufferId prepared_gradients(const Bucket& bucket, const std::string& suffix);
  BufferId copied_back(const Bucket& bucket, const std::string& suffix, BufferId summed);
  void make_gather_list(const Bucket& bucket, const std::string& suffix, BufferId shard);
  void gather_bucket(const Bucket& bucket, int index);
  void copy_out(const Bucket& bucket, int index, OpRef gather, BufferId from);
  void host_waits(const std::string& name);
  std::int64_t launches(double each, std::size_t parameters, std::int64_t ranks) const;
  void copy_gathered(const Bucket& bucket, int index, const std::string& what, BufferId from, BufferId to);
  void reduce_rest();
  void gather_updated();
  BufferId emit_coefficient();
  void emit_counted();
  void add_squares(BufferId sum, bool unlike);
  void emit_lamb(BufferId coefficient);
  void emit_optimizer(Bucket& bucket, int index, BufferId coefficient);
  Bucket& bucket_of(ParamId id) {
    return buckets_[static_cast<std::size_t>(params_[static_cast<std::size_t>(id)].bucket)];
  }

  const Context& context_;
  RoleBuilder& builder_;
  std::vector<Param> params_;
  std::vector<Bucket> buckets_;
  // By what makes matrices alike: rows and columns of a rank's part, which of two ways they are split, and what is
  // summed over the tensor group.
  std::map<std::array<std::int64_t, 6>, int> open_muon_;
  std::map<std::pair<BufferId, int>, BufferId> parts_;  // of a parameter's values, the k-th
  int chunk_ = -1;
  bool first_backward_ = false, last_backward_ = false;
  BufferId loss_scale_ = -1, counted_ = -1;
  std::vector<BufferId> losses_;
  BufferId local_clip_ = -1;  // what our gradients are multiplied by before they join our momentum
  OpRef host_step_;           // the last of the optimizer's ops on the host
  Fp8Scales fp8_scales_;
  bool first_forward_ = false;
};

}  // namespace rehearse::lower
