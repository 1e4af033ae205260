// See send_slots.h. Ranks of a role do alike, so one of each stands for all, as in sim/program/rendezvous.h.
#include "execute/rank/gpu/send_slots.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "sim/base/check.h"

namespace rehearse::execute {
namespace {

constexpr int kSteps = 2;  // the second is like all later ones
constexpr int kMostSlots = 1024;

using Channel =
    std::tuple<int, int, int, int, int>;  // axis, offset from the sender, channel, sender's and receiver's role

class Execution {
 public:
  Execution(const program::Program& program, const std::vector<Timeline>& timelines, const plan::RankGrid& grid,
            int slots)
      : program_(program), timelines_(timelines), grid_(grid), slots_(slots) {
    for (const Timeline& t : timelines) {
      done_.emplace_back(t.streams.size(), 0);
      posted_.emplace_back(t.streams.size(), 0);
    }
  }

  bool ends() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t role = 0; role < timelines_.size(); ++role)
        for (std::size_t stream = 0; stream < timelines_[role].streams.size(); ++stream)
          while (advance(role, stream)) moved = true;
    }
    for (std::size_t role = 0; role < timelines_.size(); ++role)
      for (std::size_t stream = 0; stream < timelines_[role].streams.size(); ++stream)
        if (done_[role][stream] < kSteps * timelines_[role].per_step(static_cast<std::int32_t>(stream))) return false;
    return true;
  }

 private:
  // Posts and, if it can be, ends the next op of a stream.
  bool advance(std::size_t role, std::size_t stream) {
    const Timeline& t = timelines_[role];
    const std::int64_t n = t.per_step(static_cast<std::int32_t>(stream)), next = done_[role][stream];
    if (n == 0 || next >= kSteps * n) return false;
    const Instance& i = t.instances[static_cast<std::size_t>(t.streams[stream][static_cast<std::size_t>(next % n)])];
    for (std::size_t w = i.first_wait; w < i.last_wait; ++w) {
      const Wait& wait = t.waits[w];
      if (done_[role][static_cast<std::size_t>(wait.stream)] < next / n * t.per_step(wait.stream) + wait.position)
        return false;
    }
    bool moved = false;
    if (posted_[role][stream] == next) {
      if (slots_ > 0 && sends_alone(t.op(i)) && full(role, stream)) return false;
      post(role, stream, i);
      ++posted_[role][stream];
      moved = true;
    }
    if (!met(role, i, next / n)) return moved;
    ++done_[role][stream];
    return true;
  }

  static bool sends_alone(const program::Op& op) {
    const auto* p = std::get_if<program::PointToPoint>(&op.shape);
    return p != nullptr && p->legs.size() == 1 && p->legs.front().send;
  }

  Channel channel(std::size_t role, const program::Leg& leg) const {
    const int size = grid_.size(leg.axis), offset = (leg.offset % size + size) % size;
    const int here = static_cast<int>(role), roles = static_cast<int>(timelines_.size());
    const int there = leg.axis == Axis::pipeline ? (here + offset) % roles : here;
    if (leg.send) return {static_cast<int>(leg.axis), offset, leg.channel, here, there};
    return {static_cast<int>(leg.axis), (size - offset) % size, leg.channel, there, here};
  }

  void post(std::size_t role, std::size_t stream, const Instance& i) {
    const program::Op& op = timelines_[role].op(i);
    if (const auto* c = std::get_if<program::Collective>(&op.shape)) ++calls_[{c->group, role}];
    if (const auto* p = std::get_if<program::PointToPoint>(&op.shape))
      for (const program::Leg& leg : p->legs) {
        const Channel key = channel(role, leg);
        const std::int64_t which = leg.send ? sent_[key]++ : received_[key]++;
        if (slots_ > 0 && sends_alone(op)) kept_[{role, stream}].insert({key, which});
      }
  }

  // Whether every copy of the stream still waits for its receiver.
  bool full(std::size_t role, std::size_t stream) {
    auto& kept = kept_[{role, stream}];
    std::erase_if(kept, [&](const auto& k) { return received_[k.first] > k.second; });
    return static_cast<int>(kept.size()) >= slots_;
  }

  bool met(std::size_t role, const Instance& i, std::int64_t step) {
    const Timeline& t = timelines_[role];
    const program::Op& op = t.op(i);
    const auto number = [&](std::size_t call) {
      const Call& c = t.calls[call];
      return step * t.calls_per_step[static_cast<std::size_t>(c.queue)] + c.ordinal;
    };
    if (const auto* c = std::get_if<program::Collective>(&op.shape)) {
      for (const std::size_t other : roles_of(c->group, role))
        if (calls_[{c->group, other}] <= number(i.first_call)) return false;
      return true;
    }
    const auto* p = std::get_if<program::PointToPoint>(&op.shape);
    if (p == nullptr || (slots_ > 0 && sends_alone(op))) return true;
    for (std::size_t l = 0; l < p->legs.size(); ++l) {
      const program::Leg& leg = p->legs[l];
      if ((leg.send ? received_ : sent_)[channel(role, leg)] <= number(i.first_call + l)) return false;
    }
    return true;
  }

  std::set<std::size_t> roles_of(program::GroupId group, std::size_t role) const {
    const program::Group& g = program_.groups[static_cast<std::size_t>(group)];
    std::set<std::size_t> roles;
    for (int rank = 0; rank < grid_.ranks(); ++rank) {
      if (grid_.coordinate(rank, Axis::pipeline) != static_cast<int>(role)) continue;
      for (const int member : grid_.members(rank, g.axes, g.pipeline_only))
        roles.insert(static_cast<std::size_t>(grid_.coordinate(member, Axis::pipeline)));
      break;
    }
    return roles;
  }

  const program::Program& program_;
  const std::vector<Timeline>& timelines_;
  const plan::RankGrid& grid_;
  const int slots_;
  std::vector<std::vector<std::int64_t>> done_, posted_;  // by role and stream: ops, since the beginning
  std::map<std::pair<program::GroupId, std::size_t>, std::int64_t> calls_;
  std::map<Channel, std::int64_t> sent_, received_;  // posted
  std::map<std::pair<std::size_t, std::size_t>, std::set<std::pair<Channel, std::int64_t>>> kept_;
};

}  // namespace

int send_slots(const program::Program& program, const std::vector<Timeline>& timelines, const plan::RankGrid& grid) {
  if (Execution(program, timelines, grid, 0).ends()) return 0;
  for (int slots = 1; slots <= kMostSlots; slots *= 2)
    if (Execution(program, timelines, grid, slots).ends()) return slots;
  REHEARSE_CHECK(false, "the ranks wait for one another however many messages are kept");
  return 0;
}

}  // namespace rehearse::execute
