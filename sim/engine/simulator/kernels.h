// Kernels in progress. The kernels of a segment have one event, at the segment's end. When interference changes in
// between, the kernel in progress is found by walking from the last anchor; the fraction of it that is done is kept,
// and the rest takes its share of the duration in the new state, rounded up. Where ranks share cores (shared_cores.h)
// kernels go one by one, and what rate they run at is decided there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/ids.h"
#include "sim/engine/interference.h"
#include "sim/engine/kernel_times.h"
#include "sim/engine/matching.h"
#include "sim/engine/noise.h"
#include "sim/engine/simulator/clock.h"
#include "sim/engine/simulator/devices.h"
#include "sim/engine/simulator/hosts.h"
#include "sim/engine/simulator/jobs.h"
#include "sim/engine/simulator/op_records.h"
#include "sim/engine/simulator/streams.h"

namespace rehearse::engine {

class SharedCores;

class Kernels {
 public:
  Kernels(Clock& clock, const IdVector<JobId, JobCode>& codes, const Ranks& ranks, const Jobs& jobs, Streams& streams,
          Hosts& hosts, Devices& devices, SharedCores& cores, OpRecords& records);

  // The segment at the head of the stream is one of kernels. It begins at the end of the instant.
  void make_ready(StreamId id) {
    streams_.set(id, Status::ready);
    ready_.push_back(id);
  }
  void begin_ready();
  // The event of the segment's end, or on shared cores of the launch of its next kernel, came up.
  void end(StreamId id, std::uint32_t version);
  // Those on devices whose state has changed go on in the new one.
  void follow_devices();

  // For shared cores. Of the kernel in progress: its state; it ran for some time; it is in another state from now on,
  // and the whole of it takes what `Changed` says; it has ended.
  StateId state(StreamId id) const { return runs_[id].state; }
  void count_time(StreamId id, Time time) { runs_[id].table->count_time(runs_[id].position, time, 1); }
  struct Changed {
    Time before, after;
  };
  Changed set_state(StreamId id, StateId state);
  void end_on_cores(StreamId id);

  // Of a stream with a kernel in progress.
  template <class Visitor>
  void show(StreamId id, Visitor& visitor) {
    KernelRun& run = runs_[id];
    visitor.same(run.position);
    visitor.same(run.state);
    visitor.same(run.left);
    visitor.recent(run.anchor);
    visitor.recent(run.kernel_start);
    visitor.same(run.one_state);
    visitor.same(run.sum_each);
    visitor.same(run.account_each);
    if (run.sum_each) visitor.recent(run.launch_base);
  }

  // What kernels of a job's role ran.
  void add_busy(JobId job, BusyTime& sum) const;

 private:
  // One cache line. The kernel at `position` needs `left` more from `anchor` on, in `state`.
  struct alignas(64) KernelRun {
    KernelTable* table = nullptr;  // of the role in `state`
    KernelTimes* times = nullptr;
    Time anchor, left, kernel_start, launch_base;
    Position position{0};
    StateId state = kAlone;
    std::uint32_t version = 0;  // of its pending event
    bool one_state = true;      // the segment has been in one state so far
    bool sum_each = false;      // some are not launched yet or all vary, so the end is found one by one
    bool account_each = false;
  };
  static_assert(sizeof(KernelRun) == 64);
  struct SlotFactor {
    Factor factor = kFactorOne;
    std::int32_t step = -1;
    SlotId slot;
  };

  void begin(StreamId id);
  void schedule(StreamId id);
  void change_state(StreamId id, StateId to);
  void run_until(StreamId id, Time time);
  void complete_together(StreamId id, Time time);
  void complete_one_by_one(StreamId id, Time time);
  void complete(StreamId id, Time end);
  void begin_on_cores(StreamId id);

  // How many ranks what one does counts for.
  std::int64_t alike(RankId rank) const { return ranks_[rank].alike * streams_.stands_for(rank); }
  // The kernel's duration in the run's state, noise and all.
  Time duration(const KernelRun& run, StreamId id, Position position) const {
    const Time time = run.table->kernel(position);
    return noisy_ ? noisy(time, id, position) : time;
  }
  Time noisy(Time time, StreamId id, Position position) const;
  Factor factor(StreamId id, Position position) const;
  // What attention's kernel at `position` takes over what it costs, where documents decide it.
  Factor load(StreamId id, Position position) const;
  void draw_slot_factor(StreamId id);
  static Time launch_time(const KernelRun& run, const RoleCode& code, Position position) {
    return run.launch_base + code.launch_cost * code.ops[position].issue;
  }
  static result::Share share_of(const Place& place) {
    const Segment& segment = place.segment();
    if (place.role != StreamRole::main) return segment.share;
    return segment.optimizer ? result::Share::optimizer : result::Share::compute;
  }

  Clock& clock_;
  const Ranks& ranks_;
  const Jobs& jobs_;
  Streams& streams_;
  Hosts& hosts_;
  Devices& devices_;
  SharedCores& cores_;
  OpRecords& records_;
  const bool noisy_;
  std::vector<std::unique_ptr<KernelCosts>> costs_;
  IdVector<JobId, std::vector<KernelTimes>> times_;  // by role
  IdVector<StreamId, KernelRun> runs_;
  IdVector<StreamId, SlotFactor> slot_factors_;  // noise of whole slots, if there is any
  std::vector<StreamId> ready_;
};

}  // namespace rehearse::engine
