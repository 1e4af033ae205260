// Lays a Program out for execution; see code.h for the rules by which streams are cut into segments.
#include "sim/engine/code.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

#include "sim/account/blame.h"
#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/program/kernel_kinds.h"
#include "sim/program/link/reuse_order.h"
#include "sim/program/work.h"

namespace rehearse::engine {

namespace {

using program::EventId;
using program::Op;
using program::Role;

bool takes_micro_batch(const Op& op) {
  const auto* input = std::get_if<program::Input>(&op.shape);
  return input != nullptr && input->from == program::InputFrom::taken;
}

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
               const program::Arenas& arenas, const program::KernelKinds& kinds, ProgramCode& out)
      : source_(program),
        index_(role),
        kinds_(kinds),
        role_(program.roles[role]),
        calls_(link.calls[role]),
        program_(out),
        waits_(link.waits[role]),
        arena_(arenas.places.empty() ? nullptr : &arenas.places[role]),
        order_(role_, arena_),
        send_slots_(std::max(arenas.send_slots, 0)) {}

  RoleCode compile() {
    code_.role = &role_;
    code_.sequences = calls_.sequences;
    code_.streams = static_cast<std::int32_t>(role_.streams.size());
    for (std::size_t s = 0; s < role_.streams.size(); ++s)
      if (role_.streams[s].kind == program::StreamKind::compute)
        code_.compute_streams.push_back(static_cast<std::int32_t>(s));
    for (const program::Body& body : role_.bodies)
      syncs_in_.push_back(static_cast<std::int32_t>(std::count_if(body.ops.begin(), body.ops.end(), is_sync)));
    find_events();
    if (arena_ != nullptr)
      for (const program::ReuseWait& wait : arena_->all_waits) reused_.try_emplace({wait.body, wait.op}, 0);
    for (const program::Slot& slot : role_.slots) code_.slot_body.push_back(slot.body);
    for (std::size_t body = 0; body < role_.bodies.size(); ++body)
      for (std::int32_t stream = 0; stream < code_.streams; ++stream) cut(static_cast<std::int32_t>(body), stream);
    place_in_slots();
    resolve_waits();
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
      using Which = program::ReuseWait::Which;
      sources_.push_back({wait.same_slot ? Which::same_slot : Which::latest, wait.stream, wait.body, wait.op});
    }
    if (arena_ != nullptr)
      for (const program::ReuseWait& wait : arena_->waits(body, op)) {
        code_.waits.push_back({-1, wait.stream, 0, 0, 0});
        sources_.push_back(wait);
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
      const Position position = code_.ops.push_back(
          {body, static_cast<std::int32_t>(i), issued, kinds_.of(index_, body, static_cast<std::int32_t>(i))});
      const IdRange<WaitId> waits = waits_of(body, static_cast<std::int32_t>(i));
      const bool optimizer = op.phase == program::Phase::optimizer;
      const bool transfer = program::is_transfer(op);
      const bool loads = takes_micro_batch(op);
      if (fresh || transfer || loads || !waits.empty() || code_.segments.back().optimizer != optimizer ||
          code_.segments.back().early != op.ends()) {
        Segment segment;
        segment.early = op.ends();
        segment.ops.first = position;
        segment.waits = waits;
        segment.optimizer = optimizer;
        segment.loads = loads;
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
                              CollectiveSize{collective->kind, program::collective_bytes(op), collective->parts,
                                             collective->back, collective->to});
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
    if (program::sends_alone(op)) segment.send_slots = send_slots_;
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
      add_round(body, issues[static_cast<std::size_t>(body)]);
      code_.issues_per_step += issues[static_cast<std::size_t>(body)];
      code_.ops_per_step += static_cast<std::int64_t>(role_.bodies[static_cast<std::size_t>(body)].ops.size());
      for (std::int32_t stream = 0; stream < code_.streams; ++stream) {
        if (!code_.segments_of(body, stream).empty())
          code_.stream_slots[static_cast<std::size_t>(stream)].push_back(slot);
      }
    }
  }

  // What is not launched in every step comes last in it, so that launches before a slot are the same in all steps.
  void add_round(std::int32_t body, std::int64_t issues) {
    const std::int64_t every = role_.bodies[static_cast<std::size_t>(body)].every;
    REHEARSE_CHECK(every > 1 || code_.issues_of_round == 0, "{}: a slot of every step behind one of a round",
                   role_.name);
    REHEARSE_CHECK(every == 1 || code_.round == 1 || every == code_.round, "{}: rounds of {} and of {} steps",
                   role_.name, code_.round, every);
    if (every == 1) return;
    code_.round = every;
    code_.issues_of_round += issues;
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
      REHEARSE_CHECK(role_.bodies[static_cast<std::size_t>(body)].every == 1, "{}: a host sync in a body of a round",
                     role_.name);
      const IdRange<WaitId> waits = waits_of(body, static_cast<std::int32_t>(i));
      if (ops[i].records >= 0)
        recorded_segment_[static_cast<std::size_t>(ops[i].records)] = code_.syncs.next() - first + 1;
      code_.syncs.push_back(
          {slot, body, static_cast<std::int32_t>(i), issue, waits, awaited(body, static_cast<std::int32_t>(i))});
    }
  }

  std::int32_t segments_in(std::int32_t body, std::int32_t stream) const {
    if (stream >= 0) return code_.segments_of(body, stream).size();
    return syncs_in_[static_cast<std::size_t>(body)];
  }

  // For each slot, the segments of the wait's stream before the slot that it refers to, which may be of the step
  // before; kMet where there is none.
  std::vector<std::int32_t> progress_row(const program::ReuseWait& wait) const {
    constexpr std::int32_t kMet = INT32_MIN / 2;
    std::vector<std::int32_t> before, row;
    std::int32_t segments = 0;
    for (const std::int32_t of_slot : code_.slot_body) {
      before.push_back(segments);
      segments += segments_in(of_slot, wait.stream);
    }
    const auto slots = static_cast<std::int32_t>(before.size());
    for (std::int32_t slot = 0; slot < slots; ++slot) {
      const std::int32_t of = order_.slot_of(wait, slot);
      row.push_back(of == program::kNoSlot ? kMet
                    : of >= 0              ? before[static_cast<std::size_t>(of)]
                                           : before[static_cast<std::size_t>(slots + of)] - segments);
    }
    return row;
  }

  void resolve_waits() {
    using Which = program::ReuseWait::Which;
    std::map<std::array<std::int32_t, 5>, std::int32_t> rows;
    std::map<std::int32_t, std::int64_t> per_step;  // segments, by stream
    for (const WaitId w : code_.waits.ids()) {
      check_interrupt();
      Wait& wait = code_.waits[w];
      const auto [sum, unknown] = per_step.try_emplace(wait.stream, 0);
      if (unknown)
        for (const std::int32_t body : code_.slot_body) sum->second += segments_in(body, wait.stream);
      wait.per_step = sum->second;
      const program::ReuseWait& source = sources_[w.index()];
      const std::array<std::int32_t, 5> key{source.stream, source.which == Which::same_slot ? -1 : source.body,
                                            source.ring, source.written, source.touched};
      const auto [entry, fresh] = rows.try_emplace(key, static_cast<std::int32_t>(code_.progress.size()));
      if (fresh) {
        const std::vector<std::int32_t> row = progress_row(source);
        code_.progress.insert(code_.progress.end(), row.begin(), row.end());
      }
      wait.row = entry->second;
      wait.segment = wait.event < 0 ? reused_.at({source.body, source.op})
                                    : recorded_segment_[static_cast<std::size_t>(wait.event)];
    }
  }

  const program::Program& source_;
  const std::size_t index_;
  const program::KernelKinds& kinds_;
  const Role& role_;
  const program::RoleCalls& calls_;
  ProgramCode& program_;
  RoleCode code_;
  const program::RoleWaits& waits_;
  const program::ArenaPlaces* arena_;  // nullptr: memory is none
  const program::ReuseOrder order_;
  std::vector<std::int32_t> recorded_segment_;  // by event: segments of its stream in the body up to and with it
  std::vector<std::int32_t> syncs_in_;          // by body
  std::vector<char> visible_;                   // by event: another stream or the host waits for it
  std::vector<program::ReuseWait> sources_;     // by wait, those for events too
  const int send_slots_;
  // Ops that are waited for because of memory, with the segments of their stream in the body up to and with them.
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> reused_;
};

}  // namespace

ProgramCode compile(const program::Program& program, const program::Link& link, const program::Arenas& arenas,
                    const program::KernelKinds& kinds) {
  ProgramCode code;
  code.collectives.resize(program.groups.size());
  code.kernel_kinds = kinds.count();
  for (std::size_t r = 0; r < program.roles.size(); ++r)
    code.roles.push_back(RoleCompiler(program, r, link, arenas, kinds, code).compile());
  return code;
}

}  // namespace rehearse::engine
