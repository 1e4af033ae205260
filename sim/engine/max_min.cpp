// Progressive filling; the mathematics and an example are in max_min.h.
#include "sim/engine/max_min.h"

#include <algorithm>
#include <numeric>

#include "sim/base/check.h"

namespace rehearse::engine {

void MaxMin::clear() {
  capacity.clear();
  limit.clear();
  uses.clear();
  first.assign(1, 0);
}

void MaxMin::prepare() {
  const std::size_t resources = capacity.size(), activities = limit.size();
  rate.assign(activities, -1);
  left_.resize(resources);
  weights_.assign(resources, 0);
  user_first_.assign(resources + 1, 0);
  for (std::size_t r = 0; r < resources; ++r) {
    REHEARSE_CHECK(capacity[r] > 0 && capacity[r] < kMaxCapacity, "a capacity of {} bytes/s", capacity[r]);
    left_[r] = capacity[r] * kWeightOne;
  }
  for (const Use& use : uses) {
    weights_[static_cast<std::size_t>(use.resource)] += use.weight;
    ++user_first_[static_cast<std::size_t>(use.resource) + 1];
  }
  std::partial_sum(user_first_.begin(), user_first_.end(), user_first_.begin());
  users_.resize(uses.size());
  std::vector<std::int32_t>& cursor = full_;
  cursor.assign(user_first_.begin(), user_first_.end());
  for (std::size_t i = 0; i < activities; ++i)
    for (auto u = static_cast<std::size_t>(first[i]); u < static_cast<std::size_t>(first[i + 1]); ++u)
      users_[static_cast<std::size_t>(cursor[static_cast<std::size_t>(uses[u].resource)]++)] =
          static_cast<std::int32_t>(i);
  limits_sorted_ = false;
  least_limit_ = limit.empty() ? INT64_MAX : *std::min_element(limit.begin(), limit.end());
}

// Once some activity may be at its limit: of those that are not frozen yet. Where resources fill up before, which is
// usual, these are few.
void MaxMin::sort_limits() {
  by_limit_.clear();
  for (std::size_t i = 0; i < limit.size(); ++i)
    if (rate[i] < 0) by_limit_.push_back(static_cast<std::int32_t>(i));
  std::sort(by_limit_.begin(), by_limit_.end(), [this](std::int32_t a, std::int32_t b) {
    return limit[static_cast<std::size_t>(a)] < limit[static_cast<std::size_t>(b)];
  });
  limits_sorted_ = true;
}

void MaxMin::freeze(std::int32_t activity, std::int64_t at) {
  const auto i = static_cast<std::size_t>(activity);
  if (rate[i] >= 0) return;
  rate[i] = at;
  for (auto u = static_cast<std::size_t>(first[i]); u < static_cast<std::size_t>(first[i + 1]); ++u) {
    const auto r = static_cast<std::size_t>(uses[u].resource);
    left_[r] -= at * uses[u].weight;
    weights_[r] -= uses[u].weight;
  }
}

void MaxMin::push(std::int32_t resource) {
  const auto r = static_cast<std::size_t>(resource);
  if (weights_[r] == 0) return;
  heap_.push_back({left_[r] / weights_[r], resource});
  std::push_heap(heap_.begin(), heap_.end());
}

// The lowest rate at which resources fill up, and those that do. A fair rate only grows while others freeze below it,
// so an entry of the heap is a lower bound that is renewed when it comes up.
std::int64_t MaxMin::pop_level() {
  std::int64_t level = INT64_MAX;
  full_.clear();
  while (!heap_.empty() && heap_.front().fair <= level) {
    const Entry top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    const auto r = static_cast<std::size_t>(top.resource);
    if (weights_[r] == 0) continue;
    if (left_[r] / weights_[r] > top.fair) {
      push(top.resource);
      continue;
    }
    level = top.fair;
    full_.push_back(top.resource);
  }
  return level;
}

void MaxMin::solve() {
  prepare();
  heap_.clear();
  for (std::size_t r = 0; r < capacity.size(); ++r)
    if (weights_[r] != 0) heap_.push_back({left_[r] / weights_[r], static_cast<std::int32_t>(r)});
  std::make_heap(heap_.begin(), heap_.end());
  std::size_t next_limit = 0;
  for (;;) {
    const std::int64_t level = pop_level();
    bool limited = false;
    if (!limits_sorted_ && least_limit_ <= level) sort_limits();
    for (; limits_sorted_ && next_limit < by_limit_.size(); ++next_limit) {
      const std::int32_t activity = by_limit_[next_limit];
      if (limit[static_cast<std::size_t>(activity)] > level) break;
      if (rate[static_cast<std::size_t>(activity)] >= 0) continue;
      freeze(activity, limit[static_cast<std::size_t>(activity)]);
      limited = true;
    }
    if (limited) {
      for (const std::int32_t r : full_) push(r);
      continue;
    }
    if (full_.empty()) return;
    for (const std::int32_t r : full_)
      for (auto u = static_cast<std::size_t>(user_first_[static_cast<std::size_t>(r)]);
           u < static_cast<std::size_t>(user_first_[static_cast<std::size_t>(r) + 1]); ++u)
        freeze(users_[u], level);
  }
}

}  // namespace rehearse::engine
