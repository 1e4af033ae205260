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
  std::vector<std::int32_t>& cursor = open_;
  cursor.assign(user_first_.begin(), user_first_.end());
  for (std::size_t i = 0; i < activities; ++i)
    for (auto u = static_cast<std::size_t>(first[i]); u < static_cast<std::size_t>(first[i + 1]); ++u)
      users_[static_cast<std::size_t>(cursor[static_cast<std::size_t>(uses[u].resource)]++)] =
          static_cast<std::int32_t>(i);
  by_limit_.resize(activities);
  std::iota(by_limit_.begin(), by_limit_.end(), 0);
  std::sort(by_limit_.begin(), by_limit_.end(), [this](std::int32_t a, std::int32_t b) {
    return limit[static_cast<std::size_t>(a)] < limit[static_cast<std::size_t>(b)];
  });
  open_.resize(resources);
  std::iota(open_.begin(), open_.end(), 0);
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

void MaxMin::solve() {
  prepare();
  std::size_t next_limit = 0;
  for (;;) {
    // The rate at which the next resources fill up.
    std::int64_t level = INT64_MAX;
    full_.clear();
    std::size_t kept = 0;
    for (const std::int32_t r : open_) {
      const std::int64_t weight = weights_[static_cast<std::size_t>(r)];
      if (weight == 0) continue;
      open_[kept++] = r;
      const std::int64_t fair = left_[static_cast<std::size_t>(r)] / weight;
      if (fair < level) {
        level = fair;
        full_.clear();
      }
      if (fair == level) full_.push_back(r);
    }
    open_.resize(kept);

    bool limited = false;
    for (; next_limit < by_limit_.size(); ++next_limit) {
      const std::int32_t activity = by_limit_[next_limit];
      if (limit[static_cast<std::size_t>(activity)] > level) break;
      if (rate[static_cast<std::size_t>(activity)] >= 0) continue;
      freeze(activity, limit[static_cast<std::size_t>(activity)]);
      limited = true;
    }
    if (limited) continue;
    if (kept == 0) return;
    for (const std::int32_t r : full_)
      for (auto u = static_cast<std::size_t>(user_first_[static_cast<std::size_t>(r)]);
           u < static_cast<std::size_t>(user_first_[static_cast<std::size_t>(r) + 1]); ++u)
        freeze(users_[u], level);
  }
}

}  // namespace rehearse::engine
