// See rollout.h.
#include "sim/run/reinforcement/rollout.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "sim/base/check.h"
#include "sim/base/random.h"

namespace rehearse::run {

void StepCost::add(const StepCost& other, double times) {
  seconds += times * other.seconds;
  for (std::size_t i = 0; i < shares.size(); ++i) shares[i] += times * other.shares[i];
}

StepCost DecodeCosts::at(double sequences, double cached) const {
  const auto behind = [](const DecodePoint& p, double context) {
    if (p.context.size() == 1 || context <= p.context.front()) return p.cost.front();
    std::size_t next = 1;
    while (next + 1 < p.context.size() && context > p.context[next]) ++next;
    const double share = (context - p.context[next - 1]) / (p.context[next] - p.context[next - 1]);
    StepCost cost;
    cost.add(p.cost[next - 1], 1 - share);
    cost.add(p.cost[next], share);
    return cost;
  };
  const auto of = [&](const DecodePoint& p) { return behind(p, cached / sequences); };
  if (points_.size() == 1) {
    const double under_way = sequences / static_cast<double>(points_.front().sequences);
    REHEARSE_CHECK(under_way <= 1, "{} sequences are more than any point has", sequences);
    StepCost cost;
    cost.add(of(points_.front()), under_way);
    cost.add(points_.front().cost.front(), 1 - under_way);
    return cost;
  }
  const auto above = std::find_if(points_.begin(), points_.end(),
                                  [&](const DecodePoint& p) { return static_cast<double>(p.sequences) >= sequences; });
  REHEARSE_CHECK(above != points_.end(), "{} sequences are more than any point has", sequences);
  if (above == points_.begin()) return of(*above);
  const DecodePoint& below = *(above - 1);
  const double share =
      (sequences - static_cast<double>(below.sequences)) / static_cast<double>(above->sequences - below.sequences);
  StepCost cost;
  cost.add(of(below), 1 - share);
  cost.add(of(*above), share);
  return cost;
}

std::int64_t DecodeCosts::linear_steps(double sequences, double cached, std::int64_t steps) const {
  const std::vector<double>& contexts = points_.front().context;
  for (std::size_t i = 1; i + 1 < contexts.size(); ++i)
    if (const double left = contexts[i] - cached / sequences; left > 0)
      return std::min(steps, static_cast<std::int64_t>(std::ceil(left)));
  return steps;
}

namespace {

void add_overhead(StepCost& cost, double seconds) {
  cost.seconds += seconds;
  cost.shares[static_cast<std::size_t>(result::Share::host)] += seconds;
}

}  // namespace

ReplicaRun run_replica(const ReplicaWork& work, const DecodeCosts& decode, const StepCost& prefill) {
  ReplicaRun run;
  std::vector<std::int64_t> left;  // decode steps of each under way; the next to end last
  std::int64_t reserved = 0, cached = 0;
  const auto whole = [&](std::int64_t response) { return work.prompt_tokens + response; };
  std::vector<std::int64_t> lengths;  // of those in `left`
  std::size_t next = 0;
  // Prompts that are computed together, as many as there are places for; how many. Where a response is one token, its
  // place is free behind that.
  const auto join = [&] {
    const std::int64_t together = std::max<std::int64_t>(1, work.prefill_sequences);
    std::int64_t joined = 0, ended = 0, of_ended = 0;
    for (; joined < together && next < work.responses.size(); ++joined) {
      const std::int64_t response = work.responses[next];
      if (static_cast<std::int64_t>(left.size()) + ended >= work.most_sequences) break;
      if (reserved + of_ended + whole(response) > work.cache_tokens) break;
      ++next;
      if (response <= 1) {
        ++ended, of_ended += whole(response);
        continue;
      }
      reserved += whole(response), cached += work.prompt_tokens;
      const auto place = static_cast<std::size_t>(
          std::lower_bound(left.begin(), left.end(), response - 1, std::greater<>()) - left.begin());
      left.insert(left.begin() + static_cast<std::ptrdiff_t>(place), response - 1);
      lengths.insert(lengths.begin() + static_cast<std::ptrdiff_t>(place), response);
    }
    return joined;
  };
  while (next < work.responses.size() || !left.empty()) {
    while (join() > 0) {
      run.prefill.add(prefill, 1);
      if (work.prefill_sequences > 0) add_overhead(run.prefill, work.step_overhead_s);
    }
    if (left.empty()) {
      REHEARSE_CHECK(next >= work.responses.size(), "the cache has no room for a sequence");
      break;
    }
    // Until the next one ends or costs change their slope: so many steps, in which the tokens cached grow by the
    // sequences each; a step's time is linear in them, so the sum is that of the step in the middle.
    const auto n = static_cast<std::int64_t>(left.size());
    const std::int64_t steps = decode.linear_steps(static_cast<double>(n), static_cast<double>(cached), left.back());
    const double middle = static_cast<double>(cached) + static_cast<double>(n * (steps - 1)) / 2;
    run.decode.add(decode.at(static_cast<double>(n), middle), static_cast<double>(steps));
    add_overhead(run.decode, work.step_overhead_s * static_cast<double>(steps));
    run.steps += steps;
    run.sequences_at_once = std::max(run.sequences_at_once, n);
    cached += n * steps;
    run.most_cached = std::max(run.most_cached, cached);
    for (std::int64_t& each : left) each -= steps;
    while (!left.empty() && left.back() == 0) {
      reserved -= whole(lengths.back());
      cached -= work.prompt_tokens + lengths.back() - 1;
      left.pop_back(), lengths.pop_back();
    }
  }
  REHEARSE_CHECK(run.prefill.seconds >= 0 && run.decode.seconds >= 0, "generation takes {} s and {} s",
                 run.prefill.seconds, run.decode.seconds);
  return run;
}

std::vector<std::int64_t> response_lengths(const plan::Reinforcement& r, std::int64_t longest, std::int64_t seed) {
  constexpr std::uint64_t kPurpose = 0x726573706f6e7365;  // "response"
  const std::uint64_t key = mix_key(static_cast<std::uint64_t>(seed), kPurpose);
  const double sigma = r.response_sigma, mean = std::log(r.response_tokens) - sigma * sigma / 2;
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < r.sequences(); ++i) {
    const auto words = Philox::draw(key, static_cast<std::uint64_t>(i));
    // Box and Muller 1958; 1 - u is above 0.
    const double radius = std::sqrt(-2 * std::log(1 - static_cast<double>(Philox::uniform(words[0]))));
    const double normal = radius * std::cos(2 * std::numbers::pi * static_cast<double>(Philox::uniform(words[1])));
    const double tokens = std::min(std::exp(mean + sigma * normal), static_cast<double>(longest));
    lengths.push_back(std::clamp<std::int64_t>(std::llround(tokens), 1, longest));
  }
  return lengths;
}

}  // namespace rehearse::run
