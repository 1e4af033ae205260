// Layout of a stage's parameters in buckets, and the gradients' way from backward ops into them. What happens to the
// buckets between ranks is in data.cpp and zero.cpp, between steps in optimizer.cpp.
#include "sim/lower/parallel/parameters.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <type_traits>

#include "sim/base/check.h"
#include "sim/base/moment_codes.h"

namespace rehearse::lower {

using program::Buffer;
using program::BufferClass;
using program::Elementwise;
using program::ElementwiseFn;

namespace {

std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

ParamId ParameterStore::add(int unit, ParamSpec spec) {
  Param p;
  p.local_shape = spec.global_shape;
  const auto split = [&](int dimension, std::int64_t ranks) {
    auto& n = p.local_shape[static_cast<std::size_t>(dimension)];
    REHEARSE_CHECK(n % ranks == 0, "{}: {} does not split over {} ranks", spec.name, n, ranks);
    n /= ranks;
  };
  if (spec.key_ranks > 0) split(0, context_.tensor / spec.key_ranks);
  if (spec.tensor_dim >= 0) split(spec.tensor_dim, spec.key_ranks > 0 ? spec.key_ranks : context_.tensor);
  spec.experts = spec.spread;
  spec.spread = spec.spread && context_.groups.expert >= 0;
  if (spec.spread) p.local_shape.front() /= context_.plan().expert;
  p.elements = product(p.local_shape);
  p.unit = unit;
  p.chunk = chunk_;
  p.spec = std::move(spec);
  params_.push_back(std::move(p));
  return static_cast<ParamId>(params_.size()) - 1;
}

std::int64_t ParameterStore::rows(ParamId id) const {
  return params_[static_cast<std::size_t>(id)].local_shape.front();
}

// DistributedDataParallel has buckets of all gradients, in the type that backward makes them, from the first step on
// (pytorch torch/csrc/distributed/c10d/reducer.cpp, initialize_buckets).
void ParameterStore::keep_copies_of_buckets() {
  std::int64_t elements = 0;
  for (const Bucket& b : buckets_)
    if (!b.frozen && group_of(b) >= 0) elements += b.padded;
  if (elements == 0) return;
  const DType type = context_.profile().autocast ? context_.gradient : context_.compute;
  builder_.add_buffer(
      {"buckets.copies", type, {elements}, BufferClass::communication, Lifetime::persistent, -1, 0, 0, {}, {}});
}

void ParameterStore::layout() {
  if (context_.scales_loss())
    loss_scale_ = builder_.add_buffer({"loss_scale",
                                       DType::f32,
                                       {2},
                                       BufferClass::optimizer,
                                       Lifetime::persistent,
                                       -1,
                                       0,
                                       0,
                                       {},
                                       {program::Init::Kind::first, context_.scenario.training.loss_scale, {}, -1}});
  if (context_.counts_targets()) counted_ = builder_.workspace("loss.counted", DType::f32, {2}, Lifetime::step);
  // Of each weight of an 8-bit product: itself, the product's input, the gradient of its output.
  fp8_scales_.declare(3 *
                      std::count_if(params_.begin(), params_.end(), [](const Param& p) { return p.spec.eight_bits; }));
  form_buckets();
  for (std::size_t i = 0; i < buckets_.size(); ++i) make_buffers(buckets_[i], static_cast<int>(i));
  if (context_.profile().copies_buckets) keep_copies_of_buckets();
  const bool adafactor = context_.scenario.training.optimizer == plan::OptimizerKind::adafactor;
  for (std::size_t i = 0; i < buckets_.size() && adafactor && !adafactor_of_whole_tensors(); ++i)
    if (!buckets_[i].frozen) make_factors(buckets_[i], ".bucket" + std::to_string(i));
  for (Param& p : params_) {
    const Bucket& bucket = buckets_[static_cast<std::size_t>(p.bucket)];
    const Buffer& flat = builder_.buffer(bucket.values);
    const BufferId whole = flat.is_view() ? flat.base : bucket.values;
    p.value = builder_.add_buffer(
        {p.spec.name, flat.dtype, p.local_shape, flat.cls, flat.lifetime, whole, p.offset, 0, {}, initial_of(p)});
    if (bucket.frozen) continue;
    p.gradient = builder_.view("grad." + p.spec.name, bucket.gradients, p.offset, p.local_shape);
    if (adafactor && adafactor_of_whole_tensors()) make_factors(p, bucket);
    if (bucket.muon) make_muon_views(p, bucket);
    if (context_.profile().autocast && context_.master)
      p.master = builder_.view("master." + p.spec.name, bucket.master, p.offset, p.local_shape);
  }
}

program::Init ParameterStore::initial_of(const Param& p) const {
  const ParamSpec& spec = p.spec;
  return {spec.init,
          spec.scale,
          spec.whole_shape.empty() ? spec.global_shape : spec.whole_shape,
          spec.tensor_dim,
          expert_axes(p),
          spec.whole,
          spec.whole_first,
          static_cast<int>(spec.key_ranks)};
}

// Elements from which on a bucket of a chunk is full.
std::int64_t ParameterStore::bucket_limit(int chunk) const {
  const plan::Plan& plan = context_.plan();
  const plan::FrameworkProfile& profile = context_.profile();
  // Both stages that have a copy of the same parameters cut them alike.
  const int stage = builder_.pipeline(), copies = static_cast<int>(context_.groups.copies.size());
  const bool first = (copies > 0 ? std::min(stage, copies - 1 - stage) : stage) == 0 && chunk == 0;
  if (profile.buckets_first_chunk && plan.zero < 2 && (!plan.overlap_grad_reduce || !first))
    return std::numeric_limits<std::int64_t>::max();
  if (!plan.bucket_given && profile.bucket_elements > 0) return profile.bucket_elements;
  Bytes bytes = plan.bucket;
  if (!plan.bucket_given) bytes = std::max(bytes, profile.bucket_per_replica * (plan.data * plan.context));
  return bytes.count() / program::size_of(context_.gradient);
}

// Of the whole tensor, so that plans do not differ in it. Tables keep fp32 as bitsandbytes recommends it (its
// StableEmbedding; Hugging Face Transformers' Trainer has it so for every torch.nn.Embedding).
DType ParameterStore::moments_of(const Param& p) const {
  if (context_.moments != DType::u8) return context_.moments;
  const bool wide = p.spec.table || p.spec.tied || product(p.spec.global_shape) < kLeast8BitMoments;
  return wide || frozen(p) ? DType::f32 : DType::u8;
}

// Walks the parameters in backward order and fills one open bucket a kind (sharded or replicated over the tensor
// group, or experts that are spread over ranks; each in 16 bits or held in 8, or frozen; with moments in 8 bits or
// not; updated by Muon or not; of this rank alone or not; with gradients in parts, over the group or over the ranks
// that have a key-value head in common, or not; adapters of spread experts that the tensor group has whole or not, and
// adapters and experts' biases with whole gradients or not).
void ParameterStore::form_buckets() {
  std::array<int, 864> open{};
  open.fill(-1);
  for (auto id = static_cast<ParamId>(params_.size()) - 1; id >= 0; --id) {
    Param& p = params_[static_cast<std::size_t>(id)];
    const bool spread_over_tensor = p.spec.spread && context_.plan().whole_experts();
    const bool replicated = context_.tensor > 1 && p.spec.tensor_dim < 0 && !spread_over_tensor;
    const std::int64_t key_ranks = replicated && p.spec.key_ranks < context_.tensor ? p.spec.key_ranks : 0;
    const Held kind = held(p);
    const bool codes = moments_of(p) == DType::u8;
    const bool whole_matrices = by_muon(p) && context_.plan().zero > 0 && context_.plan().zero < 3;
    int& usual = open[(p.spec.spread ? 2U
                       : replicated  ? 1U
                                     : 0U) +
                      (frozen(p)            ? 6U
                       : kind != Held::none ? 3U
                                            : 0U) +
                      (codes ? 9U : 0U) + (by_muon(p) ? 18U : 0U) + (p.spec.owned ? 36U : 0U) +
                      (p.spec.partial ? key_ranks > 0 ? 144U : 72U : 0U) + (p.spec.spread && replicated ? 216U : 0U) +
                      (p.spec.complete ? 432U : 0U)];
    int& current = whole_matrices ? open_muon_bucket(p) : usual;
    const bool by_unit = reduces_by_unit();
    const std::int64_t alone = context_.plan().zero == 3 ? context_.profile().shard_alone : 0;
    const bool large = alone > 0 && p.elements >= alone;
    const auto full = [&] {
      const Bucket& b = buckets_[static_cast<std::size_t>(current)];
      return b.chunk != p.chunk || p.spec.tied || b.tied ||
             (by_unit ? b.unit != p.unit : b.elements >= bucket_limit(p.chunk) && shares_evenly(b));
    };
    const bool begins = large || current < 0 || full();
    const int chosen = begins ? static_cast<int>(buckets_.size()) : current;
    if (!large) current = chosen;
    if (begins) {
      Bucket bucket;
      bucket.kept_whole = alone > 0 && !large;
      bucket.unit = p.unit;
      bucket.chunk = p.chunk;
      bucket.replicated = replicated;
      bucket.tied = p.spec.tied;
      bucket.copy = p.spec.copy;
      if (p.spec.tied) bucket.held_by = p.spec.held_by >= 0 ? p.spec.held_by : context_.groups.embedding;
      if (const auto& copies = context_.groups.copies; !copies.empty()) {
        const auto stage = static_cast<std::size_t>(builder_.pipeline());
        bucket.copies = copies[stage];
        bucket.copy = stage >= copies.size() / 2;
      }
      bucket.experts = p.spec.spread;
      bucket.owned = p.spec.owned;
      bucket.partial = p.spec.partial;
      bucket.complete = p.spec.complete;
      bucket.key_ranks = key_ranks;
      bucket.held = kind;
      bucket.frozen = frozen(p);
      bucket.moments = moments_of(p);
      bucket.muon = by_muon(p);
      if (whole_matrices) bucket.piece = muon_piece(p);
      buckets_.push_back(std::move(bucket));
    }
    Bucket& bucket = buckets_[static_cast<std::size_t>(chosen)];
    p.bucket = chosen;
    if (codes) bucket.elements = round_up(bucket.elements, kMomentBlock);
    p.offset = bucket.elements;
    bucket.elements += p.elements;
    bucket.params.push_back(id);
  }
}

// Under autocast a frozen parameter has no fp32 copy to cast from: it is held as it is read.
void ParameterStore::cast_weight(ParamId id) {
  const Param& p = params_[static_cast<std::size_t>(id)];
  if (p.master >= 0 && held(p) == Held::none)
    builder_.op(p.spec.name + ".cast", Elementwise{ElementwiseFn::cast, p.elements}, context_.compute, {{p.master}},
                {{p.value}});
}

BufferId ParameterStore::part_of(BufferId whole, int part, int parts) {
  const Buffer& b = builder_.buffer(whole);
  const std::int64_t elements = b.elements() / parts;
  REHEARSE_CHECK(elements * parts == b.elements(), "{} does not split in {}", b.name, parts);
  const BufferId base = b.is_view() ? b.base : whole;
  const std::int64_t offset = (b.is_view() ? b.offset : 0) + part * elements;
  const auto [made, is_new] = parts_.try_emplace({whole, part}, -1);
  if (is_new) made->second = builder_.view(b.name + ".part" + std::to_string(part), base, offset, {elements});
  return made->second;
}

BufferId ParameterStore::cast_part(ParamId id, int part, int parts) {
  const Param& p = params_[static_cast<std::size_t>(id)];
  const BufferId value = part_of(p.value, part, parts);
  if (p.master < 0) return value;
  builder_.op(builder_.buffer(value).name + ".cast", Elementwise{ElementwiseFn::cast, p.elements / parts},
              context_.compute, {{part_of(p.master, part, parts)}}, {{value}});
  return value;
}

void ParameterStore::begin_backward(int chunk, bool first, bool last) {
  first_backward_ = first;
  last_backward_ = last;
  for (Param& p : params_) {
    if (p.chunk != chunk) continue;
    p.written = p.scattered = false;
    p.pending_uses = p.uses;
  }
  for (Bucket& b : buckets_) {
    if (b.chunk != chunk) continue;
    b.pending = static_cast<int>(b.params.size());
    b.reduced = b.copied_out = false;
  }
}

BufferId ParameterStore::accumulated_gradient(ParamId id) {
  Param& p = params_[static_cast<std::size_t>(id)];
  REHEARSE_CHECK(!frozen(p), "{} is frozen: it has no gradient", p.spec.name);
  // Once a backward: autograd sums what comes back for a table's rows before it scatters them.
  const bool first = gives_first_gradient(p), scatters = takes_first_gradient() && p.spec.table && !p.scattered;
  p.scattered = scatters || p.scattered;
  BufferId to = p.gradient;
  if (!first && scatters) {
    const program::Buffer& whole = builder_.buffer(p.gradient);
    to = p.apart = builder_.workspace(builder_.here(p.spec.name + ".fresh_grad"), whole.dtype, p.local_shape);
  }
  if (first || scatters) {
    const Elementwise fill{ElementwiseFn::fill, p.elements};
    builder_.op(p.spec.name + ".zero_grad", fill, builder_.buffer(to).dtype, {}, {{to}});
    if (takes_first_gradient() && !scatters) builder_.takes_no_kernel({});  // what gives it writes, and does not add
  }
  p.written = true;
  return to;
}

void ParameterStore::weight_gradient(ParamId id, const std::string& name, program::Gemm gemm, BufferId a, BufferId b,
                                     ParamId bias) {
  Param& weight = params_[static_cast<std::size_t>(id)];
  if (frozen(weight)) return;
  if (bias < 0) return add_weight_gradient(weight, name, gemm, {{a}, {b}});
  gemm.epilogue = program::Epilogue::bias_gradient;
  add_weight_gradient(weight, name, gemm, {{a}, {b}}, accumulated_gradient(bias));
}

void ParameterStore::weight_gradient(ParamId id, const std::string& name, program::GroupedGemm gemm, BufferId a,
                                     BufferId b, BufferId loads) {
  std::vector<Operand> reads{{a}, {b}};
  if (gemm.counted) reads.push_back({loads});
  add_weight_gradient(params_[static_cast<std::size_t>(id)], name, gemm, std::move(reads));
}

template <class Product>
void ParameterStore::add_weight_gradient(Param& p, const std::string& name, Product gemm, std::vector<Operand> reads,
                                         BufferId bias_gradient) {
  const auto emit = [&](BufferId to) {
    std::vector<Operand> writes{{to}};
    if (bias_gradient >= 0) {
      reads.push_back({bias_gradient});
      writes.push_back({bias_gradient});
    }
    const DType type = builder_.buffer(reads.front().buffer).dtype;
    if (is_narrow(type)) fp8_scales_.of_product(reads);
    builder_.op(name, gemm, is_narrow(type) ? type : context_.compute, reads, writes);
    if constexpr (std::is_same_v<Product, program::GroupedGemm>) {
      if (context_.launches_each_expert(is_narrow(type))) builder_.takes_launches_each(gemm.groups);
    }
  };
  const bool first = gives_first_gradient(p), fused = context_.plan().fused_weight_gradient;
  // The derivative of the weight's cast.
  const bool widens = context_.profile().autocast && builder_.buffer(p.gradient).dtype != context_.compute && !fused;
  if (first && !widens) {
    emit(p.gradient);
  } else if (fused) {
    gemm.accumulate = true;
    reads.push_back({p.gradient});
    emit(p.gradient);
  } else {
    // Of a weight that several products of a body have, one each.
    const std::string fresh_name = (p.uses > 1 ? name : p.spec.name) + ".fresh_grad";
    const BufferId fresh = builder_.workspace(builder_.here(fresh_name), context_.compute, p.local_shape);
    emit(fresh);
    BufferId added = fresh;
    if (widens) {
      added = first ? p.gradient
                    : builder_.workspace(builder_.here(fresh_name + ".wide"), context_.gradient, p.local_shape);
      builder_.op(name + ".widen", Elementwise{ElementwiseFn::cast, p.elements}, context_.gradient, {{fresh}},
                  {{added}});
    }
    if (!first)
      builder_.op(name + ".accumulate", Elementwise{ElementwiseFn::accumulate, p.elements}, context_.gradient,
                  {{added}, {p.gradient}}, {{p.gradient}});
  }
  p.written = true;
}

void ParameterStore::gradient_done(ParamId id) {
  if (!trains(id)) return;
  Param& p = params_[static_cast<std::size_t>(id)];
  if (p.apart >= 0) {
    builder_.op(p.spec.name + ".accumulate", Elementwise{ElementwiseFn::accumulate, p.elements},
                builder_.buffer(p.gradient).dtype, {{p.apart}, {p.gradient}}, {{p.gradient}});
    p.apart = -1;
  }
  if (--p.pending_uses > 0) return;
  Bucket& bucket = bucket_of(id);
  const int index = p.bucket;
  if (--bucket.pending > 0) return;
  if (transient_gradients(bucket)) {
    reduce_transient(bucket, index);
  } else if (group_of(bucket) < 0) {
    if (steps_on_host(bucket) && last_backward_ && !deferred(bucket)) copy_gradients_out(bucket, index);
  } else if (last_backward_ && context_.plan().overlap_grad_reduce && !deferred(bucket)) {
    builder_.weight_part([&] { reduce(bucket, index); });  // which runs after the part that gives the others' gradients
  }
}

}  // namespace rehearse::lower
