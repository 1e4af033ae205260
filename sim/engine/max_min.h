// Weighted max-min fair shares of resources among activities, by progressive filling in integers.
//
// The caller sets, for resources r and activities i:
//   capacity[r]   bytes/s, below 2^47
//   limit[i]      bytes/s that activity i can use at most, counted on its largest use
//   weight[i,r]   its load on r for each byte/s of its rate, in units of 1/65536: bytes on r / bytes on its largest
//   use,
//                 times the activities that are one here because they are alike (folding.h)
// and solve() computes
//   rate[i]       bytes/s on its largest use, rounded down
// such that sum over i of rate[i] * weight[i,r] / 65536 <= capacity[r] for every r, and no rate can grow but at the
// cost of an activity with a lower one. All rates are raised equally; the activities on the first resource to fill up,
// or at their own limit, are frozen there; the rest go on. Resources whose fair rates round down to the same integer
// freeze together, so the result does not depend on the order of resources or activities. With F uses and R resources
// it takes O(F log R); tests/unit/engine/max_min_test.cpp compares it with a solver that looks at everything each time.
//
// Four activities a b c d on resources L (100 bytes/s) and M (60 bytes/s):
//   L:  1 a + 1 b + 1/2 c      = 100
//   M:              1 c + 1 d  =  60      d <= 20 (its limit)
// Raised together, d stops at 20 first. Then M leaves 60 - 20 = 40 for c, and L fills at 2.5 x = 100, x = 40: a, b and
// c freeze at 40 (on M c reaches its share in the same moment). Result: a = b = c = 40, d = 20; both resources are
// full.
#pragma once

#include <cstdint>
#include <vector>

namespace rehearse::engine {

inline constexpr std::int64_t kWeightOne = 1 << 16;
inline constexpr std::int64_t kMaxCapacity = std::int64_t{1} << 47;

struct MaxMin {
  struct Use {
    std::int32_t resource;
    std::int64_t weight;
  };
  // Set by the caller; uses of activity i: uses[first[i]] up to uses[first[i + 1]].
  std::vector<std::int64_t> capacity, limit;
  std::vector<std::int32_t> first{0};
  std::vector<Use> uses;
  // Computed.
  std::vector<std::int64_t> rate;

  void clear();
  void add_activity(std::int64_t most) { limit.push_back(most); }
  void add_use(std::int32_t resource, std::int64_t weight) { uses.push_back({resource, weight}); }
  void end_activity() { first.push_back(static_cast<std::int32_t>(uses.size())); }
  void solve();

 private:
  // A resource and a rate below which it does not fill up.
  struct Entry {
    std::int64_t fair;
    std::int32_t resource;
    bool operator<(const Entry& other) const {  // the lowest rate on top of a heap
      return fair != other.fair ? fair > other.fair : resource > other.resource;
    }
  };

  void prepare();
  void sort_limits();
  void freeze(std::int32_t activity, std::int64_t at);
  void push(std::int32_t resource);
  std::int64_t pop_level();

  std::vector<std::int64_t> left_, weights_;      // by resource: capacity left * 65536, weights not yet frozen
  std::vector<std::int32_t> user_first_, users_;  // activities of a resource
  std::vector<std::int32_t> by_limit_, full_;     // activities by limit; resources filling up now
  std::int64_t least_limit_ = 0;
  bool limits_sorted_ = false;
  std::vector<Entry> heap_;  // resources in play
};

}  // namespace rehearse::engine
