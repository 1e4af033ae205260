// See matches.h. Collectives: one match for each group and set of roles. Messages: one for each (sender, receiver,
// channel).
#include "sim/program/link/matches.h"

#include <algorithm>
#include <map>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"

namespace rehearse::program {
namespace {

class Matcher {
 public:
  Matcher(const Program& program, const std::vector<RoleCalls>& calls, const GridView& grid)
      : program_(program), calls_(calls), grid_(grid) {}

  RoleMatches match() {
    find_representatives();
    for (const RoleCalls& calls : calls_) result_.of.emplace_back(calls.sequences.size());
    each([](const CallSequence& s) { return s.group >= 0; }, [this](RoleId r, int s) { match_group(r, s); });
    each([](const CallSequence& s) { return s.group < 0 && s.send; }, [this](RoleId r, int s) { match_send(r, s); });
    each([](const CallSequence& s) { return s.group < 0 && !s.send; },
         [this](RoleId r, int s) { match_receive(r, s); });
    return std::move(result_);
  }

 private:
  RoleId roles() const { return static_cast<RoleId>(program_.roles.size()); }
  const std::vector<CallSequence>& sequences(RoleId r) const { return calls_[static_cast<std::size_t>(r)].sequences; }
  int representative(RoleId r) const { return result_.representative[static_cast<std::size_t>(r)]; }
  SequenceMatch& of(RoleId r, int sequence) {
    return result_.of[static_cast<std::size_t>(r)][static_cast<std::size_t>(sequence)];
  }

  template <class Wanted, class Function>
  void each(Wanted&& wanted, Function&& function) {
    for (RoleId r = 0; r < roles(); ++r)
      for (int s = 0; s < static_cast<int>(sequences(r).size()); ++s)
        if (const CallSequence& own = sequences(r)[static_cast<std::size_t>(s)]; own.per_step > 0 && wanted(own))
          function(r, s);
  }

  void find_representatives() {
    result_.representative.assign(program_.roles.size(), -1);
    for (int rank = 0; rank < grid_.ranks; ++rank) {
      check_interrupt();
      const RoleId r = grid_.role(rank);
      REHEARSE_CHECK(r >= 0 && r < roles(), "rank {} has role {} of {}", rank, r, roles());
      int& first = result_.representative[static_cast<std::size_t>(r)];
      if (first < 0) first = rank;
    }
    for (RoleId r = 0; r < roles(); ++r)
      REHEARSE_CHECK(representative(r) >= 0, "no rank has role {}", program_.roles[static_cast<std::size_t>(r)].name);
  }

  std::int32_t add(Match match) {
    result_.matches.push_back(std::move(match));
    return static_cast<std::int32_t>(result_.matches.size()) - 1;
  }

  void match_group(RoleId r, int sequence) {
    const GroupId g = sequences(r)[static_cast<std::size_t>(sequence)].group;
    std::vector<int> members = grid_.members(representative(r), program_.groups[static_cast<std::size_t>(g)]);
    if (std::find(members.begin(), members.end(), representative(r)) == members.end()) {
      result_.outside.emplace_back(r, sequence);
      return;
    }
    std::map<RoleId, int> first;  // role -> its first member
    for (const int m : members) first.emplace(grid_.role(m), m);
    if (first.size() == 1) return;
    std::vector<RoleId> key;
    for (const auto& [role, rank] : first) key.push_back(role);
    const auto [entry, fresh] = collectives_.emplace(std::pair(g, key), -1);
    if (fresh) {
      Match made{g, 0, {}, std::move(members)};
      for (const auto& [role, rank] : first) made.sides.push_back({role, rank, -1});
      entry->second = add(std::move(made));
    }
    const auto side = static_cast<std::int32_t>(std::lower_bound(key.begin(), key.end(), r) - key.begin());
    of(r, sequence) = {entry->second, side};
    result_.matches[static_cast<std::size_t>(entry->second)].sides[static_cast<std::size_t>(side)].sequence = sequence;
  }

  void match_send(RoleId r, int sequence) {
    const CallSequence& own = sequences(r)[static_cast<std::size_t>(sequence)];
    const int to = grid_.peer(representative(r), own.axis, own.offset);
    of(r, sequence) = {add({-1, own.channel, {{r, representative(r), sequence}, {grid_.role(to), to, -1}}, {}}), 0};
  }

  // The sender is some rank of a role: of its sends the one that reaches us names the match of its role.
  void match_receive(RoleId r, int sequence) {
    const CallSequence& own = sequences(r)[static_cast<std::size_t>(sequence)];
    const int from = grid_.peer(representative(r), own.axis, own.offset);
    const RoleId sender = grid_.role(from);
    for (std::size_t s = 0; s < sequences(sender).size(); ++s) {
      const CallSequence& sent = sequences(sender)[s];
      if (sent.group >= 0 || !sent.send || sent.per_step == 0 || sent.channel != own.channel) continue;
      if (grid_.peer(from, sent.axis, sent.offset) != representative(r)) continue;
      const std::int32_t match = of(sender, static_cast<int>(s)).match;
      result_.matches[static_cast<std::size_t>(match)].sides[1].sequence = sequence;
      of(r, sequence) = {match, 1};
      return;
    }
    of(r, sequence) = {add({-1, own.channel, {{sender, from, -1}, {r, representative(r), sequence}}, {}}), 1};
  }

  const Program& program_;
  const std::vector<RoleCalls>& calls_;
  const GridView& grid_;
  RoleMatches result_;
  std::map<std::pair<GroupId, std::vector<RoleId>>, std::int32_t> collectives_;
};

}  // namespace

RoleMatches match_roles(const Program& program, const std::vector<RoleCalls>& calls, const GridView& grid) {
  return Matcher(program, calls, grid).match();
}

}  // namespace rehearse::program
