// See noise.h. Purposes keep draws for different things apart; the word before the counter's own is the entry.
#include "sim/engine/noise.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/base/random.h"
#include "sim/engine/draws.h"

namespace rehearse::engine {

namespace {

enum NoisePurpose : std::uint64_t { kKernels = 1, kGroups, kChannels, kSlowRanks, kSlowLinks, kMoments, kRankSteps };

std::uint64_t key_of(const plan::Noise& noise, std::int64_t sample) {
  return mix_key(static_cast<std::uint64_t>(noise.seed), static_cast<std::uint64_t>(sample));
}

}  // namespace

Factor factor_of(double value) {
  return std::max<Factor>(1, std::llround(value * static_cast<double>(kFactorOne)));
}

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = std::string_view::npos, from = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Noise::Noise(const plan::Noise& noise, std::int64_t sample, const std::vector<int>& spared, int ranks)
    : key_(key_of(noise, sample)),
      by_op_(noise.granularity == plan::Granularity::op),
      uniform_(noise.distribution == plan::Distribution::uniform),
      kernels_(noise.kernels),
      transfers_(noise.transfers),
      rank_step_(noise.rank_step) {
  find_slow_ranks(noise, spared, ranks);
}

// A rank that several entries make slow is as slow as their product.
void Noise::find_slow_ranks(const plan::Noise& noise, const std::vector<int>& spared, int ranks) {
  std::vector<double> factors(static_cast<std::size_t>(ranks), 1);
  for (std::size_t entry = 0; entry < noise.slow_ranks.size(); ++entry) {
    const plan::SlowRanks& slow = noise.slow_ranks[entry];
    std::vector<char> chosen(factors.size(), 0);
    for (const std::int64_t rank : slow.ranks)
      if (rank < ranks) chosen[static_cast<std::size_t>(rank)] = 1;
    for (std::size_t rank = 0; rank < factors.size(); ++rank) {
      const bool drawn =
          slow.share > 0 && uniform(Philox::draw(mix_key(key_, kSlowRanks), rank, entry)[0]) < slow.share;
      if (chosen[rank] || drawn) factors[rank] *= slow.factor;
    }
  }
  for (const int rank : spared) factors.at(static_cast<std::size_t>(rank)) = 1;
  for (std::size_t rank = 0; rank < factors.size(); ++rank)
    if (factors[rank] > 1) slow_.push_back({static_cast<std::int32_t>(rank), factors[rank]});
  if (slow_.empty()) return;
  for (const double factor : factors) of_rank_.push_back(factor_of(factor));
}

Factor Noise::draw(double variation, std::uint64_t key, std::uint64_t low, std::uint64_t high) const {
  const auto words = Philox::draw(key, low, high);
  if (uniform_) return factor_of(1 + variation * std::sqrt(3.0) * (2 * uniform(words[0]) - 1));
  const double variance = std::log1p(variation * variation);
  const double drawn = normal(words[0], words[1]);
  return factor_of(std::exp(std::sqrt(variance) * drawn - variance / 2));
}

// A function of (seed, sample, rank, step) alone: the same for every kernel of the step.
Factor Noise::rank_step(std::int32_t rank, std::int32_t step) const {
  const double u = uniform(Philox::draw(mix_key(key_, kRankSteps), pair_of(rank, step))[0]);
  return factor_of(rank_step_.low + (rank_step_.high - rank_step_.low) * u);
}

Factor Noise::kernel(std::int32_t rank, std::int32_t step, std::int32_t slot, std::int32_t op) const {
  Factor factor = kFactorOne;
  if (kernels_ > 0)
    factor = draw(kernels_, mix_key(key_, kKernels), pair_of(rank, step), pair_of(slot, by_op_ ? op + 1 : 0));
  if (rank_step_.any()) factor = times(factor, rank_step(rank, step));
  return of_rank_.empty() ? factor : times(factor, slowness(rank));
}

Factor Noise::transfer(bool group, std::int32_t a, std::int32_t b, std::int32_t channel, std::int64_t call) const {
  const std::uint64_t key = mix_key(mix_key(key_, group ? kGroups : kChannels), static_cast<std::uint64_t>(channel));
  return draw(transfers_, key, pair_of(a, b), static_cast<std::uint64_t>(call));
}

LinkFaults::LinkFaults(const plan::Noise& noise, std::int64_t sample, const std::vector<cluster::Resource>& resources)
    : key_(key_of(noise, sample)), counts_(noise.links.size(), 0) {
  if (noise.links.empty()) return;
  for (std::size_t r = 0; r < resources.size(); ++r) {
    nominal_.push_back(resources[r].capacity.per_s());
    for (std::size_t entry = 0; entry < noise.links.size(); ++entry) {
      const plan::LinkFault& link = noise.links[entry];
      if (!matches(link.resources, resources[r].name)) continue;
      if (link.share < 1 && uniform(Philox::draw(mix_key(key_, kSlowLinks), r, entry)[0]) >= link.share) continue;
      ++counts_[entry];
      Fault fault{.resource = static_cast<std::int32_t>(r),
                  .entry = static_cast<std::int32_t>(entry),
                  .capacity = link.capacity,
                  .period = link.duty < 1 ? link.period : Time()};
      fault.slow = Time::from_ps(std::llround(link.duty * static_cast<double>(fault.period.ps())));
      if (fault.period > Time() && fault.slow == Time()) continue;
      faults_.push_back(fault);
      put(begin_of(fault), static_cast<std::int32_t>(faults_.size() - 1));
    }
  }
}

// The slow time of a period lies anywhere inside it, so that each whole period has the same mean capacity.
Time LinkFaults::begin_of(const Fault& fault) const {
  if (fault.period == Time()) return Time();
  const auto words = Philox::draw(mix_key(key_, kMoments), pair_of(fault.resource, fault.entry),
                                  static_cast<std::uint64_t>(fault.count));
  const double room = static_cast<double>((fault.period - fault.slow).ps());
  return fault.period * fault.count + Time::from_ps(static_cast<std::int64_t>(uniform(words[0]) * room));
}

void LinkFaults::put(Time time, std::int32_t fault) {
  heap_.emplace_back(time, fault);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

// The fault whose time has come, changed: it begins, or it ends and its next is put.
std::int32_t LinkFaults::take() {
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  const auto [time, index] = heap_.back();
  heap_.pop_back();
  Fault& fault = faults_[static_cast<std::size_t>(index)];
  fault.active = !fault.active;
  if (fault.period == Time()) return index;
  if (fault.active) {
    fault.end = time + fault.slow;
    put(fault.end, index);
  } else {
    ++fault.count;
    put(begin_of(fault), index);
  }
  return index;
}

std::int64_t LinkFaults::alike(std::int32_t resource) const {
  double part = 1;
  auto fault = std::lower_bound(faults_.begin(), faults_.end(), resource,
                                [](const Fault& f, std::int32_t r) { return f.resource < r; });
  for (; fault != faults_.end() && fault->resource == resource; ++fault) {
    if (fault->period > Time()) return -1 - std::int64_t{resource};  // the moments are drawn for each
    part *= fault->capacity;
  }
  return std::bit_cast<std::int64_t>(part);  // above 0, and so is this
}

std::int64_t LinkFaults::capacity_of(std::int32_t resource) const {
  double part = 1;
  auto fault = std::lower_bound(faults_.begin(), faults_.end(), resource,
                                [](const Fault& f, std::int32_t r) { return f.resource < r; });
  for (; fault != faults_.end() && fault->resource == resource; ++fault)
    if (fault->active) part *= fault->capacity;
  const double nominal = static_cast<double>(nominal_[static_cast<std::size_t>(resource)]);
  return std::max<std::int64_t>(1, std::llround(nominal * part));
}

}  // namespace rehearse::engine
