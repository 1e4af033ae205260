// Sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198): between tensor-parallel layers, where every rank of
// the tensor group would hold the same rows, each holds its shard of the sequence. All-gather before a column-parallel
// layer, reduce-scatter behind a row-parallel one, in place of the all-reduce of both.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/lower/stage.h"

namespace rehearse::lower {

// Inputs that were gathered for a product of forward, which the weight's gradient may read again
// (FrameworkProfile::keeps_gathered_input).
class GatheredInputs {
 public:
  // Of shard `of`, in `body`; gives `whole`.
  BufferId made(BufferId of, BufferId whole, BodyId body) {
    made_[of] = {whole, body};
    return whole;
  }
  // What was gathered in this body, by a recomputation, or lives from forward on (`saved`); -1: is gone.
  BufferId kept(BufferId of, BodyId body, Lifetime saved) const {
    const auto found = made_.find(of);
    if (found == made_.end()) return -1;
    return found->second.body == body || saved == Lifetime::micro_batch ? found->second.whole : -1;
  }

 private:
  struct Made {
    BufferId whole = -1;
    BodyId body = -1;
  };
  std::map<BufferId, Made> made_;
};

class SequenceParallel {
 public:
  SequenceParallel(const Context& context, RoleBuilder& builder) : context_(context), builder_(builder) {}

  bool on() const { return context_.sequence_parallel; }
  // [local_tokens, width] -> [tokens, width]: the shards put together. `name` names the buffer and the op.
  BufferId all_gather(const std::string& name, BufferId shard, std::int64_t width, Lifetime lifetime = Lifetime::slot);
  // The same of elements of `type`, to a buffer of `shape`.
  BufferId all_gather(const std::string& name, BufferId shard, DType type, const std::vector<std::int64_t>& shape,
                      Lifetime lifetime = Lifetime::slot);
  // Sum of partial [tokens, width] over the tensor group -> our shard [local_tokens, width],
  // the buffer `shard` if that is not -1.
  BufferId reduce_scatter(const std::string& name, BufferId partial, std::int64_t width, BufferId shard = -1);

 private:
  // Between the order of tokens and that of ranks (FrameworkProfile::copies_sequence_shards).
  void copy(const std::string& name, BufferId from, BufferId to);

  const Context& context_;
  RoleBuilder& builder_;
};

}  // namespace rehearse::lower
