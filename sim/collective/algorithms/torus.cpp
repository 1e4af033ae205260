// Torus: rings along every dimension of a torus at once, both ways round, as TPU pods do it (Jouppi et al. 2023, "TPU
// v4", ISCA; the bucket algorithm over several dimensions: Barnett et al. 1993, "Global combine on mesh architectures
// with wormhole routing"). The data is cut in as many parts as there are dimensions. A reduce-scatter takes part p
// along dimension p, p + 1, ... in turn, so that all links are busy in each phase, and each phase has so many times
// less to do as the one before had members in its ring; an all-gather is that backwards, an all-reduce the one after
// the other.
//
// Where dimensions differ in size, the longest ring says how many messages a phase has; their bytes are right. Meshes
// (a torus that does not wrap), parts of dimensions, and two ranks on a node are left out.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "sim/base/check.h"
#include "sim/collective/algorithms/algorithm.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

// Places in Group::members by router.
using MemberAt = std::unordered_map<int, std::size_t>;

// The neighbour of a router one further (way 1) or back (way -1) round a dimension.
int torus_neighbour(int router, TorusDimension d, int way) {
  const int at = router / d.stride % d.size;
  return router + ((at + way + d.size) % d.size - at) * d.stride;
}

// What each member sends along a dimension in one phase of a half of `bytes`: all but its own share of what is left of
// the part, half of it each way round; a ring of two has one link.
void add_ring(Round& round, const Group& group, const MemberAt& member_at, TorusDimension d, std::int64_t left) {
  const std::int64_t ways = d.size > 2 ? 2 : 1;
  const std::int64_t message = part_of(divided_up(left * (d.size - 1), d.size), ways * round.repeat);
  for (std::size_t i = 0; i < group.members.size(); ++i)
    for (const int way : {1, -1})
      if (way == 1 || ways == 2)
        round.messages.push_back({i, member_at.at(torus_neighbour(group.routers[i], d, way)), message});
}

std::vector<Round> reduce_scatter_rounds(const Group& group, std::int64_t bytes) {
  const std::size_t dimensions = group.torus.size();
  MemberAt member_at;
  for (std::size_t i = 0; i < group.routers.size(); ++i) member_at.emplace(group.routers[i], i);
  std::vector<std::int64_t> left(dimensions, divided_up(bytes, static_cast<std::int64_t>(dimensions)));
  std::int64_t longest = 1;
  for (const TorusDimension d : group.torus) longest = std::max<std::int64_t>(longest, d.size - 1);
  std::vector<Round> rounds;
  for (std::size_t phase = 0; phase < dimensions; ++phase) {
    Round round{{}, longest};
    for (std::size_t part = 0; part < dimensions; ++part) {
      const TorusDimension d = group.torus[(part + phase) % dimensions];
      add_ring(round, group, member_at, d, left[part]);
      left[part] = divided_up(left[part], d.size);
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

class Torus final : public AlgorithmModel {
 public:
  std::string_view refusal(const nccl::Machine&, const nccl::Placement& place, CollectiveKind kind,
                           std::optional<Protocol>) const override {
    if (!timed_by_rounds(kind)) return "does all_reduce, all_gather and reduce_scatter only";
    return place.torus ? "" : "needs a rank on every node of whole dimensions of a torus that wraps";
  }

  bool timed_by_rounds(CollectiveKind kind) const override {
    return kind == CollectiveKind::all_reduce || is_half(kind);
  }

  std::vector<Round> rounds(const Group& group, CollectiveKind kind, std::int64_t bytes) const override {
    REHEARSE_CHECK(group.place.torus, "torus rings of a group that does not fill dimensions of a torus");
    std::vector<Round> rounds = reduce_scatter_rounds(group, bytes);
    if (kind == CollectiveKind::reduce_scatter) return rounds;
    std::vector<Round> backwards(rounds.rbegin(), rounds.rend());
    if (kind == CollectiveKind::all_gather) return backwards;
    rounds.insert(rounds.end(), backwards.begin(), backwards.end());
    return rounds;
  }
};

}  // namespace

const AlgorithmModel& algorithms::torus() {
  static const Torus model;
  return model;
}

}  // namespace rehearse::collective
