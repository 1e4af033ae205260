// Puts the steps of a collective together from its algorithm's; see steps.h.
#include "sim/collective/steps.h"

#include <algorithm>
#include <cmath>

#include "sim/base/check.h"
#include "sim/collective/algorithms/algorithm.h"
#include "sim/collective/steps_builder.h"

namespace rehearse::collective {

using cluster::Cluster;
using program::CollectiveKind;

std::int64_t Steps::messages() const {
  std::int64_t sum = 0;
  for (const Stage& s : stages) sum += (s.sends.last - s.sends.first) * s.repeat;
  return sum;
}

Steps steps_of(const Cluster& cluster, const Group& group, CollectiveKind kind, Algorithm algorithm, std::int64_t bytes,
               std::int64_t chunk) {
  const AlgorithmModel& model = model_of(algorithm);
  REHEARSE_CHECK(model.has_messages(kind) && group.place.ranks > 1 && chunk > 0, "steps of algorithm {} for {}",
                 name_of(algorithm), static_cast<int>(kind));
  StepsBuilder builder;
  model.add_messages(builder, cluster, group, kind, bytes, chunk);
  Steps steps = builder.finish();
  set_times(steps, cluster, 1, false, Time());
  return steps;
}

void set_times(Steps& steps, const Cluster& cluster, double slower, bool inflate, Time latency) {
  steps.latency = latency;
  for (Steps::Edge& edge : steps.edges) {
    const cluster::Route route = cluster.route(edge.from, edge.to);
    edge.activity.uses.clear();
    Time longest = Time::from_ps(1);
    for (std::size_t i = 0; i < route.resources.size(); ++i) {
      const std::int64_t carried = route.carried(i, edge.bytes);
      const auto taken = std::max<std::int64_t>(1, std::llround(static_cast<double>(carried) * slower));
      const Bandwidth capacity = cluster.resources()[static_cast<std::size_t>(route.resources[i])].capacity;
      longest = std::max(longest, transfer_time(Bytes(taken), capacity));
      edge.activity.uses.push_back({route.resources[i], inflate ? taken : std::max<std::int64_t>(1, carried)});
    }
    std::sort(edge.activity.uses.begin(), edge.activity.uses.end(),
              [](const Use& a, const Use& b) { return a.resource < b.resource; });
    edge.activity.min_duration = longest;
  }
}

}  // namespace rehearse::collective
