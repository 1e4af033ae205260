// Generation, performed: a replica of the model decodes one token of each of its sequences a step; where one has ended
// a waiting one's prompt is computed and it joins. Prefill and decode are Programs of their own, of forwards alone, on
// threads of their own that take turns, with a copy of the weights each; keys and values lie in one cache. Both
// Programs have as many sequences as fit at most: rows that nobody needs are computed and forgotten. Every response
// goes on to its length.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "execute/reinforcement/phase_run.h"
#include "execute/reinforcement/rollout.h"

namespace rehearse::execute {

// Keys and values of a replica's sequences as fp32, by rank of its tensor group: [layer][sequence][token][kv_heads of
// the rank][head_dim + value_dim].
class KeyValueCache {
 public:
  // Of a replica's scenario: its model and plan.tensor.
  KeyValueCache(const plan::Scenario& replica, std::int64_t sequences, std::int64_t tokens);
  void fill(float value);  // of what is not yet known
  float* at(int rank, std::int64_t layer, std::int64_t sequence, std::int64_t token);
  std::int64_t bytes() const;  // of all ranks
  static std::int64_t bytes(const plan::Scenario& replica, std::int64_t sequences, std::int64_t tokens);
  std::int64_t bytes_per_token() const;  // of a rank
  // Those of row `row` of packed qkv.
  void put(int rank, std::int64_t layer, std::int64_t sequence, std::int64_t token, kernels::In qkv, std::int64_t row);

 private:
  std::int64_t sequences_, tokens_, layers_, heads_, kv_heads_, head_dim_, value_dim_;
  std::vector<std::vector<float>> ranks_;
};

// A row of a step: which sequence of the cache it is of, and what is known of it.
struct DecodedRow {
  std::int64_t slot = -1;          // of the cache; -1: the row is nobody's
  std::int64_t sequence = 0;       // of the step's
  std::int64_t cached = 0;         // tokens before the row's own
  std::int64_t place = 0;          // of the response's token that is drawn
  std::vector<std::int32_t> read;  // tokens that the row reads
};

// What a step of prefill or decode is beside its ops: of one replica, whose ranks are those of a tensor group.
class GenerationSteps : public AskedSteps, public Data {
 public:
  GenerationSteps(const PhasePlan& plan, KeyValueCache& cache, bool decode);

  void perform(const program::Op& op, std::span<const kernels::Out> reads, std::span<const kernels::Out> writes,
               const CallContext& c) override;
  void load(program::InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements,
            void* out) override;
  std::int64_t examples() const override { return 0; }
  std::string description() const override { return "prompts of its own"; }

  // While the ranks stand.
  std::vector<DecodedRow> rows;  // as many as the Program has sequences
  std::int64_t step = 0;         // of the training
  std::int32_t drawn(std::int64_t row) const;

 private:
  void attend(const program::Attention& a, const program::Op& op, kernels::In qkv, kernels::Out out,
              const CallContext& c);
  void turn(const program::Elementwise& e, kernels::Out qkv, const CallContext& c) const;
  void add_positions(const program::Elementwise& e, std::span<const kernels::Out> reads, kernels::Out out,
                     const CallContext& c) const;
  void draw(const program::CrossEntropy& e, kernels::In logits, const CallContext& c);

  const plan::Scenario& scenario_;
  KeyValueCache& cache_;
  bool decode_;
  std::int64_t tokens_;                               // of a row
  std::map<const program::Op*, std::int64_t> layer_;  // of attention
  std::vector<std::vector<Drawn>> drawn_;             // by rank and row
};

class Replica {
 public:
  Replica(const PhasePlan& prefill, const PhasePlan& decode, int threads_per_rank, const Options& options,
          std::int64_t longest);

  void start();
  // The tokens of these sequences. In one thread.
  void generate(Rollout& rollout, const std::vector<std::int64_t>& sequences, std::int64_t step);
  std::vector<PhaseRun*> runs() { return {&prefill_run_, &decode_run_}; }
  const PhaseRun& decode_run() const { return decode_run_; }
  const KeyValueCache& cache() const { return cache_; }

  // Of the last generate().
  double prefill_s = 0, decode_s = 0;
  std::int64_t decode_steps = 0, sequences_at_once = 0, most_cached = 0;  // tokens

 private:
  struct Slot {
    std::int64_t sequence = -1;  // free
  };
  void fill(std::vector<Slot>& slots, std::size_t& next, Rollout& rollout, const std::vector<std::int64_t>& sequences);
  void take(Slot& slot, Response& response, std::int32_t token);

  KeyValueCache cache_;
  GenerationSteps prefill_, decode_;
  PhaseRun prefill_run_, decode_run_;
};

}  // namespace rehearse::execute
