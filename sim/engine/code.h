// A Program laid out for execution: per role flat tables that the simulator walks without looking into Ops again.
//
// Of each (body, stream) the ops are cut into items. An item is one transfer, or a run of kernels during which nothing
// can come in between: a new item begins at an op that waits for another stream, after an op whose event another stream
// or the host waits for, after a HostSync in program order, and where the optimizer phase begins or ends. Waits for an
// event of the same stream are always met and are dropped.
//
// Waits refer to the record that sim/program/link/waits.h names. Streams go in order, so a wait is met once the
// recording stream has completed needed() items since the run began; the op that records ends its item. Calls of
// transfers are numbered by sim/program/link/calls.h. Of ranks whose memory is an arena (sim/program/link/timeline.h)
// the waits for its reuse are among them; those differ from slot to slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/program/link/link.h"
#include "sim/program/link/timeline.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::engine {

struct Wait {
  program::EventId event;  // -1: for memory that the stream still uses
  std::int32_t stream;     // of the recording op; -1: the host, whose items are its HostSyncs
  std::int32_t row;       // RoleCode::progress: items of that stream before the slot of the record, by slot of the wait
  std::int32_t item;      // how many items of that slot's body, the recording one included
  std::int64_t per_step;  // items of that stream a step
};

// One side of a message.
struct LegCode {
  std::int32_t sequence, ordinal;  // as program::TransferCall
  std::int32_t size;               // ProgramCode::leg_bytes
  bool send;
};

enum class ItemKind : unsigned char { kernels, collective, point_to_point };

struct Item {
  ItemKind kind = ItemKind::kernels;
  bool optimizer = false;            // kernels: of the optimizer phase
  result::Share share{};             // of waits for this item: a transfer's bytes, a stream's kernels
  bool same_role = true;             // point to point: its peers are of our role
  std::int32_t first = 0, last = 0;  // positions: RoleCode::ops
  std::int32_t wait_first = 0, wait_last = 0;
  bool awaited = false;                     // another stream or the host waits for its end
  std::int32_t sequence = -1, ordinal = 0;  // collective; as program::TransferCall
  std::int32_t group = -1, size = -1;       // collective; ProgramCode::collectives[group][size]
  std::int32_t leg_first = 0, leg_last = 0;
};

// An op in the order of execution of its (body, stream).
struct OpRef {
  program::BodyId body;
  std::int32_t op;
  std::int32_t issue;  // ops that the host issues before it in the body
};

struct Range {
  std::int32_t first = 0, last = 0;
};

// One HostSync of a step.
struct SyncCode {
  std::int32_t slot, body, op;
  std::int64_t issue;  // ops of the step that the host issues before it
  std::int32_t wait_first, wait_last;
  bool awaited;
};

struct RoleCode {
  const program::Role* role = nullptr;
  std::int32_t job = 0;  // of the simulation's, and what its hosts take to launch an op (ps)
  std::int64_t launch_cost = 0;
  std::int32_t streams = 0;
  std::int64_t ops_per_step = 0, issues_per_step = 0;
  std::vector<std::int32_t> slot_body;
  std::vector<std::int64_t> slot_issue;  // ops issued before each slot
  std::vector<OpRef> ops;                // by position
  std::vector<Item> items;
  std::vector<Range> ranges;                            // items of [body * streams + stream]
  std::vector<std::vector<std::int32_t>> stream_slots;  // slots with items on a stream
  std::vector<Wait> waits;
  std::vector<std::int32_t> progress;  // rows of one number a slot
  std::vector<LegCode> legs;
  std::span<const program::CallSequence> sequences;  // the link's
  std::vector<SyncCode> syncs;
  std::vector<std::int32_t> compute_streams;

  const program::Op& op(std::int32_t position) const {
    const OpRef& ref = ops[static_cast<std::size_t>(position)];
    return role->bodies[static_cast<std::size_t>(ref.body)].ops[static_cast<std::size_t>(ref.op)];
  }
  // How many items the recording stream must have completed for the wait in `slot` of `step`; 0 or less: there was no
  // record yet.
  std::int64_t needed(const Wait& wait, std::int64_t step, std::int32_t slot) const {
    return step * wait.per_step + progress[static_cast<std::size_t>(wait.row + slot)] + wait.item;
  }
  // The call's number among those of its sequence since the run began.
  std::int64_t call(std::int32_t sequence, std::int32_t ordinal, std::int64_t step, std::int32_t slot) const {
    return sequences[static_cast<std::size_t>(sequence)].number(step, slot, ordinal);
  }
};

struct CollectiveSize {
  program::CollectiveKind kind;
  std::int64_t bytes;
  friend bool operator==(const CollectiveSize&, const CollectiveSize&) = default;
};

struct ProgramCode {
  std::vector<RoleCode> roles;
  std::vector<std::vector<CollectiveSize>> collectives;  // of each group
  std::vector<std::int64_t> leg_bytes;
};

// Both must outlive the code. `steps` by role, of ranks whose memory is an arena; else empty.
ProgramCode compile(const program::Program& program, const program::Link& link,
                    const std::vector<program::Timeline>& steps);

}  // namespace rehearse::engine
