// Scoring and training, performed: what the loss of a Program is where a model learns from responses. Scoring reads the
// logarithm of each response token's probability off what cross-entropy computes; an update has, in place of
// cross-entropy's loss, the policy's (rollout.h), and its gradient: each row's cross-entropy gradient times a factor of
// its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "execute/reinforcement/phase_run.h"
#include "execute/reinforcement/rollout.h"
#include "sim/plan/context_rows.h"

namespace rehearse::execute {

// Of rows of training.seq_len tokens, each of a sequence of `data`.
class RowsOfResponses : public AskedSteps {
 public:
  RowsOfResponses(const PhasePlan& plan, const RolloutData& data) : scenario_(*plan.scenario), data_(data) {}

 protected:
  // Calls use(row of the operand, response, its token, row among the step's, place in the row) for each row here that
  // predicts a response's token, or with `behind` 1 reads it; in the order in which the rank holds the rows' tokens,
  // which with context ranks are some of them.
  template <class Use>
  void each_token(const CallContext& c, std::int64_t rows, const Use& use, std::int64_t behind = 0) const {
    const std::int64_t together = rows_together(rows), first = data_.rollout().prompt_tokens - 1 + behind;
    const std::vector<plan::TokenRun> held =
        plan::context_tokens(scenario_.plan, scenario_.training.seq_len, c.context_coordinate);
    for (std::int64_t b = 0; b < together; ++b) {
      const std::int64_t own = c.first_sequence + b;
      const Response* const response = data_.sequence(c.step->step, own);
      if (response == nullptr) continue;
      std::int64_t before = 0;  // tokens held
      for (const plan::TokenRun& run : held) {
        const std::int64_t begin = std::max(run.first, first),
                           end = std::min(run.first + run.count, first + response->length);
        for (std::int64_t place = begin; place < end; ++place)
          use((before + place - run.first) * together + b, *response, static_cast<std::size_t>(place - first), own,
              place);
        before += run.count;
      }
    }
  }
  static float* fp32(const kernels::Out& operand);  // what must be
  // After the parts of cross-entropy that have what it takes, so fused_forward or loss: the logarithm of the
  // probability of `token` in a row.
  static double log_probability(const program::CrossEntropy& e, std::span<const kernels::Out> reads,
                                std::span<const kernels::Out> writes, std::int64_t row, std::int32_t token);

  const plan::Scenario& scenario_;
  const RolloutData& data_;

 private:
  std::int64_t rows_together(std::int64_t rows) const;  // sequences of a micro-batch of so many rows
};

class ScoringSteps final : public RowsOfResponses {
 public:
  // Writes Response::reference, or else ::chosen, of `to`, which is data's.
  ScoringSteps(const PhasePlan& plan, const RolloutData& data, bool reference)
      : RowsOfResponses(plan, data), reference_(reference) {}
  void set(Rollout* to);  // while the ranks stand; makes room

  void perform(const program::Op& op, std::span<const kernels::Out> reads, std::span<const kernels::Out> writes,
               const CallContext& c) override;

 private:
  bool reference_;
  Rollout* to_ = nullptr;
};

class UpdateSteps final : public RowsOfResponses {
 public:
  UpdateSteps(const PhasePlan& plan, const RolloutData& data, const plan::Reinforcement& r);

  void perform(const program::Op& op, std::span<const kernels::Out> reads, std::span<const kernels::Out> writes,
               const CallContext& c) override;

 private:
  // Adds the rows' losses to *loss and keeps their gradients' factors.
  void add_losses(const program::CrossEntropy& e, std::span<const kernels::Out> reads,
                  std::span<const kernels::Out> writes, float* loss, const CallContext& c);
  std::vector<float>& factors(const CallContext& c) { return factors_[static_cast<std::size_t>(c.rank)]; }

  const plan::Reinforcement& r_;
  std::vector<std::vector<float>> factors_;  // by rank: of the step's rows, [global_batch, seq_len]
};

}  // namespace rehearse::execute
