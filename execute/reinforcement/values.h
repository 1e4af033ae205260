// Models with a value head, performed: the critic of PPO, which says of each token of a response what is still to be
// expected, and a reward model, which says of a whole response what it is worth. What they say is the first number that
// the head gives for a row: the head is a linear layer with a single output in all but the rows that nothing reads and
// that get no gradient, and their Programs are those that the simulation has of these models (sim/run/reinforcement/).
// What cross-entropy's ops are in these Programs is replaced: forward hands on that number, over the ranks that the
// vocabulary is split over too, as the target's logit that their all-reduces carry; backward gives its gradient.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "execute/reinforcement/policy.h"

namespace rehearse::execute {

// Reads the first number of each row of a micro-batch.
class HeadedRows : public RowsOfResponses {
 public:
  using RowsOfResponses::RowsOfResponses;
  void perform(const program::Op& op, std::span<const kernels::Out> reads, std::span<const kernels::Out> writes,
               const CallContext& c) final;

 protected:
  // After a micro-batch's forward: its rows' numbers; what adds up the loss.
  virtual void use(std::span<const float> numbers, float* loss, const CallContext& c) = 0;
  // The gradient of the loss by a micro-batch's rows' numbers, where there is a backward.
  virtual void slopes(std::span<float> by_row, const CallContext& c) const;

 private:
  void backward(const program::CrossEntropy& e, std::span<const kernels::Out> reads, kernels::Out gradient,
                const CallContext& c);
};

// A forward pass.
class HeadedScoring final : public HeadedRows {
 public:
  enum class Of : unsigned char { critic, reward };
  HeadedScoring(const PhasePlan& plan, const RolloutData& data, Of of) : HeadedRows(plan, data), of_(of) {}
  // While the ranks stand: where Response::values, or rewards, are written; makes room.
  void set(Rollout* to);

 private:
  void use(std::span<const float> numbers, float* loss, const CallContext& c) override;

  const Of of_;
  Rollout* to_ = nullptr;
};

// The critic's updates, by the loss of rollout.h.
class ValueUpdates final : public HeadedRows {
 public:
  ValueUpdates(const PhasePlan& plan, const RolloutData& data, const plan::Reinforcement& r);

 private:
  void use(std::span<const float> numbers, float* loss, const CallContext& c) override;
  void slopes(std::span<float> by_row, const CallContext& c) const override;

  const plan::Reinforcement& r_;
  std::vector<std::vector<float>> slopes_;  // by rank: of the step's rows, [global_batch, seq_len]
};

}  // namespace rehearse::execute
