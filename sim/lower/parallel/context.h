// Context parallelism: a sequence's tokens are spread over a group of ranks (sim/plan/context_rows.h), and attention,
// the one place where tokens meet, exchanges what it needs. all_to_all (Ulysses, Jacobs et al. 2023, arXiv 2309.14509):
// the ranks trade their tokens' heads, so that each has all tokens of some heads, and trade back after. all_gather
// (Dubey et al. 2024, arXiv 2407.21783): keys and values of all tokens are gathered, in backward again, and their
// gradients reduce-scattered. ring (Liu et al. 2023, arXiv 2310.01889): keys and values go around the group, each rank
// taking those that come to its attention while they go on to the next; in backward their gradients follow them around
// and one step further, home.
#pragma once

#include <string>

#include "sim/lower/stage.h"

namespace rehearse::lower {

class HeadExchange {
 public:
  HeadExchange(const Context& context, RoleBuilder& builder) : context_(context), builder_(builder) {}

  bool on() const { return context_.all_to_all(); }
  // This rank's tokens of all heads [tokens, width] -> all tokens of this rank's heads [batch * seq, width / context],
  // into `whole`.
  void to_heads(const std::string& name, BufferId tokens, BufferId whole, std::int64_t width);
  // The way back, into `tokens`.
  void to_tokens(const std::string& name, BufferId whole, BufferId tokens, std::int64_t width);

 private:
  BufferId parts(const std::string& name, std::int64_t width);
  void exchange(const std::string& name, BufferId from, BufferId to, std::int64_t width);

  const Context& context_;
  RoleBuilder& builder_;
};

// Attention of a rank's queries to keys and values that are spread over the group: ring and all_gather.
class KeyExchange {
 public:
  // `part`: a flash part of this rank's tokens, with its heads; ops are named after `name`.
  KeyExchange(const Context& context, RoleBuilder& builder, std::string name, const program::Attention& part)
      : context_(context), builder_(builder), name_(std::move(name)), part_(part) {}

  // {qkv} -> {out, logsumexp}.
  void forward(BufferId qkv, BufferId out, BufferId logsumexp);
  // Returns the gradient of qkv.
  BufferId backward(BufferId out_gradient, BufferId qkv, BufferId out, BufferId logsumexp);

 private:
  std::int64_t ranks() const { return context_.plan().context; }
  std::int64_t key_width() const { return part_.kv_heads * key_and_value(); }
  std::int64_t key_and_value() const { return part_.head_dim + part_.values(); }  // of one head
  std::int64_t query_width() const { return part_.heads * part_.head_dim; }
  bool ring() const { return context_.plan().context_kind == plan::ContextKind::ring; }
  program::Attention attention(program::AttentionPart which, int step) const;
  BufferId keys_of(const std::string& name, std::int64_t ranks);
  // Between packed qkv and its queries, or keys and values, apart.
  void copy_queries(const std::string& name, BufferId from, BufferId to);
  void copy_keys(const std::string& name, BufferId from, BufferId to, bool packed);
  BufferId own_keys(const std::string& name, BufferId qkv);
  void adds_in_fp32(bool backward);
  BufferId gathered_keys(const std::string& name, BufferId qkv);
  OpRef pass_on(const std::string& name, BufferId sent, BufferId received);
  void attend(BufferId qkv, BufferId keys, BufferId out, BufferId logsumexp, int step);
  void attend_backward(const std::vector<BufferId>& reads, BufferId d_query, BufferId d_keys, int step);
  BufferId ring_backward(const std::vector<BufferId>& reads, BufferId qkv, BufferId d_query);

  const Context& context_;
  RoleBuilder& builder_;
  std::string name_;
  program::Attention part_;
};

}  // namespace rehearse::lower
