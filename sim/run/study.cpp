// See study.h.
#include "sim/run/study.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "sim/engine/wide.h"
#include "sim/run/why.h"

namespace rehearse::run {

namespace {

// The ceil(p/100 n)-th smallest, p in (0, 100]: one of the samples, since what is reported is a sample's.
std::int64_t order_statistic(const std::vector<std::int64_t>& sorted, std::int64_t p) {
  const auto n = static_cast<std::int64_t>(sorted.size());
  return sorted[static_cast<std::size_t>((p * n + 99) / 100 - 1)];
}

result::Quantiles quantiles(std::vector<std::int64_t> values) {
  std::sort(values.begin(), values.end());
  return {order_statistic(values, 5), order_statistic(values, 50), order_statistic(values, 95)};
}

std::int64_t mean(const std::vector<std::int64_t>& values) {
  engine::Int128 sum = 0;
  for (const std::int64_t value : values) sum += value;
  return static_cast<std::int64_t>(sum / static_cast<std::int64_t>(values.size()));
}

// A counterfactual: the sample without one cause of its noise.
struct Without {
  result::NoiseCause cause;
  engine::Options options;
};

// The sample's options without `change`d.
template <class Change>
engine::Options without(engine::Options options, Change&& change) {
  change(options);
  return options;
}

// An entry's place stays, since draws are keyed by it; a capacity of 1 is no fault.
void mend(plan::LinkFault& fault) {
  fault.capacity = 1;
  fault.period = Time();
}

std::vector<Without> counterfactuals(const engine::Options& options, const engine::Outcome& outcome, bool machine) {
  std::vector<Without> list;
  const auto add = [&](result::NoiseCause cause, auto&& change) {
    list.push_back({std::move(cause), without(options, change)});
  };
  const auto& slow = outcome.slow_ranks;
  for (std::size_t i = 0; i < std::min(slow.size(), kMostSlowRanks); ++i)
    add({.what = "slow_rank", .rank = slow[i].rank, .factor = slow[i].factor},
        [&](engine::Options& o) { o.spared.push_back(slow[i].rank); });
  if (slow.size() > 1)
    add({.what = "slow_ranks", .count = static_cast<std::int64_t>(slow.size())},
        [](engine::Options& o) { o.noise.slow_ranks.clear(); });
  for (std::size_t i = 0; i < options.noise.links.size(); ++i)
    add({.what = "links", .resources = options.noise.links[i].resources, .count = outcome.faulty_links[i]},
        [i](engine::Options& o) { mend(o.noise.links[i]); });
  if (options.noise.rank_step.any()) add({.what = "rank_step"}, [](engine::Options& o) { o.noise.rank_step = {}; });
  if (machine) add({.what = "machine"}, [](engine::Options& o) { o.noise.machine = false; });
  if (options.noise.kernels > 0) add({.what = "kernels"}, [](engine::Options& o) { o.noise.kernels = 0; });
  if (options.noise.transfers > 0) add({.what = "transfers"}, [](engine::Options& o) { o.noise.transfers = 0; });
  return list;
}

struct Lever {
  const char* what;
  double Levers::*factor;
};
constexpr std::array<Lever, kLevers> kAll = {{{"compute", &Levers::compute},
                                              {"memory_bandwidth", &Levers::memory},
                                              {"nvlink", &Levers::nvlink},
                                              {"nic", &Levers::nic},
                                              {"latency", &Levers::latency},
                                              {"launch", &Levers::launch}}};

}  // namespace

std::function<void(double)> SharedProgress::one() {
  if (!report_) return {};
  return [this, before = 0.0](double done) mutable {
    const std::lock_guard lock(mutex_);
    done_ += done - before;
    before = done;
    report_(std::min(1.0, done_ / simulations_));
  };
}

result::Samples sample(const Prepared& prepared, std::int64_t count, const Workers& workers, SharedProgress& progress,
                       const SampleStep& step) {
  const SampleStep simulated = step ? step : [&prepared](const engine::Options& options) {
    const engine::Outcome outcome = prepared.simulate(options);
    return SampledStep{outcome.step_time.ps(), outcome.breakdown_ps};
  };
  // Of each its step, then the shares of it.
  const std::vector<Answer> answers = answers_of(workers, static_cast<std::size_t>(count), [&](std::size_t i) {
    engine::Options options = prepared.engine_options();
    options.sample = static_cast<std::int64_t>(i);
    options.progress = progress.one();
    const SampledStep sampled = simulated(options);
    if (options.progress) options.progress(1);
    Answer answer{{sampled.step_ps}, ""};
    answer.numbers.insert(answer.numbers.end(), sampled.breakdown_ps.begin(), sampled.breakdown_ps.end());
    return answer;
  });
  std::vector<std::int64_t> steps;
  std::array<std::vector<std::int64_t>, result::kShares> shares;
  for (const Answer& answer : answers) {
    steps.push_back(answer.numbers.at(0));
    for (std::size_t s = 0; s < shares.size(); ++s) shares[s].push_back(answer.numbers.at(s + 1));
  }
  result::Samples samples;
  samples.count = count;
  samples.step_ps = quantiles(steps);
  samples.reported = std::find(steps.begin(), steps.end(), samples.step_ps.p50) - steps.begin();
  samples.least_ps = *std::min_element(steps.begin(), steps.end());
  samples.most_ps = *std::max_element(steps.begin(), steps.end());
  samples.mean_ps = mean(steps);
  samples.of_samples_ps = std::move(steps);
  for (std::size_t s = 0; s < shares.size(); ++s) samples.breakdown_ps[s] = quantiles(std::move(shares[s]));
  return samples;
}

result::NoiseCost noise_cost(const Prepared& prepared, const engine::Options& options, const engine::Outcome& outcome,
                             const Workers& workers, SharedProgress& progress) {
  result::NoiseCost cost;
  cost.known = true;
  cost.seed = options.noise.seed, cost.sample = options.sample;
  const bool machine = options.noise.machine && prepared.costs().device().jitter.any();
  std::vector<Without> list = counterfactuals(options, outcome, machine);
  // The last is without any; where there is but one cause, that is it.
  const bool one = list.size() == 1;
  if (!one)
    list.push_back({{}, without(options, [](engine::Options& o) {
                      o.noise = plan::Noise();
                      o.noise.machine = false;
                    })});
  const std::vector<Answer> answers = answers_of(workers, list.size(), [&](std::size_t i) -> Answer {
    list[i].options.recorded_ranks.clear();
    list[i].options.progress = progress.one();
    return {{prepared.simulate(list[i].options).step_time.ps()}, ""};
  });
  for (std::size_t i = 0; i < list.size(); ++i) list[i].cause.without_ps = answers[i].numbers.at(0);
  cost.without_ps = list.back().cause.without_ps;
  if (!one) list.pop_back();
  for (Without& each : list) cost.causes.push_back(std::move(each.cause));
  return cost;
}

std::vector<result::WhatIf> what_if(const Prepared& prepared, const engine::Options& options,
                                    const engine::Outcome& plain_outcome, const Workers& workers,
                                    SharedProgress& progress) {
  const std::vector<Answer> found = answers_of(workers, 2 * kLevers, [&](std::size_t i) -> Answer {
    engine::Options plain = options;
    plain.recorded_ranks.clear();
    plain.progress = progress.one();
    Levers levers;
    levers.*kAll[i / 2].factor = i % 2 == 0 ? 0.5 : 2;
    const engine::Outcome outcome = prepared.simulate(plain, levers);
    const bool rate = kAll[i / 2].factor != &Levers::latency && kAll[i / 2].factor != &Levers::launch;
    const bool better = (i % 2 == 0) != rate;
    return {{outcome.step_time.ps()},
            why_against_expectation(plain_outcome, outcome, i % 2 == 0 ? "halved" : "doubled", better)};
  });
  std::vector<result::WhatIf> answers(kLevers);
  for (std::size_t l = 0; l < kLevers; ++l) {
    const Answer &halved = found[2 * l], &doubled = found[2 * l + 1];
    answers[l].what = kAll[l].what;
    answers[l].halved_ps = halved.numbers.at(0), answers[l].doubled_ps = doubled.numbers.at(0);
    answers[l].why = halved.text + (halved.text.empty() || doubled.text.empty() ? "" : " ") + doubled.text;
  }
  return answers;
}

}  // namespace rehearse::run
