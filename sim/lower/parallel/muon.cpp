// Muon (training.optimizer: muon; program::Muon has the rule): the matrices of blocks have a bucket's momentum beside
// them, and a step an operation for each tensor, or three for queries, keys and values, which are packed in one. Gate
// and up-projection, and each expert's matrices, are matrices of their own. Whole tensors: no shards.
#include <string>

#include "sim/base/check.h"
#include "sim/lower/parallel/parameters.h"

namespace rehearse::lower {

bool ParameterStore::by_muon(const Param& p) const {
  return context_.scenario.training.optimizer == plan::OptimizerKind::muon && p.spec.matrices > 0;
}

void ParameterStore::make_muon_views(Param& p, const Bucket& bucket) {
  p.momentum = builder_.view("momentum." + p.spec.name, bucket.exp_avg, p.offset, p.local_shape);
  if (context_.master)
    p.updated_master = builder_.view("updated_master." + p.spec.name, bucket.master, p.offset, p.local_shape);
}

void ParameterStore::emit_muon_part(const Param& p, const std::string& what, program::Muon part, BufferId coefficient) {
  part.master = p.updated_master >= 0;
  part.clip = coefficient >= 0;
  part.elements = p.elements;
  part.cols = p.local_shape.back();
  const std::string name = "optimizer." + p.spec.name + what;
  const BufferId scratch = builder_.workspace(name + ".scratch", context_.compute, {part.scratch()});
  std::vector<Operand> reads{{p.gradient}}, writes{{p.value}};
  if (part.clip) reads.push_back({coefficient});
  reads.push_back({p.value});
  for (const BufferId state : {p.updated_master, p.momentum}) {
    if (state < 0) continue;
    reads.push_back({state});
    writes.push_back({state});
  }
  writes.push_back({scratch});
  builder_.op(name, part, context_.compute, reads, writes);
}

void ParameterStore::emit_muon(const Param& p, BufferId coefficient) {
  REHEARSE_CHECK(context_.plan().zero == 0 && context_.tensor == 1, "{}: Muon updates whole matrices", p.spec.name);
  const std::int64_t rows = p.elements / p.local_shape.back();
  program::Muon all;
  all.matrices = p.spec.matrices;
  all.rows = rows / p.spec.matrices;
  if (!p.spec.packed_qkv) return emit_muon_part(p, "", all, coefficient);
  // A group's queries, its key, its value, for each key head.
  const std::int64_t groups = p.local_shape.front(), apart = p.local_shape.at(1), head = context_.model().head_dim;
  std::int64_t first = 0;
  for (const auto& [what, each] : {std::pair{".query", apart - 2 * head}, {".key", head}, {".value", head}}) {
    program::Muon part;
    part.rows = groups * each, part.blocks = groups, part.apart = apart, part.first = first;
    emit_muon_part(p, what, part, coefficient);
    first += each;
  }
}

}  // namespace rehearse::lower
