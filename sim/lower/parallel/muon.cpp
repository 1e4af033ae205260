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
  if (!like.spec.packed_qkv) {
    all.rows = on.elements / on.matrices / like.local_shape.back() * row_parts;
    return emit_muon_part(on, "", all, gathered, coefficient);
  }
  // A group's queries, its key, its value, for each key head.
  const std::int64_t groups = like.local_shape.front(), head = context_.model().head_dim;
  all.blocks = groups, all.apart = like.local_shape.at(1);
  for (const auto& [what, each] : {std::pair{".query", all.apart - 2 * head}, {".key", head}, {".value", head}}) {
    all.rows = groups * each * row_parts;
    emit_muon_part(on, what, all, gathered, coefficient);
    all.first += each;
  }
}

}  // namespace rehearse::lower
