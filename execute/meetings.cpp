// Calls that meet have the same key: of a collective its group and how many calls the group made before in the step, of
// a leg its channel and direction between two ranks.
#include "execute/meetings.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "sim/account/blame.h"

namespace rehearse::execute {
namespace {

using Key =
    std::tuple<std::int32_t, int, int, int, std::int64_t>;  // step, group or sender, receiver or -1, channel, call

struct Met {
  std::int64_t when_ps = 0;
  int last = -1;  // rank
};

class Meetings {
 public:
  explicit Meetings(const Run& run) : run_(run) {}

  void begin(int rank, const TransferStart& start) {
    for (const Key& key : keys(rank, start.step, start.instance)) {
      const auto [it, added] = came_.try_emplace(key, Met{start.start_ps, rank});
      if (start.start_ps > it->second.when_ps) it->second = {start.start_ps, rank};
    }
  }

  // When the last of a transfer's ranks had come, and who that was, if that is known of all.
  std::optional<Met> met(int rank, std::int32_t step, std::int32_t instance) const {
    Met last;
    for (const Key& key : keys(rank, step, instance)) {
      const auto found = came_.find(key);
      if (found == came_.end()) return {};
      if (found->second.when_ps >= last.when_ps) last = found->second;
    }
    return last;
  }

 private:
  const program::Group* collective(int rank, std::int32_t instance) const {
    const Timeline& t = run_.timeline(rank);
    const auto* c = std::get_if<program::Collective>(&t.op(t.instances[static_cast<std::size_t>(instance)]).shape);
    return c == nullptr ? nullptr : &run_.program.groups[static_cast<std::size_t>(c->group)];
  }

  std::vector<Key> keys(int rank, std::int32_t step, std::int32_t instance) const {
    const Timeline& t = run_.timeline(rank);
    const Instance& i = t.instances[static_cast<std::size_t>(instance)];
    std::vector<Key> all;
    if (const program::Group* g = collective(rank, instance)) {
      const int first = run_.grid.members(rank, g->axes, g->pipeline_only).front();
      const int group = static_cast<int>(g - run_.program.groups.data());
      all.emplace_back(step, group, -1 - first, 0, t.calls[i.first_call].ordinal);
    } else if (const auto* p = std::get_if<program::PointToPoint>(&t.op(i).shape)) {
      for (std::size_t l = 0; l < p->legs.size(); ++l) {
        const program::Leg& leg = p->legs[l];
        const int peer = run_.grid.peer(rank, leg.axis, leg.offset);
        all.emplace_back(step, leg.send ? rank : peer, leg.send ? peer : rank, leg.channel,
                         t.calls[i.first_call + l].ordinal);
      }
    }
    return all;
  }

  const Run& run_;
  std::map<Key, Met> came_;
};

// Of the shares of a measured step, what goes from one to another.
struct Move {
  result::Share from, to;
  double part;  // of the step
};

void move_shares(const std::vector<Move>& moves, Shares& shares) {
  const auto total = static_cast<double>(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}));
  for (const Move& m : moves) {
    const auto from = static_cast<std::size_t>(m.from), to = static_cast<std::size_t>(m.to);
    const std::int64_t ps = std::min(shares[from], static_cast<std::int64_t>(total * m.part));
    shares[from] -= ps;
    shares[to] += ps;
  }
}

}  // namespace

void settle_waits(const Run& run, std::vector<RankReport>& ranks) {
  if (!run.late_ranks_known) return;
  Meetings meetings(run);
  for (const RankReport& r : ranks)
    for (const TransferStart& start : r.transfer_starts) meetings.begin(r.rank, start);
  for (RankReport& r : ranks) {
    if (r.transfer_starts.empty()) continue;
    const Timeline& timeline = run.timeline(r.rank);
    std::map<std::int32_t, std::vector<Move>> moves;  // by measured step
    for (const TransferStart& start : r.transfer_starts) moves[start.step];
    for (const TransferWait& w : r.transfer_waits) {
      const auto came = meetings.met(r.rank, w.step, w.instance);
      if (!came || came->when_ps <= w.begin_ps) continue;
      const program::Op& op = timeline.op(timeline.instances[static_cast<std::size_t>(w.instance)]);
      const Shares& shares = r.shares[static_cast<std::size_t>(w.step)];
      const auto total = static_cast<double>(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}));
      if (total > 0)
        moves[w.step].push_back({account::share_of_op(run.program, *timeline.role, op),
                                 late_share(run.program, run.grid, r.rank, op, came->last),
                                 static_cast<double>(std::min(came->when_ps, w.end_ps) - w.begin_ps) / total});
    }
    for (std::size_t s = 0; s < r.shares.size(); ++s) {
      const auto own = moves.find(static_cast<std::int32_t>(s));
      move_shares(own != moves.end() ? own->second : moves.rbegin()->second, r.shares[s]);
    }
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::int32_t> instance_of;  // slot, body, op
    for (std::size_t n = 0; n < timeline.instances.size(); ++n) {
      const Instance& i = timeline.instances[n];
      instance_of[{i.slot, i.body, i.op}] = static_cast<std::int32_t>(n);
    }
    for (result::OpRecord& record : r.records) {
      const std::int32_t n = instance_of.at({record.slot, record.body, record.op});
      const program::Op& op = timeline.op(timeline.instances[static_cast<std::size_t>(n)]);
      if (!program::is_transfer(op)) continue;
      const auto came = meetings.met(r.rank, record.step, n);
      if (!came || came->when_ps <= record.start_ps) continue;
      record.waited_ps = std::min(came->when_ps - record.start_ps, record.duration_ps);
      record.waited_for = late_share(run.program, run.grid, r.rank, op, came->last);
    }
  }
}

}  // namespace rehearse::execute
