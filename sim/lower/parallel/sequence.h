// Sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198): between tensor-parallel layers, where every rank of
// the tensor group would hold the same rows, each holds its shard of the sequence. All-gather before a column-parallel
// layer, reduce-scatter behind a row-parallel one, in place of the all-reduce of both.
//
// With plan.async_tensor_parallel a product goes on with a part of the rows while another part is on its way:
// Transformer Engine's userbuffers (transformer_engine/common/comm_gemm_overlap, CommOverlapP2PBase::split_overlap_ag
// and split_overlap_rs, 2.x) and PyTorch's symmetric memory (torch/distributed/_symmetric_memory/__init__.py,
// _pipelined_multi_all_gather_and_consume and _pipelined_produce_and_all2all, 2.5 on). Gathered, shards go around the
// group, and a product of each begins when it is there, the rank's own first. Scattered, each rank's rows are a product
// of their own, the rank's own last; a part is sent when it is made, and one kernel adds up what came.
#pragma once

#include <map>
#include <set>
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
  // Whether products go beside their collectives.
  bool in_turns() const { return on() && context_.plan().async_tensor_parallel; }
  // [local_tokens, width] -> [tokens, width]: the shards put together. `name` names the buffer and the op.
  BufferId all_gather(const std::string& name, BufferId shard, std::int64_t width, Lifetime lifetime = Lifetime::slot);
  // The same of elements of `type`, to a buffer of `shape`.
  BufferId all_gather(const std::string& name, BufferId shard, DType type, const std::vector<std::int64_t>& shape,
                      Lifetime lifetime = Lifetime::slot);
  // The same, shard after shard around the group, to be read by turns (arrives_in_turns).
  BufferId all_gather_in_turns(const std::string& name, BufferId shard, DType type,
                               const std::vector<std::int64_t>& shape, Lifetime lifetime);
  bool arrives_in_turns(BufferId whole) const { return arrives_.contains(whole); }
  // Sum of partial [tokens, width] over the tensor group -> our shard [local_tokens, width],
  // the buffer `shard` if that is not -1. Made by turns, it is sent so.
  BufferId reduce_scatter(const std::string& name, BufferId partial, std::int64_t width, BufferId shard = -1);
  // `partial` is about to be made by turns, our own part last.
  void make_in_turns(BufferId partial) { made_.insert(partial); }
  bool is_made_in_turns(BufferId partial) const { return made_.contains(partial); }
  // The parts of a buffer of all tokens by turn, our own first.
  const std::vector<BufferId>& turns(BufferId whole);

 private:
  BufferId sum_of_turns(const std::string& name, BufferId partial, std::int64_t width, BufferId shard);
  // Between the order of tokens and that of ranks (FrameworkProfile::copies_sequence_shards).
  void copy(const std::string& name, BufferId from, BufferId to);

  const Context& context_;
  RoleBuilder& builder_;
  std::map<BufferId, std::vector<BufferId>> turns_;
  std::set<BufferId> arrives_, made_;
};

}  // namespace rehearse::lower
