// Lays a Program out for execution; see code.h for the rules by which streams are cut into segments.
#include "sim/engine/code.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "sim/account/blame.h"
#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/program/work.h"

namespace rehearse::engine {

namespace {

using program::EventId;
using program::Op;
using program::Role;

bool is_sync(const Op& op) {
  return std::holds_alternative<program::HostSync>(op.shape);
}

template <class T>
std::int32_t index_of(std::vector<T>& list, const T& value) {
  const auto found = std::find(list.begin(), list.end(), value);
  if (found != list.end()) return static_cast<std::int32_t>(found - list.begin());
  list.push_back(value);
  return static_cast<std::int32_t>(list.size() - 1);
}

class RoleCompiler {
 public:
  RoleCompiler(const program::Program& program, std::size_t role, const program::Link& link,
               const program::Timeline* step, ProgramCode& out)
      : source_(program),
        role_(program.roles[role]),
        calls_(link.calls[role]),
        program_(out),
        waits_(link.waits[role]),
        order_(role_),
        step_(step) {}

  RoleCode compile() {
    code_.role = &role_;
    code_.sequences = calls_.sequences;
    code_.streams = static_cast<std::int32_t>(role_.streams.size());
    for (std::size_t s = 0; s < role_.streams.size(); ++s)
      if (role_.streams[s].kind == program::StreamKind::compute)
        code_.compute_streams.push_back(static_cast<std::int32_t>(s));
    find_events();
    if (step_ != nullptr) find_reuse();
    for (const program::Slot& slot : role_.slots) code_.slot_body.push_back(slot.body);
    for (std::size_t body = 0; body < role_.bodies.size(); ++body)
      for (std::int32_t stream = 0; stream < code_.streams; ++stream) cut(static_cast<std::int32_t>(body), stream);
    place_in_slots();
    resolve_waits();
    resolve_reuse();
    return std::move(code_);
  }

 private:
  void find_events() {
    recorded_segment_.assign(role_.events.size(), 0);
    visible_.assign(role_.events.size(), 0);
    std::vector<char> recorded(role_.events.size(), 0);
    for (const program::Body& body : role_.bodies)
      for (const Op& op : body.ops) {
        REHEARSE_CHECK(op.stream >= 0 && op.stream < code_.streams, "{}: {} has no stream", role_.name, op.name);
        if (op.records < 0) continue;
        const auto event = static_cast<std::size_t>(op.records);
        REHEARSE_CHECK(!recorded.at(event), "{}: event {} is recorded twice", role_.name, role_.events[event].name);
        recorded[event] = 1;
      }
    for (const program::EventWait& wait : waits_.all()) visible_[static_cast<std::size_t>(wait.event)] = 1;
  }

  // The waits of an op; what they refer to is resolved when all segments are known.
  IdRange<WaitId> waits_of(std::int32_t body, std::int32_t op) {
    IdRange<WaitId> range{code_.waits.next(), {}};
    for (const program::EventWait& wait : waits_.of(body, op)) {
      code_.waits.push_back({wait.event, wait.stream, 0, 0, 0});
      sources_.push_back(&wait);
    }
    for (std::int32_t stream = 0; stream < code_.streams; ++stream)
      if (reuse_.contains({body, op, stream})) {
        code_.waits.push_back({-1, stream, 0, 0, 0});
        sources_.push_back(nullptr);
        reusers_.push_back({code_.waits.next() + -1, body, op});
      }
    range.last = code_.waits.next();
    return range;
  }

  bool awaited(std::int32_t body, std::int32_t op) const {
    const EventId event = role_.bodies[static_cast<std::size_t>(body)].ops[static_cast<std::size_t>(op)].records;
    return (event >= 0 && visible_[static_cast<std::size_t>(event)]) || reused_.contains({body, op});
  }

  // Cuts the ops of a body that go to one stream into segments.
  void cut(std::int32_t body, std::int32_t stream) {
    const std::vector<Op>& ops = role_.bodies[static_cast<std::size_t>(body)].ops;
    IdRange<SegmentId> range{code_.segments.next(), {}};
    bool fresh = true;  // the next op begins a segment
    std::int32_t issue = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      if (is_sync(op)) {
        fresh = true;
        continue;
      }
      const std::int32_t issued = issue;
      issue += static_cast<std::int32_t>(op.launches);
      if (op.stream != stream) continue;
      const Position position = code_.ops.push_back({body, static_cast<std::int32_t>(i), issued});
      const IdRange<WaitId> waits = waits_of(body, static_cast<std::int32_t>(i));
      const bool optimizer = op.phase == program::Phase::optimizer;
      const bool transfer = program::is_transfer(op);
      if (fresh || transfer || !waits.empty() || code_.segments.back().optimizer != optimizer) {
        Segment segment;
        segment.ops.first = position;
        segment.waits = waits;
        segment.optimizer = optimizer;
        segment.share = account::share_of_op(source_, role_, op);
        if (transfer) describe_transfer(op, calls_.of(body, static_cast<int>(i)), segment);
        code_.segments.push_back(segment);
      }
      code_.segments.back().ops.last = position + 1;
      code_.segments.back().awaited = awaited(body, static_cast<std::int32_t>(i));
      const std::int32_t segments = code_.segments.next() - range.first;
      if (op.records >= 0) recorded_segment_[static_cast<std::size_t>(op.records)] = segments;
      if (const auto reused = reused_.find({body, static_cast<std::int32_t>(i)}); reused != reused_.end())
        reused->second = segments;
      fresh = transfer || code_.segments.back().awaited;
    }
    range.last = code_.segments.next();
    code_.ranges.push_back(range);
  }

  void describe_transfer(const Op& op, std::span<const program::TransferCall> calls, Segment& segment) {
    if (const auto* collective = std::get_if<program::Collective>(&op.shape)) {
      segment.kind = SegmentKind::collective;
      segment.size = index_of(program_.collectives.at(static_cast<std::size_t>(collective->group)),
                              CollectiveSize{collective->kind, program::collective_bytes(op)});
      segment.sequence = calls[0].sequence, segment.ordinal = calls[0].ordinal;
      return;
    }
    segment.kind = SegmentKind::point_to_point;
    segment.legs.first = code_.legs.next();
    const std::vector<program::Leg>& legs = std::get<program::PointToPoint>(op.shape).legs;
    segment.same_role = program::within_role(source_, op);
    for (std::size_t l = 0; l < legs.size(); ++l)
      code_.legs.push_back({calls[l].sequence, calls[l].ordinal,
                            index_of(program_.leg_bytes, program::leg_bytes(op, legs[l])), legs[l].send});
    segment.legs.last = code_.legs.next();
  }

  void place_in_slots() {
    std::vector<std::int64_t> issues(role_.bodies.size());
    for (std::size_t b = 0; b < role_.bodies.size(); ++b)
      for (const Op& op : role_.bodies[b].ops) issues[b] += is_sync(op) ? 0 : op.launches;
    code_.stream_slots.resize(role_.streams.size());
    for (std::size_t s = 0; s < role_.slots.size(); ++s) {
      check_interrupt();
      const SlotId slot(s);
      const std::int32_t body = code_.slot_body[slot];
      code_.slot_issue.push_back(code_.issues_per_step);
      add_syncs(slot, body);
      code_.issues_per_step += issues[static_cast<std::size_t>(body)];
      code_.ops_per_step += static_cast<std::int64_t>(role_.bodies[static_cast<std::size_t>(body)].ops.size());
      for (std::int32_t stream = 0; stream < code_.streams; ++stream) {
        if (!code_.segments_of(body, stream).empty())
          code_.stream_slots[static_cast<std::size_t>(stream)].push_back(slot);
      }
    }
  }

  void add_syncs(SlotId slot, std::int32_t body) {
    const std::vector<Op>& ops = role_.bodies[static_cast<std::size_t>(body)].ops;
    std::int64_t issue = code_.issues_per_step;
    const SyncId first = code_.syncs.next();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (!is_sync(ops[i])) {
        issue += ops[i].launches;
        continue;
      }
      const IdRange<WaitId> waits = waits_of(body, static_cast<std::int32_t>(i));
      if (ops[i].records >= 0)
        recorded_segment_[static_cast<std::size_t>(ops[i].records)] = code_.syncs.next() - first + 1;
      code_.syncs.push_back(
          {slot, body, static_cast<std::int32_t>(i), issue, waits, awaited(body, static_cast<std::int32_t>(i))});
    }
  }

  std::int32_t segments_in(std::int32_t body, std::int32_t stream) const {
    if (stream >= 0) return code_.segments_of(body, stream).size();
    const std::vector<Op>& ops = role_.bodies[static_cast<std::size_t>(body)].ops;
    return static_cast<std::int32_t>(std::count_if(ops.begin(), ops.end(), is_sync));
  }

  // For each slot, the segments of `stream` before the slot itself, or before the latest earlier slot of `body` (>= 0),
  // which may be of the step before.
  std::vector<std::int32_t> progress_row(std::int32_t stream, std::int32_t body) const {
    std::vector<std::int32_t> before;
    std::int32_t segments = 0;
    for (const std::int32_t of_slot : code_.slot_body) {
      before.push_back(segments);
      segments += segments_in(of_slot, stream);
    }
    if (body < 0) return before;
    std::vector<std::int32_t> row;
    const auto slots = static_cast<std::int32_t>(before.size());
    for (std::int32_t slot = 0; slot < slots; ++slot) {
      const std::int32_t latest = order_.latest(slot, body);
      row.push_back(latest >= 0 ? before[static_cast<std::size_t>(latest)]
                                : before[static_cast<std::size_t>(slots + latest)] - segments);
    }
    return row;
  }

  void resolve_waits() {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> rows;  // stream, body
    for (const WaitId w : code_.waits.ids()) {
      check_interrupt();
      Wait& wait = code_.waits[w];
      for (const std::int32_t body : code_.slot_body) wait.per_step += segments_in(body, wait.stream);
      if (sources_[w.index()] == nullptr) continue;
      const program::EventWait& source = *sources_[w.index()];
      const auto [entry, fresh] = rows.try_emplace({wait.stream, source.same_slot ? -1 : source.body},
                                                   static_cast<std::int32_t>(code_.progress.size()));
      if (fresh) {
        const std::vector<std::int32_t> row = progress_row(entry->first.first, entry->first.second);
        code_.progress.insert(code_.progress.end(), row.begin(), row.end());
      }
      wait.row = entry->second;
      wait.segment = recorded_segment_[static_cast<std::size_t>(wait.event)];
    }
  }

  void find_reuse() {
    for (const program::OpInstance& i : step_->instances)
      for (std::size_t w = i.first_reuse; w < i.last_reuse; ++w) {
        const program::StreamWait& wait = step_->reuse_waits[w];
        reuse_.insert({i.body, i.op, wait.stream});
        const program::OpInstance& other = step_->awaited(wait);
        reused_.try_emplace({other.body, other.op}, 0);
      }
  }

  // Every one has a row of its own; where a slot has no such wait the row says that it is met.
  void resolve_reuse() {
    if (reusers_.empty()) return;
    constexpr std::int32_t kMet = INT32_MIN / 2;
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::int32_t> rows;
    for (const Reuser& reuser : reusers_) {
      Wait& wait = code_.waits[reuser.wait];
      wait.row = static_cast<std::int32_t>(code_.progress.size());
      rows[{reuser.body, reuser.op, wait.stream}] = wait.row;
      code_.progress.resize(code_.progress.size() + code_.slot_body.size(), kMet);
    }
    std::vector<std::vector<std::int32_t>> before;  // by stream and slot
    std::vector<std::int32_t> per_step;
    for (std::int32_t stream = 0; stream < code_.streams; ++stream) {
      before.push_back(progress_row(stream, -1));
      per_step.push_back(before.back().back() + segments_in(code_.slot_body.back(), stream));
    }
    for (const program::OpInstance& i : step_->instances)
      for (std::size_t w = i.first_reuse; w < i.last_reuse; ++w) {
        const program::StreamWait& wait = step_->reuse_waits[w];
        const auto stream = static_cast<std::size_t>(wait.stream);
        const program::OpInstance& other = step_->awaited(wait);
        std::int32_t segments =
            before[stream][static_cast<std::size_t>(other.slot)] + reused_.at({other.body, other.op});
        if (wait.position < 1) segments -= per_step[stream];  // of the step before
        code_.progress[static_cast<std::size_t>(rows.at({i.body, i.op, wait.stream}) + i.slot)] = segments;
      }
  }

  const program::Program& source_;
  const Role& role_;
  const program::RoleCalls& calls_;
  ProgramCode& program_;
  RoleCode code_;
  const program::RoleWaits& waits_;
  const program::StepOrder order_;
  std::vector<std::int32_t> recorded_segment_;      // by event: segments of its stream in the body up to and with it
  std::vector<char> visible_;                       // by event: another stream or the host waits for it
  std::vector<const program::EventWait*> sources_;  // by wait; nullptr: for memory
  const program::Timeline* step_;
  // Waits for memory: which (body, op, stream) there are in any slot; the ops that are waited for, with the segments of
  // their stream in the body up to and with them; the waits of the code.
  std::set<std::tuple<std::int32_t, std::int32_t, std::int32_t>> reuse_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> reused_;
  struct Reuser {
    WaitId wait;
    std::int32_t body, op;
  };
  std::vector<Reuser> reusers_;
};

}  // namespace

ProgramCode compile(const program::Program& program, const program::Link& link,
                    const std::vector<program::Timeline>& steps) {
  ProgramCode code;
  code.collectives.resize(program.groups.size());
  for (std::size_t r = 0; r < program.roles.size(); ++r)
    code.roles.push_back(RoleCompiler(program, r, link, steps.empty() ? nullptr : &steps[r], code).compile());
  return code;
}

}  // namespace rehearse::engine
