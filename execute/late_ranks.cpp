// See late_ranks.h. Calls that match have the same process group and number (sim/program/link).
#include "execute/late_ranks.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "sim/account/blame.h"
#include "sim/account/grid_view.h"
#include "sim/program/link/process_groups.h"

namespace rehearse::execute {
namespace {

using Key = std::pair<std::int32_t, std::int64_t>;  // process group, call

struct LastStart {
  std::int64_t when_ps = 0;
  int last = -1;  // rank
};

program::ProcessGroups process_groups(const Run& run) {
  std::vector<program::RoleCalls> calls;
  for (const Timeline& timeline : run.timelines) calls.push_back(timeline.calls);
  return {run.program, calls, account::grid_view(run.program, run.grid)};
}

class TransferStarts {
 public:
  explicit TransferStarts(const Run& run) : run_(run), groups_(process_groups(run)) {}

  void add(int rank, const TransferStart& start) {
    for (const Key& key : keys(rank, start.step, start.instance)) {
      const auto [it, added] = came_.try_emplace(key, LastStart{start.start_ps, rank});
      if (start.start_ps > it->second.when_ps) it->second = {start.start_ps, rank};
    }
  }

  // When the last of a transfer's ranks had come, and who that was, if that is known of all.
  std::optional<LastStart> last(int rank, std::int32_t step, std::int32_t instance) const {
    LastStart last;
    for (const Key& key : keys(rank, step, instance)) {
      const auto found = came_.find(key);
      if (found == came_.end()) return {};
      if (found->second.when_ps >= last.when_ps) last = found->second;
    }
    return last;
  }

 private:
  std::vector<Key> keys(int rank, std::int32_t step, std::int32_t instance) const {
    const Timeline& t = run_.timeline(rank);
    const Instance& i = t.instances[static_cast<std::size_t>(instance)];
    std::vector<Key> all;
    for (const program::TransferCall& call : t.calls.of(i.body, i.op))
      all.emplace_back(groups_.of(rank, call.sequence), t.calls.number(call, step, i.slot));
    return all;
  }

  const Run& run_;
  const program::ProcessGroups groups_;
  std::map<Key, LastStart> came_;
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
  TransferStarts starts(run);
  for (const RankReport& r : ranks)
    for (const TransferStart& start : r.transfer_starts) starts.add(r.rank, start);
  for (RankReport& r : ranks) {
    if (r.transfer_starts.empty()) continue;
    const Timeline& timeline = run.timeline(r.rank);
    std::map<std::int32_t, std::vector<Move>> moves;  // by measured step
    for (const TransferStart& start : r.transfer_starts) moves[start.step];
    for (const TransferWait& w : r.transfer_waits) {
      const auto came = starts.last(r.rank, w.step, w.instance);
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
      const auto came = starts.last(r.rank, record.step, n);
      if (!came || came->when_ps <= record.start_ps) continue;
      record.waited_ps = std::min(came->when_ps - record.start_ps, record.duration_ps);
      record.waited_for = late_share(run.program, run.grid, r.rank, op, came->last);
    }
  }
}

}  // namespace rehearse::execute
