// See body_paths.h. Of each op the longest paths from the body's sources to its end, in the order of the ops, which is
// a topological one: an op waits for what lies before it in the program, the rest is the state of earlier slots.
#include "sim/search/body_paths.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "sim/base/check.h"
#include "sim/program/work.h"
#include "sim/search/least_times.h"

namespace rehearse::search {
namespace {

using program::Collective;
using program::Op;
using program::PointToPoint;
using program::Role;

constexpr std::int64_t kNever = INT64_MIN / 4;

// Events that a body of the role waits for before it records them: these are carried from slot to slot.
std::vector<bool> carried_events(const Role& role) {
  std::vector<bool> carried(role.events.size());
  for (const program::Body& body : role.bodies) {
    std::set<program::EventId> recorded;
    for (const Op& op : body.ops) {
      for (const program::EventId event : op.waits)
        if (!recorded.contains(event)) carried[static_cast<std::size_t>(event)] = true;
      if (op.records >= 0) recorded.insert(op.records);
    }
  }
  return carried;
}

// The paths of one body. A row: by source the longest path to some op's end.
class BodyWalk {
 public:
  using Row = std::vector<std::int64_t>;

  BodyWalk(const Role& role, const std::vector<bool>& carried, TransferTimes& transfers, const cost::CostModel& costs)
      : role_(role), carried_(carried), transfers_(transfers), costs_(costs) {}

  BodyPaths walk(const program::Body& body) {
    stream_.assign(role_.streams.size(), {});
    for (const Op& op : body.ops) one(op);
    for (std::size_t s = 0; s < stream_.size(); ++s)
      if (!stream_[s].empty()) paths_.leaves.emplace_back(static_cast<StateId>(s), sparse(stream_[s]));
    if (!host_.empty()) paths_.leaves.emplace_back(host(), sparse(host_));
    for (const auto& [event, row] : recorded_)
      if (carried_[static_cast<std::size_t>(event)]) paths_.leaves.emplace_back(state_of(event), sparse(row));
    // Ends of meetings come after the entries, whose number is known only now.
    const auto entries = static_cast<std::int32_t>(paths_.entries.size());
    for (Meeting& meeting : paths_.meetings) {
      meeting.source = moved(meeting.source, entries);
      for (Path& path : meeting.ready) path.source = moved(path.source, entries);
    }
    for (auto& [state, paths] : paths_.leaves)
      for (Path& path : paths) path.source = moved(path.source, entries);
    paths_.sources = entries + static_cast<std::int32_t>(paths_.meetings.size());
    return std::move(paths_);
  }

 private:
  // While the body is walked: entries as they come are even sources, meetings odd ones.
  static std::int32_t moved(std::int32_t source, std::int32_t entries) {
    return source % 2 == 0 ? source / 2 : entries + source / 2;
  }
  StateId host() const { return static_cast<StateId>(role_.streams.size()); }
  StateId state_of(program::EventId event) const { return host() + 1 + event; }

  void join(Row& row, const Row& other) const {
    if (row.size() < other.size()) row.resize(other.size(), kNever);
    for (std::size_t i = 0; i < other.size(); ++i) row[i] = std::max(row[i], other[i]);
  }
  void join_source(Row& row, std::int32_t source) const {
    const auto i = static_cast<std::size_t>(source);
    if (row.size() <= i) row.resize(i + 1, kNever);
    row[i] = std::max<std::int64_t>(row[i], 0);
  }
  void join_state(Row& row, StateId state) {
    const auto [known, added] = entry_.try_emplace(state, 2 * static_cast<std::int32_t>(paths_.entries.size()));
    if (added) paths_.entries.push_back(state);
    join_source(row, known->second);
  }
  static Paths sparse(const Row& row) {
    Paths paths;
    for (std::size_t i = 0; i < row.size(); ++i)
      if (row[i] >= 0) paths.push_back({static_cast<std::int32_t>(i), row[i]});
    return paths;
  }

  // When everything that the op waits for is done.
  Row before(const Op& op) {
    Row row;
    if (const Row& earlier = stream_[static_cast<std::size_t>(op.stream)]; !earlier.empty())
      join(row, earlier);
    else
      join_state(row, op.stream);
    for (const program::EventId event : op.waits) {
      const auto known = recorded_.find(event);
      if (known != recorded_.end())
        join(row, known->second);
      else
        join_state(row, state_of(event));
    }
    if (!host_.empty()) join(row, host_);
    return row;
  }

  void one(const Op& op) {
    Row row = before(op);
    if (std::holds_alternative<program::HostSync>(op.shape)) {
      host_ = row;
    } else if (const auto* c = std::get_if<Collective>(&op.shape)) {
      const std::int64_t takes = transfers_.collective(op, *c);
      row = transfers_.between_stages(*c) ? meet({sparse(row), takes, {}, {}, c->group}) : later(std::move(row), takes);
    } else if (const auto* legs = std::get_if<PointToPoint>(&op.shape)) {
      row = messages(op, *legs, std::move(row));
    } else {
      row = later(std::move(row), kernel_time(costs_, role_, op));
    }
    if (op.records >= 0) recorded_[op.records] = row;
    stream_[static_cast<std::size_t>(op.stream)] = std::move(row);
  }

  Row messages(const Op& op, const PointToPoint& legs, Row row) {
    Meeting meeting;
    for (const program::Leg& leg : legs.legs) {
      const std::int64_t takes = transfers_.leg(op, leg);
      const bool of_stages = leg.axis == Axis::pipeline;  // ranks of one stage are alike, and there at once
      if (of_stages) (leg.send ? meeting.sends : meeting.receives).push_back({leg.offset, leg.channel, takes});
      if (leg.send || !of_stages) meeting.ps = std::max(meeting.ps, takes);
    }
    if (meeting.sends.empty() && meeting.receives.empty()) return later(std::move(row), meeting.ps);
    meeting.ready = sparse(row);
    return meet(std::move(meeting));
  }

  Row meet(Meeting meeting) {
    meeting.source = 2 * static_cast<std::int32_t>(paths_.meetings.size()) + 1;
    Row row;
    join_source(row, meeting.source);
    paths_.meetings.push_back(std::move(meeting));
    return row;
  }

  static Row later(Row row, std::int64_t ps) {
    REHEARSE_CHECK(ps >= 0, "an op takes negative time");
    for (std::int64_t& path : row)
      if (path >= 0) path += ps;
    return row;
  }

  const Role& role_;
  const std::vector<bool>& carried_;
  TransferTimes& transfers_;
  const cost::CostModel& costs_;
  BodyPaths paths_;
  std::map<StateId, std::int32_t> entry_;
  std::vector<Row> stream_;
  std::map<program::EventId, Row> recorded_;
  Row host_;
};

}  // namespace

RolePaths paths_of(const program::Program& program, const Role& role, const plan::RankGrid& grid,
                   const std::vector<int>& ranks, const cost::CostModel& costs,
                   const collective::CollectiveModel& collectives) {
  TransferTimes transfers(program, grid, ranks, collectives);
  const std::vector<bool> carried = carried_events(role);
  RolePaths paths;
  paths.state = static_cast<std::int32_t>(role.streams.size() + 1 + role.events.size());
  for (const program::Body& body : role.bodies)
    paths.bodies.push_back(BodyWalk(role, carried, transfers, costs).walk(body));
  return paths;
}

}  // namespace rehearse::search
