// Sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198): between tensor-parallel layers, where every rank of
// the tensor group would hold the same rows, each holds its shard of the sequence. All-gather before a column-parallel
// layer, reduce-scatter behind a row-parallel one, in place of the all-reduce of both.
#pragma once

#include <string>

#include "sim/lower/stage.h"

namespace rehearse::lower {

class SequenceParallel {
 public:
  SequenceParallel(const Context& context, RoleBuilder& builder) : context_(context), builder_(builder) {}

  bool on() const { return context_.sequence_parallel; }
  // [local_tokens, width] -> [tokens, width]: the shards put together. `name` names the buffer and the op.
  BufferId all_gather(const std::string& name, BufferId shard, std::int64_t width);
  // Sum of partial [tokens, width] over the tensor group -> our shard [local_tokens, width].
  BufferId reduce_scatter(const std::string& name, BufferId partial, std::int64_t width);

 private:
  const Context& context_;
  RoleBuilder& builder_;
};

}  // namespace rehearse::lower
