// Expert parallelism (Lepikhin et al. 2020, arXiv 2006.16668; Megatron-Core's all-to-all token dispatcher,
// megatron/core/transformer/moe/token_dispatcher.py): the ranks of an expert group hold different experts, and trade
// rows of their tokens so that each has all rows of its own experts; the same way back after. With tensor and sequence
// parallelism every rank of a tensor group brings rows of its own tokens. If it holds a part of each of its experts,
// these are gathered over the tensor group after the trade, and partial results reduce-scattered before the way back;
// if it has experts of its own (plan.expert_tensor 1), the ranks of the tensor group are among those that trade.
//
// Without a capacity the ranks first gather how often each one's tokens chose each expert, and the host waits for that,
// as it cannot say before how much is sent. What a rank then gets is what the scenario says of the experts' loads.
#pragma once

#include <functional>
#include <string>

#include "sim/lower/stage.h"

namespace rehearse::lower {

class ExpertExchange {
 public:
  // `name`: of the layer's experts.
  ExpertExchange(const Context& context, RoleBuilder& builder, std::string name, std::int64_t layer)
      : context_(context), builder_(builder), name_(std::move(name)), layer_(layer) {}

  std::int64_t layer() const { return layer_; }
  // Whether every rank gets all rows of those that hold the layer's experts together (plan.expert_dispatch all_gather;
  // Megatron-Core's MoEAllGatherTokenDispatcher), over the expert group and then over the tensor group.
  bool gathers_all() const { return context_.plan().expert_dispatch == plan::ExpertDispatch::all_gather; }
  // [rows, width] of this rank's tokens -> those of all of them, rank by rank.
  BufferId gather_all(const std::string& name, BufferId own, std::int64_t width, Lifetime lifetime = Lifetime::slot);
  // The sums of all ranks' [all rows, width] -> of this rank's tokens.
  BufferId scatter_sums(const std::string& name, BufferId all, std::int64_t width, Lifetime lifetime = Lifetime::slot);
  // With these: of all tokens' choices `chosen` the places of own experts' rows, in the same form. The host waits for
  // their number.
  BufferId place_own(BufferId chosen);

  // Ranks whose rows come together.
  std::int64_t sources() const { return context_.plan().expert * gathered(); }
  // Without a capacity: rows that come together, at least one, so that what is empty has a place too. Where the plan is
  // performed, which only then knows their number, as many as there is room for.
  std::int64_t arrived() const { return traded() * gathered(); }
  // Rows of buffers: what comes, or what model.buffer_factor gives room for.
  std::int64_t room() const { return traded_room() * gathered(); }
  // Those that products of experts are expected to have.
  std::int64_t expected() const;
  // A buffer of `room` rows of this width as its first `rows`: itself, or a view. An activation where backward reads
  // it, workspace where not.
  BufferId rows_in(const std::string& name, std::int64_t rows, std::int64_t room, std::int64_t width, Lifetime lifetime,
                   DType type);
  BufferId rows_in(const std::string& name, std::int64_t rows, std::int64_t room, std::int64_t width,
                   Lifetime lifetime) {
    return rows_in(name, rows, room, width, lifetime, context_.compute);
  }

  // Whether a rank's rows are only known after routing: without a capacity, from several sources. Their counts are
  // gathered, unless all that they are made of is.
  bool counts() const { return capacity() == 0 && sources() > 1; }
  // `kept`: of the counts, unless they are gathered over the tensor group too.
  void declare_buffers(Lifetime restored, Lifetime kept);
  // `loads`: how often this rank's tokens chose each expert, f32 [experts]. `again`: what is kept is not gathered
  // again.
  void gather_counts(BufferId loads, bool again);
  // Then it is known which rows come: the host waits for the counts, and receive() derives their places.
  void wait_for_counts();
  void receive();
  // How many rows each of this rank's experts has, f32 [own experts].
  BufferId loads() const { return loads_; }

  // Rows of any width and type. Of this rank's tokens, sorted by experts, -> rows of this rank's experts, sorted by
  // these; `from` itself with one source. With a capacity [experts, capacity, hidden] -> [own experts, sources *
  // capacity, hidden]. `beside`: adds what is computed while they are on their way. `along`: goes the same way, in a
  // trade of its own, or where rows are forwarded in the same one.
  struct Along {
    BufferId from = -1, to = -1;
    Lifetime lives = Lifetime::slot;  // of `to`
  };
  BufferId to_experts(const std::string& name, BufferId from, Lifetime lifetime,
                      const std::function<void()>& beside = {}, Along* along = nullptr);
  // The way back; with tensor and sequence parallelism `from` is one of the tensor group's terms of a sum.
  BufferId to_tokens(const std::string& name, BufferId from, Lifetime lifetime, Along* along = nullptr);

  // The two parts of each way, of `along` too. Whether rows are traded over an expert group at all; the trade, `from`
  // itself if not.
  bool trades() const { return context_.groups.expert >= 0; }
  BufferId trade(const std::string& name, BufferId from, bool back, Lifetime lifetime, Along* along = nullptr);
  // Behind the trade: gathered over the tensor group and sorted by own experts; before the way back the reverse.
  BufferId arrange(const std::string& name, BufferId traded, Lifetime lifetime, Along* along = nullptr);
  BufferId disarrange(const std::string& name, BufferId from, Lifetime lifetime, Along* along = nullptr);
  // The same where what it gives is kept, and so is the sum over the tensor group that leads to it.
  void disarrange_again(const std::string& name, BufferId from);

 private:
  std::int64_t gathered() const { return context_.sequence_parallel ? context_.expert_tensor : 1; }
  std::int64_t own_experts() const { return context_.model().experts / context_.plan().expert; }
  std::int64_t choices() const { return context_.local_tokens * context_.model().experts_per_token; }
  std::int64_t capacity() const {
    return context_.model().capacity_factor > 0 ? context_.model().expert_capacity(context_.local_tokens) : 0;
  }
  bool performs() const { return context_.scenario.purpose == plan::Purpose::perform; }
  // Rows after the trade, before what is gathered over the tensor group.
  std::int64_t traded() const;
  std::int64_t traded_room() const;
  // The ranks that differ in which experts they hold.
  AxisSet spread() const {
    return context_.plan().whole_experts() ? AxisSet{Axis::tensor, Axis::context, Axis::expert} : kExpertAxes;
  }
  // Whether rows are in another order after the trade; or, performed without a capacity, parts from the ranks of a
  // tensor group each have room behind them, which is left out.
  bool sorts() const {
    return (own_experts() > 1 && sources() > 1) || (gathered() > 1 && capacity() == 0 && performs());
  }
  bool forwards() const { return context_.plan().expert_dispatch == plan::ExpertDispatch::forwarding; }
  BufferId gather(const std::string& name, BufferId rows, Lifetime lifetime);
  BufferId scatter(const std::string& name, BufferId rows, Lifetime lifetime);
  void ordered_before();
  BufferId sort(const std::string& name, BufferId from, bool by_expert, Lifetime lifetime);

  const Context& context_;
  RoleBuilder& builder_;
  std::string name_;
  std::int64_t layer_;
  BufferId counts_ = -1, all_counts_ = -1, places_ = -1, loads_ = -1;
  OpRef counted_;
};

}  // namespace rehearse::lower
