// The simulation of one program, or of several jobs' programs: lanes (one stream of one rank each), hosts, transfers,
// and the clock.
//
// An instant. All events of the time `now` are taken from the queue; each may complete items, which record events,
// which wake lanes (work_), which post transfers or become ready to run kernels. When nothing is left of this instant,
// flush() re-costs kernels on ranks whose interference changed and starts the ready ones, with the state all of the
// instant's posts and ends have led to. That may bring up events of the same instant (kernels that take no time), so
// the round repeats; when it is quiet, the network solves its shares, once. So nothing depends on the order in which
// the events of an instant come.
//
// Kernels of an item have one event, at the item's end. When interference changes in between, the kernel in progress is
// found by walking from the last anchor; the fraction of it that is done is kept, and the rest takes its share of the
// duration in the new state, rounded up.
//
// Several jobs. Their ranks, and so their lanes, lie one after the other; they share the network, the clock and nothing
// else. The first, if any, is reported: after its steps its lanes stop as they would alone, what it reports is taken at
// the end of that instant, and it goes on from there (settle_jobs). The others never stop. It is over at the end of the
// first instant at which all have done their repeats.
//
// The parts: simulator.cpp (clock, lanes), several_jobs.cpp, kernels.cpp, shared_cores.cpp (kernels and transfers where
// ranks share cores), transfers.cpp, mailboxes.cpp (buffered messages), host.cpp (launches), deadlock.cpp (who waits
// for whom).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/breakdown.h"
#include "sim/engine/code.h"
#include "sim/engine/engine.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/histories.h"
#include "sim/engine/interference.h"
#include "sim/engine/kernel_times.h"
#include "sim/engine/matching.h"
#include "sim/engine/network.h"
#include "sim/engine/step_runs.h"

namespace rehearse::engine {

class Simulator {
 public:
  // Of jobs the first is reported, unless options.steps is 0. All must outlive it.
  Simulator(const std::vector<Job>& jobs, const cluster::Cluster& cluster, const Options& options);
  Outcome run();

 private:
  using LaneId = std::int32_t;

  // What an event is about: the kind in the top bits of its target, an index below.
  static constexpr int kIndexBits = 28;
  static constexpr std::uint32_t kIndexMask = (1u << kIndexBits) - 1;
  enum class EventKind : std::uint32_t {
    kernels,      // the kernels of a lane's item end (where cores are shared: one kernel)
    activity,     // an activity of the network ends
    bytes,        // a transfer's startup is over
    launch,       // the host has launched what a lane waits for
    host_record,  // the host has reached a HostSync that records; version: its progress
    cores,        // a transfer that cores of a shared host move ends
    message,      // of a collective's steps arrives
    job           // starts
  };
  static std::uint32_t target(EventKind kind, std::int32_t index = 0) {
    return static_cast<std::uint32_t>(kind) << kIndexBits | static_cast<std::uint32_t>(index);
  }

  enum class Status : unsigned char {
    advancing,
    waiting,
    held_by_host,
    launching,
    ready,
    running,
    transferring,
    copying,  // one leg of buffered messages
    done
  };

  // A stream of a rank and where it is in the program. Thousands of them are touched in turn, so what an event reads
  // lies on as few cache lines as can be: one for the place in the program, one for kernels, one for transfers.
  struct alignas(64) Lane {
    const RoleCode* code = nullptr;
    std::int64_t progress = 0;    // items completed
    std::int64_t idle_since = 0;  // the end of the op before; of a main lane, up to where its breakdown is told
    std::int32_t rank = 0;
    std::uint32_t version = 0;  // of its pending event
    std::int32_t step = 0, slot_index = 0, slot = 0, item = 0, item_last = 0;
    std::int8_t stream = 0;
    Status status = Status::advancing;
    bool compute = false;     // transfers interfere with its kernels
    bool main = false;        // the rank's breakdown is about this one
    bool ends_steps = false;  // a step is not over before it has finished it
    bool whole = true;        // kernels: the item has been in one state so far
    bool gaps = false;        // kernels: some are not launched yet or all vary, so each is looked at
    bool one_by_one = false;  // kernels: account for each
    // Kernels. The one at `position` needs `left` more from `anchor` on, in `state`.
    KernelTable* table = nullptr;  // of the role in `state`
    KernelTimes* times = nullptr;
    std::int64_t anchor = 0, left = 0, kernel_start = 0, launch_base = 0;
    std::int32_t position = 0;
    StateId state = 0;
    // Of a thread on a shared host (cpu_): it slept for the item at the head; the gap before that item is over; it
    // keeps a core busy in the gap it is in.
    bool slept = false, gap_over = false, at_work = false;
    // On shared cores: `work` left in ps * 2^20 from `anchor` on, running at cores / share; 0: not scheduled yet.
    std::int64_t share = 0;
    Int128 work = 0;
    // Transfer.
    std::int64_t posted = 0, started = 0, moving_from = 0;
    LaneId next_participant = -1;
    std::int32_t legs_left = 0;
    std::int32_t message = -1;  // buffered: the transfer that its leg is
    HoldId sms_hold = 0;
    Factor factor = kFactorOne;  // noise, of its slot
  };

  // The wait that a lane or host is held by.
  struct Held {
    std::int64_t needed = 0;  // progress
    std::int32_t wait = -1;   // RoleCode::waits
    std::int32_t stream = 0;  // whose progress; -1: the host's
  };

  // The host of a rank, launching ops in program order.
  struct Host {
    std::int32_t step = 0, sync = 0;        // the next HostSync
    std::int64_t base = 0, base_issue = 0;  // op i is launched by base + launch_cost * (i - base_issue + 1)
    std::int64_t limit = INT64_MAX;         // ops from this one on are behind a HostSync that is pending
    std::int64_t progress = 0;              // HostSyncs of which the record is out
    Held held;                              // wait -1: by none
    Teller ended = kNobody;                 // who ended its last wait
  };

  struct alignas(64) Rank {
    const RoleCode* code = nullptr;
    LaneId first_lane = 0;
    LaneId main_lane = -1;
    StateId state = 0;
    std::uint32_t waiting = 0;  // lanes of it with Status::waiting, by stream
    bool changed = false;       // in changed_ranks_
    bool recorded = false;
  };

  // Of one job. Of several steps a step ends when the last compute stream does: what other streams still do (gathers
  // for the next forward) is the next step's. A single step ends with everything.
  struct JobState {
    std::int32_t first_rank = 0, last_rank = 0;
    LaneId first_lane = 0, last_lane = 0;
    std::int32_t stop = 0;     // lanes are done after so many steps
    std::int32_t repeats = 0;  // steps it has to do at least
    bool met = false;          // it has
    std::int64_t start = 0;
    Noise noise;
    std::int64_t lanes_running = 0, ops_per_step = 0;
    std::int64_t lanes_per_step = 0;       // that must finish a step to end it
    std::vector<std::int64_t> lanes_left;  // by step: those that have not
    std::vector<Time> step_ends;
  };

  // simulator.cpp
  void make_lanes(std::int32_t rank, const RoleCode& code, KernelTimes& times);
  void begin();
  void dispatch(const Event& event);
  void drain();
  void flush();
  void advance(LaneId id);
  // The first of a rank's waits in a slot that is not met; its `wait` is -1 if all are.
  Held unmet(std::int32_t rank, Range waits, std::int32_t step, std::int32_t slot) const;
  Teller who_ended(const Rank& rank, Range waits, std::int32_t step, std::int32_t slot, Teller woken_by) const;
  void finish_item(LaneId id);
  bool enter_slot(Lane& lane);
  void go_to_slot(Lane& lane);
  void end_of_step(std::int32_t job, std::int32_t step);
  void record(std::int32_t rank, std::int32_t stream, std::int64_t progress);
  // What lanes and hosts did, in the order of time.
  Teller host_of(std::int32_t rank) const { return static_cast<Teller>(lanes_.size()) + rank; }
  std::int64_t asked_since(std::int32_t rank) const;
  void tell(LaneId id, result::Share share, std::int64_t until);
  void tell_wait(LaneId id, Teller by);
  void wake(LaneId id) {
    lanes_[static_cast<std::size_t>(id)].status = Status::advancing;
    work_.push_back(id);
  }
  void release(LaneId id, Teller by);
  // Of its rank; -1: none. HostSyncs stand on one of their own.
  std::int32_t stream_of(std::int32_t rank, Teller by) const;
  // What is known of an op that the lane ran from `start` to `end`, but for what only transfers have.
  result::OpRecord record_of(LaneId id, std::int32_t position, std::int64_t start, std::int64_t end) const;
  void change_links();
  void report_progress();
  Outcome outcome();
  void account_tails();
  std::vector<std::int64_t> last_ends() const;
  bool hosts_done(const JobState& job) const;
  bool stuck() const;
  // Whether what ends now ends in the step reported.
  bool in_reported_step() const {
    const std::vector<Time>& ends = jobs_[0].step_ends;
    const auto steps = static_cast<std::size_t>(steps_);
    return reported_from_ >= 0 && now_ > reported_from_ && (ends.size() < steps || now_ <= ends[steps - 1].ps());
  }
  JobState& job_of(const Lane& lane) { return jobs_[static_cast<std::size_t>(lane.code->job)]; }
  const JobState& job_of(const Lane& lane) const { return jobs_[static_cast<std::size_t>(lane.code->job)]; }

  // several_jobs.cpp
  void make_jobs(const std::vector<Job>& jobs);
  void start_job(std::int32_t job);
  void end_repeat(std::int32_t job);
  bool settle_jobs();
  double repeats_done() const;
  void describe_jobs(Outcome& result) const;
  bool recording(const Lane& lane) const {
    return lane.step == steps_ - 1 && ranks_[static_cast<std::size_t>(lane.rank)].recorded;
  }
  const Item& item_of(const Lane& lane) const { return lane.code->items[static_cast<std::size_t>(lane.item)]; }
  static result::Share share_of(const Lane& lane, const Item& item) {
    if (!lane.main) return item.share;
    return item.optimizer ? result::Share::optimizer : result::Share::compute;
  }

  // kernels.cpp
  void begin_kernels(LaneId id);
  void end_kernels(LaneId id);
  void schedule_kernels(LaneId id);
  void run_until(LaneId id, std::int64_t time);
  void complete_together(Lane& lane, std::int64_t time);
  void complete_one_by_one(LaneId id, std::int64_t time);
  void complete_kernel(LaneId id, std::int64_t end);
  void change_state(LaneId id);
  // The kernel's duration in the lane's state, noise and all.
  std::int64_t kernel_time(const Lane& lane, std::int32_t position) const {
    const std::int64_t ps = lane.table->kernel(position);
    return noisy_kernels_ ? times(ps, factor_of_kernel(lane, position)) : ps;
  }
  Factor factor_of_kernel(const Lane& lane, std::int32_t position) const {
    const JobState& job = job_of(lane);
    if (!job.noise.by_op()) return lane.factor;
    const OpRef& op = lane.code->ops[static_cast<std::size_t>(position)];
    return job.noise.kernel(lane.rank - job.first_rank, lane.step, lane.slot, op.op);
  }
  std::int64_t launch_time(const Lane& lane, std::int32_t position) const {
    return lane.launch_base + lane.code->launch_cost * lane.code->ops[static_cast<std::size_t>(position)].issue;
  }

  // shared_cores.cpp
  bool on_shared_cores(const Lane& lane) const { return sharing_.cores > 0 && (lane.compute || cpu_); }
  bool begin_gap(LaneId id);
  void begin_shared_kernel(LaneId id);
  void end_shared_kernel(LaneId id);
  void begin_shared_copy(LaneId id, std::int64_t ps);
  void begin_core_transfer(std::int32_t transfer);
  void end_core_transfer(std::int32_t transfer);
  void touch_node(std::int32_t rank);
  void share_node(std::int32_t node);
  std::int64_t threads_at_work(std::int32_t node, std::vector<LaneId>& running) const;
  void reschedule_shared(LaneId id, std::int64_t share, StateId state);
  void reschedule_core_transfer(std::int32_t transfer, std::int64_t share);

  // mailboxes.cpp
  void post_buffered(LaneId id);
  void next_leg(LaneId id);
  void send_leg(LaneId id, const LegCode& leg);
  void receive_leg(LaneId id, const LegCode& leg);
  std::int32_t open_leg(LaneId id, const LegCode& leg);
  void begin_copy(LaneId id, std::int64_t ps);
  void end_copy(LaneId id);
  void deliver(std::int32_t transfer);
  void queue_up(std::int32_t transfer);
  void cross(std::int32_t transfer);
  std::pair<int, int> connection_of(const Transfer& transfer) const;
  void arrive(std::int32_t transfer);
  void take(std::int32_t transfer);

  // transfers.cpp
  void post(LaneId id);
  void post_collective(LaneId id);
  void post_messages(LaneId id);
  void begin_transfer(std::int32_t transfer);
  void start_up(std::int32_t transfer);
  void move_bytes(std::int32_t transfer);
  void end_activity(std::int32_t transfer);
  void hold_bandwidth(const Transfer& transfer, bool add);
  void end_steps(std::int32_t transfer);
  void end_transfer(std::int32_t transfer);
  void end_leg(LaneId id, const Transfer& transfer);
  void end_op(LaneId id, result::Share late);
  void change_hold(std::int32_t rank, HoldId hold, bool add);
  Factor factor_of_transfer(const Transfer& transfer) const;
  template <class Function>
  void for_participants(const Transfer& transfer, Function&& function);

  // host.cpp
  bool held_by_host(const Lane& lane, const Item& item) const;
  std::int64_t issue_index(const Lane& lane, std::int32_t position) const;
  std::int64_t launch_base(const Lane& lane) const;
  void advance_host(std::int32_t rank);
  void set_limit(std::int32_t rank);

  // deadlock.cpp
  struct Stuck {
    std::string text;  // what it waits for
    LaneId next = -1;  // the lane that would have to go on; -1: none
  };
  std::string describe_deadlock() const;
  std::string of_job(std::int32_t job) const;
  std::string rank_name(std::int32_t rank) const;
  std::string name_of(LaneId id) const;
  Stuck describe(LaneId id) const;
  Stuck describe_wait(std::int32_t rank, std::int32_t wait) const;
  Stuck describe_transfer(LaneId id) const;
  Stuck describe_open(std::int32_t group, std::int64_t call) const;
  LaneId poster(std::int32_t rank, std::int32_t group, std::int64_t call, bool send) const;

  const cluster::Cluster& cluster_;
  const Options& options_;
  const std::int32_t steps_;  // of the reported job, the first; 0: none is
  const bool goes_on_;        // jobs do, until all have done their repeats
  const cluster::HostSharing sharing_;
  const bool cpu_;       // ranks are threads of a shared host, with gaps between their ops
  const bool buffered_;  // messages
  // Buffered messages on their way over the network, by sender and receiver, the first of them moving.
  std::map<std::pair<int, int>, std::deque<std::int32_t>> connections_;
  const std::int64_t dispatch_, wake_;
  bool noisy_kernels_ = false, noisy_transfers_ = false;  // of any job
  LinkFaults faults_;
  std::int64_t reported_from_ = -1;  // when the step reported began, once it has

  std::vector<JobState> jobs_;
  std::vector<JobCode> codes_;  // of jobs
  InterferenceStates states_;
  EventQueue queue_;
  Network network_;
  StepRuns step_runs_;
  Matching matching_;
  std::vector<KernelTimes> times_;  // by job and role
  Breakdown breakdown_;

  std::vector<Rank> ranks_;
  std::vector<Host> hosts_;
  std::vector<Lane> lanes_;
  std::vector<Held> held_;     // by lane, while it waits
  std::vector<Teller> ended_;  // by lane: who ended its last wait
  // Of lanes whose ops are recorded: since when nothing but its launch (on a CPU: its thread's turn) has held back the
  // op at the head, and whose end that was, if there was a wait.
  struct Release {
    std::int64_t at = 0;
    Teller by = kNobody;
  };
  std::vector<Release> released_;  // by lane
  Histories histories_;

  std::int64_t now_ = 0;
  std::vector<Event> instant_;  // the events being dispatched
  std::vector<LaneId> work_, ready_;
  std::vector<std::int32_t> changed_ranks_;
  std::vector<std::int32_t> touched_nodes_;
  std::vector<char> node_touched_;
  std::vector<std::vector<std::int32_t>> core_transfers_;  // that cores move, by node
  std::vector<std::int32_t> posting_;                      // transfers of the messages being posted

  std::vector<result::OpRecord> records_;
  std::int64_t ops_done_ = 0, events_ = 0, next_report_ = 1 << 16;
  std::int64_t last_start_ = 0;  // when the last job starts
  bool taken_ = false;           // what the reported job reports
  Outcome outcome_;
};

}  // namespace rehearse::engine
