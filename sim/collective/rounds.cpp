// The rounds of a collective added up; see rounds.h.
#include "sim/collective/rounds.h"

#include <algorithm>
#include <map>

namespace rehearse::collective {

using cluster::Cluster;

std::int64_t part_of(std::int64_t bytes, std::int64_t parts) {
  return std::max<std::int64_t>(1, divided_up(bytes, parts));
}

InRounds in_rounds(const Cluster& cluster, const Group& group, const std::vector<Round>& rounds) {
  std::map<cluster::ResourceId, std::int64_t> total;
  InRounds sum;
  for (const Round& round : rounds) {
    std::map<cluster::ResourceId, std::int64_t> load;
    bool crosses = false;
    for (const Round::Message& m : round.messages) {
      const cluster::Route route = cluster.route(group.members[m.from], group.members[m.to]);
      crosses = crosses || route.crosses_nodes;
      for (std::size_t i = 0; i < route.resources.size(); ++i) load[route.resources[i]] += route.carried(i, m.bytes);
    }
    Time slowest = Time::from_ps(1);
    for (const auto& [resource, bytes] : load) {
      const Bandwidth capacity = cluster.resources()[static_cast<std::size_t>(resource)].capacity;
      slowest = std::max(slowest, transfer_time(Bytes(bytes), capacity));
      total[resource] += bytes * round.repeat;
    }
    sum.activity.min_duration += slowest * round.repeat;
    (crosses ? sum.between_nodes : sum.inside) += round.repeat;
  }
  for (const auto& [resource, bytes] : total) sum.activity.uses.push_back({resource, bytes});
  return sum;
}

}  // namespace rehearse::collective
