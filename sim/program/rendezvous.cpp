// Builds the table of meetings. Collectives: one meeting for each group and set of roles. Point-to-point: one for each
// (sender, receiver, channel), where legs of different axes or offsets that reach the same rank share it (on a pipeline
// of two stages, +1 and -1 do).
#include "sim/program/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/program/describe.h"

namespace rehearse::program {
namespace {

// What of a leg decides whom it meets.
using Port = std::tuple<bool, Axis, int, int>;  // send, axis, offset, channel
Port port_of(const Leg& leg) {
  return {leg.send, leg.axis, leg.offset, leg.channel};
}

class MeetingFinder {
 public:
  MeetingFinder(const Program& program, const GridView& grid, std::vector<Violation>& violations)
      : program_(program), grid_(grid), violations_(violations) {}

  Rendezvous find() {
    find_representatives();
    result_.roles.resize(program_.roles.size());
    for (RoleId r = 0; r < roles(); ++r) collect_ports(r);
    for (RoleId r = 0; r < roles(); ++r) find_groups(r);
    for (RoleId r = 0; r < roles(); ++r) find_sends(r);
    for (RoleId r = 0; r < roles(); ++r) find_receives(r);
    for (RoleId r = 0; r < roles(); ++r) list_calls(r);
    return std::move(result_);
  }

 private:
  RoleId roles() const { return static_cast<RoleId>(program_.roles.size()); }
  const Role& role(RoleId r) const { return program_.roles[static_cast<std::size_t>(r)]; }
  int representative(RoleId r) const { return result_.representative[static_cast<std::size_t>(r)]; }
  RoleId role_of(int rank) const { return role_of_rank_[static_cast<std::size_t>(rank)]; }

  void find_representatives() {
    result_.representative.assign(program_.roles.size(), -1);
    for (int rank = 0; rank < grid_.ranks; ++rank) {
      check_interrupt();
      const RoleId r = grid_.role(rank);
      REHEARSE_CHECK(r >= 0 && r < roles(), "rank {} has role {} of {}", rank, r, roles());
      role_of_rank_.push_back(r);
      int& first = result_.representative[static_cast<std::size_t>(r)];
      if (first < 0) first = rank;
    }
    for (RoleId r = 0; r < roles(); ++r) REHEARSE_CHECK(representative(r) >= 0, "no rank has role {}", role(r).name);
  }

  // Only bodies that some slot uses take part.
  std::vector<bool> used_bodies(RoleId r) const {
    std::vector<bool> used(role(r).bodies.size(), false);
    for (const Slot& s : role(r).slots) used[static_cast<std::size_t>(s.body)] = true;
    return used;
  }

  void collect_ports(RoleId r) {
    auto& groups = groups_.emplace_back();
    auto& ports = ports_.emplace_back();
    const std::vector<bool> used = used_bodies(r);
    for (std::size_t b = 0; b < role(r).bodies.size(); ++b) {
      if (!used[b]) continue;
      for (const Op& op : role(r).bodies[b].ops) {
        if (const auto* c = std::get_if<Collective>(&op.shape)) groups.emplace(c->group, op.name);
        if (const auto* p = std::get_if<PointToPoint>(&op.shape))
          for (const Leg& leg : p->legs) ports.emplace(port_of(leg), -1);
      }
    }
  }

  int add_line(RoleId r, int meeting, int side) {
    auto& lines = result_.roles[static_cast<std::size_t>(r)].lines;
    const auto it = std::find(lines.begin(), lines.end(), std::pair(meeting, side));
    if (it != lines.end()) return static_cast<int>(it - lines.begin());
    lines.emplace_back(meeting, side);
    return static_cast<int>(lines.size()) - 1;
  }

  void find_groups(RoleId r) {
    auto& line_of_group = group_lines_.emplace_back();
    for (const auto& [g, op_name] : groups_[static_cast<std::size_t>(r)]) {
      const Group& group = program_.groups[static_cast<std::size_t>(g)];
      std::vector<int> members = grid_.members(representative(r), group);
      if (std::find(members.begin(), members.end(), representative(r)) == members.end()) {
        violations_.push_back({"bad-reference", fmt::format("{} calls '{}' on group {} {{{}}}, which it is not in",
                                                            rank_text(role(r), representative(r)), op_name, group.name,
                                                            fmt::join(members, ","))});
        continue;
      }
      std::map<RoleId, int> first;  // role -> its first member
      for (const int m : members) first.emplace(role_of(m), m);
      if (first.size() == 1) continue;
      std::vector<RoleId> key;
      for (const auto& [member_role, rank] : first) key.push_back(member_role);
      const auto [it, added] =
          collective_meetings_.emplace(std::pair(g, key), static_cast<int>(result_.meetings.size()));
      if (added) {
        Meeting m{true, g, 0, {}, std::move(members)};
        for (const auto& [member_role, rank] : first) m.sides.push_back({member_role, rank, {}});
        result_.meetings.push_back(std::move(m));
      }
      const int side = static_cast<int>(std::lower_bound(key.begin(), key.end(), r) - key.begin());
      line_of_group[g] = add_line(r, it->second, side);
    }
  }

  void find_sends(RoleId r) {
    std::map<std::pair<int, int>, int> line_to;  // (receiver, channel)
    for (auto& [port, line] : ports_[static_cast<std::size_t>(r)]) {
      const auto& [send, axis, offset, channel] = port;
      if (!send) continue;
      const int to = grid_.peer(representative(r), axis, offset);
      const auto [it, added] = line_to.emplace(std::pair(to, channel), -1);
      if (added) {
        const int meeting = static_cast<int>(result_.meetings.size());
        result_.meetings.push_back({false, -1, channel, {{r, representative(r), {}}, {role_of(to), to, {}}}, {}});
        it->second = add_line(r, meeting, 0);
      }
      line = it->second;
    }
  }

  // A receive's sender is some rank of a role; that rank's ports that reach us name the meeting of its role.
  void find_receives(RoleId r) {
    std::map<std::pair<int, int>, int> line_from;  // (sender, channel) that nothing is sent by
    for (auto& [port, line] : ports_[static_cast<std::size_t>(r)]) {
      const auto& [send, axis, offset, channel] = port;
      if (send) continue;
      const int from = grid_.peer(representative(r), axis, offset);
      const RoleId sender = role_of(from);
      for (const auto& [other, other_line] : ports_[static_cast<std::size_t>(sender)]) {
        if (!std::get<0>(other) || std::get<3>(other) != channel) continue;
        if (grid_.peer(from, std::get<1>(other), std::get<2>(other)) != representative(r)) continue;
        const int meeting =
            result_.roles[static_cast<std::size_t>(sender)].lines[static_cast<std::size_t>(other_line)].first;
        line = add_line(r, meeting, 1);
        break;
      }
      if (line >= 0) continue;
      const auto [it, added] = line_from.emplace(std::pair(from, channel), -1);
      if (added) {
        const int meeting = static_cast<int>(result_.meetings.size());
        result_.meetings.push_back({false, -1, channel, {{sender, from, {}}, {r, representative(r), {}}}, {}});
        it->second = add_line(r, meeting, 1);
      }
      line = it->second;
    }
  }

  // The lines an op's calls are on: one for a collective (none if it meets only its own role), one a leg.
  std::vector<int> lines_of(RoleId r, const Op& op) const {
    std::vector<int> lines;
    if (const auto* c = std::get_if<Collective>(&op.shape)) {
      const auto& of_group = group_lines_[static_cast<std::size_t>(r)];
      if (const auto it = of_group.find(c->group); it != of_group.end()) lines.push_back(it->second);
    } else if (const auto* p = std::get_if<PointToPoint>(&op.shape)) {
      for (const Leg& leg : p->legs) lines.push_back(ports_[static_cast<std::size_t>(r)].at(port_of(leg)));
    }
    return lines;
  }

  void list_calls(RoleId r) {
    RoleMeetings& table = result_.roles[static_cast<std::size_t>(r)];
    const std::vector<bool> used = used_bodies(r);
    std::vector<std::vector<int>> ops(role(r).bodies.size());  // those that call
    for (std::size_t b = 0; b < role(r).bodies.size(); ++b) {
      const Body& body = role(r).bodies[b];
      auto& posts = table.posts.emplace_back(body.ops.size());
      if (!used[b]) continue;
      std::vector<int> ordinals(table.lines.size(), 0);
      for (std::size_t i = 0; i < body.ops.size(); ++i) {
        for (const int line : lines_of(r, body.ops[i])) {
          const auto [meeting, side] = table.lines[static_cast<std::size_t>(line)];
          posts[i].push_back({meeting, side, line, ordinals[static_cast<std::size_t>(line)]++});
        }
        if (!posts[i].empty()) ops[b].push_back(static_cast<int>(i));
      }
    }
    for (int s = 0; s < static_cast<int>(role(r).slots.size()); ++s) {
      check_interrupt();
      for (const auto& [meeting, side] : table.lines)
        table.bases.push_back(static_cast<int>(calls(meeting, side).size()));
      const auto body = static_cast<std::size_t>(role(r).slots[static_cast<std::size_t>(s)].body);
      for (const int i : ops[body]) {
        const auto& posts = table.posts[body][static_cast<std::size_t>(i)];
        for (int leg = 0; leg < static_cast<int>(posts.size()); ++leg) {
          const Post& p = posts[static_cast<std::size_t>(leg)];
          const bool collective = result_.meetings[static_cast<std::size_t>(p.meeting)].collective;
          calls(p.meeting, p.side).push_back({s, i, collective ? -1 : leg});
        }
      }
    }
  }

  std::vector<Call>& calls(int meeting, int side) {
    return result_.meetings[static_cast<std::size_t>(meeting)].sides[static_cast<std::size_t>(side)].calls;
  }

  const Program& program_;
  const GridView& grid_;
  std::vector<Violation>& violations_;
  Rendezvous result_;
  std::vector<RoleId> role_of_rank_;
  std::vector<std::map<GroupId, std::string>> groups_;  // by role: groups it calls, and an op that does
  std::vector<std::map<Port, int>> ports_;              // by role: its ports, and the line of each
  std::vector<std::map<GroupId, int>> group_lines_;     // by role
  std::map<std::pair<GroupId, std::vector<RoleId>>, int> collective_meetings_;
};

}  // namespace

Rendezvous find_meetings(const Program& program, const GridView& grid, std::vector<Violation>& violations) {
  return MeetingFinder(program, grid, violations).find();
}

}  // namespace rehearse::program
