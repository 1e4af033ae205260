// Generation of responses by replicas of a model, as engines with continuous batching do it (Yu et al. 2022, "Orca",
// OSDI; Kwon et al. 2023, "Efficient memory management for large language model serving with PagedAttention", arXiv
// 2309.06180): a replica decodes one token of each of its sequences a step; where one has ended, and the cache of keys
// and values has room, a waiting one's prompt is computed and it joins. What a step takes is read off points that were
// simulated (generation.h).
//
// A sequence is begun when the cache has room for all of its tokens: nothing is preempted, for which a real engine,
// which does not know how long a response will be, has more sequences at once at first and computes some again. The
// first token of a response is its prefill's. No prompt's keys and values are shared.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/plan/reinforcement.h"
#include "sim/result/result.h"

namespace rehearse::run {

// What a step takes, and where that time goes, in seconds.
struct StepCost {
  double seconds = 0;
  std::array<double, result::kShares> shares{};  // add up to it

  void add(const StepCost& other, double times);
};

// A decode step of so many sequences of a replica, each behind `context` tokens: of one context or more.
struct DecodePoint {
  std::int64_t sequences = 1;
  std::vector<double> context;
  std::vector<StepCost> cost;  // of each context
};

class DecodeCosts {
 public:
  // Ascending in sequences; the same contexts, at least one and ascending, in each. Of one point: every step is of its
  // sequences, and those of them that have ended are as those behind the first context.
  explicit DecodeCosts(std::vector<DecodePoint> points) : points_(std::move(points)) {}
  // Linear in the tokens cached, from each context to the next and beyond the last (below the first: as there, since
  // errors of two that are near each other would grow), and between the numbers of sequences, of which there are no
  // more than the last point's. All sequences count as behind the mean of what they are behind.
  StepCost at(double sequences, double cached) const;
  // How many of the next `steps` steps, in which each sequence has a token more each, are linear: until the mean
  // reaches the next context.
  std::int64_t linear_steps(double sequences, double cached, std::int64_t steps) const;

 private:
  std::vector<DecodePoint> points_;
};

struct ReplicaWork {
  std::int64_t prompt_tokens = 1;
  std::vector<std::int64_t> responses;  // tokens of each, in the order in which they are begun
  std::int64_t most_sequences = 1;      // at once
  std::int64_t cache_tokens = 0;        // room; at least what the longest sequence takes
  double step_overhead_s = 0;
  // Prompts that are computed together, for which a prefill takes the same however many of them there are; 0: each
  // takes its own time.
  std::int64_t prefill_sequences = 0;
};

struct ReplicaRun {
  StepCost prefill, decode;                                        // sums
  std::int64_t steps = 0, sequences_at_once = 0, most_cached = 0;  // tokens
  double seconds() const { return prefill.seconds + decode.seconds; }
};

// `prefill`: of one prompt, or of prefill_sequences together, each of which has an overhead as a decode step has.
ReplicaRun run_replica(const ReplicaWork& work, const DecodeCosts& decode, const StepCost& prefill);

// Tokens of each response of a step: lognormal with the mean and sigma given, rounded, at least 1, cut at `longest`.
// Drawn by counter: the i-th depends on the seed and i alone.
std::vector<std::int64_t> response_lengths(const plan::Reinforcement& r, std::int64_t longest, std::int64_t seed);

}  // namespace rehearse::run
