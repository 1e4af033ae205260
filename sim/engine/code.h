// A Program laid out for execution: per role, and kind of device that runs it, flat tables that the simulator walks
// without looking into Ops again.
//
// Of each (body, stream) the ops are cut into segments. A segment is one transfer, or a run of kernels during which
// nothing can come in between: a new one begins at an op that waits for another stream, after an op whose event another
// stream or the host waits for, after a HostSync in program order, at one that takes a micro-batch from a loader, and
// where the optimizer phase begins or ends. Waits for an event of the same stream are always met and are dropped.
//
// Waits refer to the record that sim/program/link/waits.h names. Streams go in order, so a wait is met once the
// recording stream has completed needed() segments since the run began; the op that records ends its segment. Calls of
// transfers are numbered by sim/program/link/calls.h. Of ranks whose memory is an arena (sim/program/link/places.h) the
// waits for its reuse are among them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/units.h"
#include "sim/cost/cost.h"
#include "sim/engine/ids.h"
#include "sim/program/kernel_kinds.h"
#include "sim/program/link/link.h"
#include "sim/program/link/send_slots.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::engine {

struct Wait {
  program::EventId event;  // -1: for memory that the stream still uses
  std::int32_t stream;     // of the recording op; -1: the host, whose segments are its HostSyncs
  std::int32_t row;  // RoleCode::progress: segments of that stream before the slot of the record, by slot of the wait
  std::int32_t segment;   // how many segments of that slot's body, the recording one included
  std::int64_t per_step;  // segments of that stream a step
};

// One side of a message.
struct LegCode {
  std::int32_t sequence, ordinal;  // as program::TransferCall
  std::int32_t size;               // ProgramCode::leg_bytes
  bool send;
};

enum class SegmentKind : unsigned char { kernels, collective, point_to_point };

struct Segment {
  SegmentKind kind = SegmentKind::kernels;
  bool optimizer = false;  // kernels: of the optimizer phase
  result::Share share{};   // of waits for this segment: a transfer's bytes, a stream's kernels
  bool same_role = true;   // point to point: its peers are of our role
  bool loads = false;      // kernels: the first takes a micro-batch from the rank's loader
  bool awaited = false;    // another stream or the host waits for its end
  bool early = false;      // of a run's first steps alone (program::Op::until_step)
  IdRange<Position> ops;
  IdRange<WaitId> waits;
  std::int32_t sequence = -1, ordinal = 0;  // collective; as program::TransferCall
  std::int32_t size = -1;                   // collective; ProgramCode::collectives[group][size]
  IdRange<LegId> legs;
  std::int32_t send_slots = 0;  // of its stream, if it sends from a copy; else 0
  Time copy;                    // what the copy takes
};

// An op in the order of execution of its (body, stream).
struct OpRef {
  program::BodyId body;
  std::int32_t op;
  std::int32_t issue;  // launches of the host before it in the body
  std::int32_t kind;   // program::KernelKinds
};

// One HostSync of a step.
struct SyncCode {
  SlotId slot;
  std::int32_t body, op;
  std::int64_t issue;  // launches of the step before it
  IdRange<WaitId> waits;
  bool awaited;
};

struct RoleCode {
  const program::Role* role = nullptr;
  JobId job{0};                            // of the simulation's, and
  Time launch_cost;                        // what its hosts take to launch an op
  const cost::CostModel* costs = nullptr;  // of the kind of device that its ranks run on
  std::int32_t streams = 0;
  std::int64_t ops_per_step = 0, issues_per_step = 0;
  IdVector<SlotId, program::BodyId> slot_body;
  IdVector<SlotId, std::int64_t> slot_issue;  // launches before each slot
  IdVector<Position, OpRef> ops;
  IdVector<SegmentId, Segment> segments;
  std::vector<IdRange<SegmentId>> ranges;         // [body * streams + stream]
  std::vector<std::vector<SlotId>> stream_slots;  // slots with segments on a stream
  IdVector<WaitId, Wait> waits;
  std::vector<std::int32_t> progress;  // rows of one number a slot
  IdVector<LegId, LegCode> legs;
  std::span<const program::CallSequence> sequences;  // the link's
  IdVector<SyncId, SyncCode> syncs;
  std::vector<std::int32_t> compute_streams;
  // Of bodies that run in every `round`-th step alone (program::Body::every), whose slots are the step's last, the step
  // 0 being one of those: launches.
  std::int64_t round = 1, issues_of_round = 0;

  // Whether the slot's body runs in the step.
  bool runs(std::int64_t step, SlotId slot) const {
    return round == 1 || step % round == 0 || role->bodies[static_cast<std::size_t>(slot_body[slot])].every == 1;
  }
  // Launches before the step.
  std::int64_t issues_before(std::int64_t step) const {
    return step * issues_per_step - (step - (step + round - 1) / round) * issues_of_round;
  }
  const program::Op& op(Position position) const {
    const OpRef& ref = ops[position];
    return role->bodies[static_cast<std::size_t>(ref.body)].ops[static_cast<std::size_t>(ref.op)];
  }
  const IdRange<SegmentId>& segments_of(program::BodyId body, std::int32_t stream) const {
    return ranges[static_cast<std::size_t>(body * streams + stream)];
  }
  const std::vector<SlotId>& slots_of(std::int32_t stream) const {
    return stream_slots[static_cast<std::size_t>(stream)];
  }
  // How many segments the recording stream must have completed for the wait in `slot` of `step`; 0 or less: there was
  // no record yet.
  std::int64_t needed(const Wait& wait, std::int64_t step, SlotId slot) const {
    return step * wait.per_step + progress[static_cast<std::size_t>(wait.row + slot.value())] + wait.segment;
  }
  // The call's number among those of its sequence since the run began.
  std::int64_t call(std::int32_t sequence, std::int32_t ordinal, std::int64_t step, SlotId slot) const {
    return sequences[static_cast<std::size_t>(sequence)].number(step, slot.value(), ordinal);
  }
};

// Ranks of a stage do the same work, or would if their loads were even (places of an expert group).
inline bool same_stage(const RoleCode& a, const RoleCode& b) {
  return &a == &b || (a.job == b.job && a.role->pipeline == b.role->pipeline);
}

struct CollectiveSize {
  program::CollectiveKind kind;
  std::int64_t bytes;
  std::int32_t parts = -1;  // of an all-to-all of unequal parts, as program::Collective
  bool back = false;
  program::ExpertChoice to;
  friend bool operator==(const CollectiveSize&, const CollectiveSize&) = default;
};

struct ProgramCode {
  // In the order of the program's; then those once more whose ranks run on several kinds of devices (JobCode::code_of).
  std::vector<RoleCode> roles;
  std::vector<std::vector<CollectiveSize>> collectives;  // of each group
  std::vector<std::int64_t> leg_bytes;
  std::size_t kernel_kinds = 0;
};

// Both must outlive the code. `arenas` of ranks whose memory is one; else without places. `kinds`: the program's.
ProgramCode compile(const program::Program& program, const program::Link& link, const program::Arenas& arenas,
                    const program::KernelKinds& kinds);

}  // namespace rehearse::engine
