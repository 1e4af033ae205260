// See collective_use.h.
#include "sim/engine/collective_use.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace rehearse::engine {

void describe_collectives(const Matching& matching, Outcome& outcome) {
  struct Sum {
    result::CollectiveUse use;
    Int128 spent = 0;
  };
  const auto key = [](const result::CollectiveUse& u) {
    return std::tuple(u.group, u.kind, u.bytes, u.ranks, u.nodes, u.algorithm, u.protocol, u.channels, u.fidelity,
                      u.coverage, u.alone_ps);
  };
  std::map<decltype(key({})), Sum> sums;
  for (const PlanId id : matching.plans().ids()) {
    const PlanCode& plan = matching.plan(id);
    const result::CollectiveUse& what = matching.described(id);
    if (plan.job != JobId(0) || plan.ended == 0 || what.kind.empty()) continue;
    Sum& sum = sums.try_emplace(key(what), Sum{what, 0}).first->second;
    sum.use.count += plan.ended * plan.groups;
    sum.spent += Int128{plan.spent.ps()} * plan.groups;
  }
  std::vector<Sum> sorted;
  for (auto& [name, sum] : sums) sorted.push_back(std::move(sum));
  std::stable_sort(sorted.begin(), sorted.end(), [](const Sum& a, const Sum& b) { return a.spent > b.spent; });
  for (Sum& sum : sorted) {
    sum.use.mean_ps = static_cast<std::int64_t>(sum.spent / sum.use.count);
    outcome.collectives.push_back(std::move(sum.use));
  }
}

}  // namespace rehearse::engine
