// See round_parts.h.
#include "sim/engine/simulator/round_parts.h"

#include <map>
#include <numeric>
#include <set>

#include "sim/base/interrupt.h"

namespace rehearse::engine {
namespace {

// A body of rounds runs more often than twice.
constexpr int kOften = 3;

// Sequences of calls that a role's bodies post in; of those that run often, or of all.
struct Sequences {
  std::set<std::int32_t> often, all;
};

Sequences sequences_of(const RoleCode& code) {
  Sequences found;
  std::map<program::BodyId, int> runs;
  for (const program::BodyId body : code.slot_body) ++runs[body];
  for (const auto& [body, times] : runs) {
    const bool often = times >= kOften;
    for (std::int32_t stream = 0; stream < code.streams; ++stream)
      for (const SegmentId id : code.segments_of(body, stream))
        for_sequences(code, code.segments[id], [&](std::int32_t sequence) {
          found.all.insert(sequence);
          if (often) found.often.insert(sequence);
        });
  }
  return found;
}

// Disjoint sets of ranks.
class Joined {
 public:
  explicit Joined(std::size_t ranks) : above_(ranks) { std::iota(above_.begin(), above_.end(), std::size_t{0}); }
  std::size_t first(std::size_t rank) {
    while (above_[rank] != rank) rank = above_[rank] = above_[above_[rank]];
    return rank;
  }
  void join(std::size_t a, std::size_t b) {
    const std::size_t x = first(a), y = first(b);
    above_[std::max(x, y)] = std::min(x, y);
  }

 private:
  std::vector<std::size_t> above_;
};

}  // namespace

RoundParts parts_of_rounds(const Ranks& ranks, Matching& matching, bool apart) {
  std::map<const RoleCode*, Sequences> of_roles;
  for (const RankInfo& rank : ranks)
    if (!of_roles.contains(rank.code)) of_roles[rank.code] = sequences_of(*rank.code);
  Joined joined(ranks.size());
  IdVector<ProcessGroupId, RankId> met(matching.groups());
  for (const RankId rank : ranks.ids()) {
    check_interrupt();
    for (const std::int32_t sequence : of_roles[ranks[rank].code].often) {
      const ProcessGroupId group = matching.group_of(rank, sequence);
      if (!group.exists()) continue;
      RankId& one = met[group];
      if (one.exists())
        joined.join(one.index(), rank.index());
      else
        one = rank;
    }
  }
  RoundParts parts;
  std::map<std::size_t, PartId> numbers;
  for (const RankId rank : ranks.ids()) {
    const std::size_t first = apart ? joined.first(rank.index()) : 0;
    const auto [known, added] = numbers.emplace(first, PartId(parts.ranks.size()));
    if (added) parts.ranks.emplace_back();
    parts.of_rank.push_back(known->second);
    parts.ranks[known->second.index()].push_back(rank);
  }
  IdVector<ProcessGroupId, char> several(matching.groups(), 0);
  for (const RankId rank : ranks.ids())  // of a call before
    for (const std::int32_t sequence : of_roles[ranks[rank].code].all)
      if (const ProcessGroupId group = matching.group_of(rank, sequence); group.exists())
        matching.set_part(group, PartId());
  for (const RankId rank : ranks.ids())
    for (const std::int32_t sequence : of_roles[ranks[rank].code].all) {
      const ProcessGroupId group = matching.group_of(rank, sequence);
      if (!group.exists()) continue;
      const PartId part = parts.of_rank[rank], known = matching.group(group).part;
      several[group] = several[group] || (known.exists() && known != part);
      matching.set_part(group, several[group] ? PartId() : part);
    }
  return parts;
}

}  // namespace rehearse::engine
