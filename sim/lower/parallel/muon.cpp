// Muon (training.optimizer: muon; program::Muon has the rule): the matrices of blocks have a bucket's momentum beside
// them, and a step an operation for each tensor, or three for queries, keys and values, which are packed in one. Gate
// and up-projection, and each expert's matrices, are matrices of their own. Of adapters (lora.h) A is a matrix, and B
// as many as the product's weight.
//
// With ZeRO 1 and 2 a shard has whole matrices: a bucket has matrices of one shape, as many for each rank (the last
// ones of a chunk are padded with zeros), whose owner alone makes them orthogonal; gradients are reduce-scattered and
// parameters gathered as of any bucket. So does Jordan's Muon for several ranks (github.com/KellerJordan/
// modded-nanogpt), which reduce-scatters as many matrices as there are ranks and gathers them updated. Matrices that a
// tensor group splits are gathered, as the sum of gradient and momentum in the precision's type, and every rank of the
// group makes the whole one orthogonal and keeps its part (Megatron-Core's --muon-tp-mode duplicated).
//
// With ZeRO-3 a shard is a piece of a layer. Of as many layers alike as there are ranks each rank gets one whole, the
// sums of gradient and momentum by an all-to-all from all that have shards of it, makes its matrices orthogonal, and
// sends everybody the pieces of the update by another (Microsoft's Muon for FSDP2, github.com/microsoft/dion, does so
// with matrices of one shape). Where layers are left that are fewer than ranks some get zeros, which take as long.
#include <algorithm>
#include <span>
#include <string>

#include "sim/base/check.h"
#include "sim/lower/parallel/parameters.h"

namespace rehearse::lower {

using program::Collective;
using program::CollectiveKind;
using program::MuonPart;
using program::StreamKind;

bool ParameterStore::by_muon(const Param& p) const {
  return context_.scenario.training.optimizer == plan::OptimizerKind::muon && p.spec.matrices > 0 && !frozen(p);
}

std::int64_t ParameterStore::muon_piece(const Param& p) const {
  return p.spec.packed_qkv ? p.elements : p.elements / p.spec.matrices;
}

int& ParameterStore::open_muon_bucket(const Param& p) {
  const bool by_columns = split_over_tensor(p) && p.spec.tensor_dim == static_cast<int>(p.local_shape.size()) - 1;
  const std::array<std::int64_t, 6> alike = {muon_piece(p),
                                             p.local_shape.back(),
                                             p.spec.packed_qkv ? 1 : 0,
                                             split_over_tensor(p) ? by_columns ? 2 : 1 : 0,
                                             p.spec.spread ? 1 : 0,
                                             p.spec.complete ? 1 : 0};
  return open_muon_.try_emplace(alike, -1).first->second;
}

void ParameterStore::make_muon_views(Param& p, const Bucket& bucket) {
  if (sharded(bucket)) return;
  p.momentum = builder_.view("momentum." + p.spec.name, bucket.exp_avg, p.offset, p.local_shape);
  if (context_.master)
    p.updated_master = builder_.view("updated_master." + p.spec.name, bucket.master, p.offset, p.local_shape);
}

// A part of the tensors' matrices, from their gradients or from `from`, what was gathered.
void ParameterStore::emit_muon_part(const MuonOperands& on, const std::string& what, program::Muon part, BufferId from,
                                    BufferId coefficient) {
  part.master = on.master >= 0;
  part.clip = from < 0 && coefficient >= 0;
  part.elements = on.elements;
  const std::string name = "optimizer." + on.name + what;
  const BufferId scratch = builder_.workspace(name + ".scratch", context_.compute, {part.scratch()});
  std::vector<Operand> reads{{from >= 0 ? from : on.gradient}}, writes{{on.value}};
  if (part.clip) reads.push_back({coefficient});
  reads.push_back({on.value});
  for (const BufferId state : {on.master, from >= 0 ? -1 : on.momentum}) {
    if (state < 0) continue;
    reads.push_back({state});
    writes.push_back({state});
  }
  writes.push_back({scratch});
  builder_.op(name, part, context_.compute, reads, writes);
}

void ParameterStore::emit_muon(const Bucket& b, int index, BufferId coefficient) {
  if (sharded(b) && context_.plan().zero == 3) return emit_muon_of_layers(index, coefficient);
  if (sharded(b)) {
    const Param& like = params_[static_cast<std::size_t>(b.params.front())];
    return emit_muon(like,
                     {"bucket" + std::to_string(index), b.gradient_shard, b.value_shard, b.master, b.exp_avg, b.shard,
                      b.shard / b.piece},
                     coefficient);
  }
  for (auto id = b.params.rbegin(); id != b.params.rend(); ++id) {
    const Param& p = params_[static_cast<std::size_t>(*id)];
    emit_muon(p,
              {p.spec.name, p.gradient, p.value, p.updated_master, p.momentum, p.elements,
               p.spec.packed_qkv ? 1 : p.spec.matrices},
              coefficient);
  }
}

void ParameterStore::emit_muon(const Param& like, const MuonOperands& on, BufferId coefficient) {
  const bool split = split_over_tensor(like);
  program::Muon all;
  all.matrices = on.matrices;
  all.parts = split ? context_.tensor : 1;
  all.by_columns = split && like.spec.tensor_dim == static_cast<int>(like.local_shape.size()) - 1;
  all.cols = like.local_shape.back() * (all.by_columns ? all.parts : 1);
  const std::int64_t row_parts = all.by_columns ? 1 : all.parts;
  BufferId gathered = -1;
  if (split) {
    all.part = MuonPart::update;
    program::Muon first;
    first.part = MuonPart::momentum, first.elements = on.elements, first.clip = coefficient >= 0;
    const std::string name = "optimizer." + on.name;
    const BufferId own = builder_.workspace(name + ".own", context_.compute, {on.elements});
    gathered = builder_.workspace(name + ".gathered", context_.compute, {on.elements * all.parts});
    std::vector<Operand> reads{{on.gradient}};
    if (first.clip) reads.push_back({coefficient});
    reads.push_back({on.momentum});
    builder_.op(name + ".momentum", first, context_.compute, reads, {{on.momentum}, {own}});
    builder_.op(name + ".all_gather",
                Collective{CollectiveKind::all_gather, context_.groups.tensor, on.elements * all.parts},
                context_.compute, {{own}}, {{gathered}}, StreamKind::tensor);
  }
  each_matrix(like, row_parts, all, [&](const std::string& what, const program::Muon& part) {
    emit_muon_part(on, what, part, gathered, coefficient);
  });
}

// `all`, of the matrices of a parameter, or of queries, keys and values, each by itself.
template <class Emit>
void ParameterStore::each_matrix(const Param& p, std::int64_t row_parts, program::Muon all, const Emit& emit) const {
  if (!p.spec.packed_qkv) {
    all.rows = p.elements / p.spec.matrices / p.local_shape.back() * row_parts;
    return emit("", all);
  }
  // A group's queries, its key, its value, for each key head.
  const std::int64_t groups = p.local_shape.front(), head = context_.model().head_dim;
  all.blocks = groups, all.apart = p.local_shape.at(1);
  for (const auto& [what, each] : {std::pair{".query", all.apart - 2 * head}, {".key", head}, {".value", head}}) {
    all.rows = groups * each * row_parts;
    emit(what, all);
    all.first += each;
  }
}

// Whether they are of the same tensors in the same places, shared by the same ranks.
bool ParameterStore::alike(const Bucket& a, const Bucket& b) const {
  if (a.muon != b.muon || group_of(a) != group_of(b) || a.shard != b.shard || a.params.size() != b.params.size())
    return false;
  for (std::size_t i = 0; i < a.params.size(); ++i) {
    const Param &p = params_[static_cast<std::size_t>(a.params[i])],
                &q = params_[static_cast<std::size_t>(b.params[i])];
    if (p.offset != q.offset || p.local_shape != q.local_shape || p.spec.tensor_dim != q.spec.tensor_dim ||
        p.spec.matrices != q.spec.matrices || p.spec.packed_qkv != q.spec.packed_qkv)
      return false;
  }
  return true;
}

void ParameterStore::emit_muon_of_layers(int index, BufferId coefficient) {
  const Bucket& like = buckets_[static_cast<std::size_t>(index)];
  std::vector<const Bucket*> layers;  // in forward order
  for (std::size_t i = buckets_.size(); i-- > 0;)
    if (alike(buckets_[i], like)) layers.push_back(&buckets_[i]);
  if (layers.front() != &like) return;  // updated with the first of them
  const auto ranks = static_cast<std::size_t>(members_of(like));
  for (std::size_t first = 0; first < layers.size(); first += ranks)
    emit_muon_of_layers({layers.data() + first, std::min(ranks, layers.size() - first)},
                        "optimizer.bucket" + std::to_string(index) + ".from" + std::to_string(first), coefficient);
}

// Of no more layers than there are ranks.
void ParameterStore::emit_muon_of_layers(std::span<const Bucket* const> layers, const std::string& name,
                                         BufferId coefficient) {
  const Bucket& like = *layers.front();
  const BufferId shards = builder_.workspace(name + ".shards", context_.compute, {like.padded});
  const BufferId whole = builder_.workspace(name + ".whole", context_.compute, {like.padded});
  program::Muon one;
  one.elements = like.shard, one.clip = coefficient >= 0, one.part = MuonPart::momentum;
  std::vector<BufferId> own;  // shards, of each layer
  for (const Bucket* layer : layers) {
    const std::string number = std::to_string(own.size());
    own.push_back(builder_.view(name + ".shard" + number, shards, static_cast<std::int64_t>(own.size()) * like.shard,
                                {like.shard}));
    std::vector<Operand> reads{{layer->gradient_shard}};
    if (one.clip) reads.push_back({coefficient});
    reads.push_back({layer->exp_avg});
    builder_.op(name + ".momentum" + number, one, context_.compute, reads, {{layer->exp_avg}, {own.back()}});
  }
  const std::int64_t taken = static_cast<std::int64_t>(layers.size()) * like.shard;
  if (taken < like.padded) {
    const BufferId none = builder_.view(name + ".no_layers", shards, taken, {like.padded - taken});
    builder_.op(name + ".no_layers", program::Elementwise{program::ElementwiseFn::fill, like.padded - taken},
                context_.compute, {}, {{none}});
  }
  const auto exchange = [&](const std::string& what, BufferId from, BufferId to) {
    builder_.op(name + what, Collective{CollectiveKind::all_to_all, group_of(like), like.padded}, context_.compute,
                {{from}}, {{to}}, StreamKind::data);
  };
  exchange(".to_owners", shards, whole);
  emit_muon_of_whole_layer(like, name, whole);
  exchange(".from_owners", whole, shards);
  one.part = MuonPart::apply;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    one.master = layers[i]->master >= 0;
    std::vector<Operand> writes{{layers[i]->value_shard}}, reads{{own[i]}};
    if (one.clip) reads.push_back({coefficient});
    if (one.master) writes.push_back({layers[i]->master});
    reads.insert(reads.end(), writes.begin(), writes.end());
    builder_.op(name + ".apply" + std::to_string(i), one, context_.compute, reads, writes);
  }
}

// In place: of a layer of which `like` is a bucket.
void ParameterStore::emit_muon_of_whole_layer(const Bucket& like, const std::string& name, BufferId whole) {
  BufferId from = whole;
  program::Muon all;
  all.part = MuonPart::orthogonal, all.elements = like.padded;
  for (const ParamId id : like.params) {
    const Param& p = params_[static_cast<std::size_t>(id)];
    const bool split = split_over_tensor(p);
    if (split && from == whole) {
      from = builder_.workspace(name + ".gathered", context_.compute, {all.elements * context_.tensor});
      builder_.op(name + ".all_gather",
                  Collective{CollectiveKind::all_gather, context_.groups.tensor, all.elements * context_.tensor},
                  context_.compute, {{whole}}, {{from}}, StreamKind::tensor);
    }
    REHEARSE_CHECK(split == (from != whole), "{}: all of a bucket are split over the tensor group or none",
                   p.spec.name);
    all.parts = split ? context_.tensor : 1;
    all.by_columns = split && p.spec.tensor_dim == static_cast<int>(p.local_shape.size()) - 1;
    all.cols = p.local_shape.back() * (all.by_columns ? all.parts : 1);
    all.matrices = p.spec.packed_qkv ? 1 : p.spec.matrices, all.offset = p.offset;
    each_matrix(p, all.by_columns ? 1 : all.parts, all, [&](const std::string& what, const program::Muon& part) {
      const std::string op = "optimizer." + p.spec.name + what;
      const BufferId scratch = builder_.workspace(op + ".scratch", context_.compute, {part.scratch()});
      builder_.op(op, part, context_.compute, {{from}}, {{whole}, {scratch}});
    });
  }
}

}  // namespace rehearse::lower
