// Expert parallelism (Lepikhin et al. 2020, arXiv 2006.16668; Megatron-Core's all-to-all token dispatcher,
// megatron/core/transformer/moe/token_dispatcher.py): the ranks of an expert group hold different experts, and trade
// rows of their tokens so that each has all rows of its own experts; the same way back after. With tensor and sequence
// parallelism every rank of a tensor group brings rows of its own tokens. If it holds a part of each of its experts,
// these are gathered over the tensor group after the trade, and partial results reduce-scattered before the way back;
// if it has experts of its own (plan.expert_tensor 1), the ranks of the tensor group are among those that trade.
#pragma once

#include <string>

#include "sim/lower/stage.h"

namespace rehearse::lower {

class ExpertExchange {
 public:
  ExpertExchange(const Context& context, RoleBuilder& builder) : context_(context), builder_(builder) {}

  // Ranks whose rows come together.
  std::int64_t sources() const { return context_.plan().expert * gathered(); }
  // Rows [experts, capacity, hidden] of this rank's tokens -> [own experts, sources * capacity, hidden]; `from` itself
  // with one source.
  BufferId to_experts(const std::string& name, BufferId from, std::int64_t capacity, Lifetime lifetime);
  // The way back; with tensor and sequence parallelism `from` is one of the tensor group's terms of a sum.
  BufferId to_tokens(const std::string& name, BufferId from, std::int64_t capacity, Lifetime lifetime);

 private:
  std::int64_t gathered() const { return context_.sequence_parallel ? context_.expert_tensor : 1; }
  std::int64_t own_experts() const { return context_.model().experts / context_.plan().expert; }
  BufferId buffer(const std::string& name, std::int64_t rows, Lifetime lifetime);
  BufferId trade(const std::string& name, BufferId from, Lifetime lifetime);
  BufferId sort(const std::string& name, BufferId from, std::int64_t capacity, bool by_expert, Lifetime lifetime);

  const Context& context_;
  RoleBuilder& builder_;
};

}  // namespace rehearse::lower
