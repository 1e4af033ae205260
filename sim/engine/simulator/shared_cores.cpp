// See shared_cores.h.
#include "sim/engine/simulator/shared_cores.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/engine/simulator/kernels.h"

namespace rehearse::engine {

namespace {

constexpr int kWorkBits = 20;

constexpr std::int64_t kFine = 1000;  // units of a thread

Int128 work_of(Time time) {
  return static_cast<Int128>(time.ps()) << kWorkBits;
}

// Threads of other programs that a calibration's had to share the cores with: ours, as many as cores, took `crowding`
// times as long as alone.
double competing(const cost::Device& device, int cores) {
  if (!device.cpu || !device.pace.known() || !device.pace.knows_waiting()) return 0;
  return cores * (device.pace.crowding_by_waiting() - 1);
}

}  // namespace

SharedCores::SharedCores(Clock& clock, const cluster::Cluster& cluster, const cost::Device& device, const Ranks& ranks,
                         const Jobs& jobs, Streams& streams, Devices& devices, Kernels& kernels)
    : clock_(clock),
      cluster_(cluster),
      sharing_(cluster.host_sharing()),
      unit_(competing(device, sharing_.cores) > 0 ? kFine : 1),
      others_(std::llround(competing(device, sharing_.cores) * static_cast<double>(kFine))),
      cores_(sharing_.cores * unit_ + others_),
      threads_(sharing_.cores > 0 && device.cpu),
      dispatch_(threads_ ? device.dispatch : Time()),
      wake_(threads_ ? device.wake : Time()),
      ranks_(ranks),
      jobs_(jobs),
      streams_(streams),
      devices_(devices),
      kernels_(kernels) {
  if (!shared()) return;
  runs_.resize(streams.size());
  nodes_.resize(static_cast<std::size_t>(cluster.nodes()));
}

void SharedCores::touch(RankId rank) {
  const NodeId node = node_of(rank);
  if (std::exchange(nodes_[node].touched, true)) return;
  touched_.push_back(node);
}

Time SharedCores::dispatch(StreamId id, std::int32_t op) const {
  const Place& place = streams_.place(id);
  const JobId job = place.code->job;
  return jobs_.jitter(job).dispatch(dispatch_, {ranks_[place.rank].number, place.step, place.slot.value(), op});
}

bool SharedCores::begin_gap(StreamId id) {
  Thread& thread = runs_[id].thread;
  const Thread before = std::exchange(thread, Thread::awake);
  const RankId rank = streams_.place(id).rank;
  if (before == Thread::dispatching) touch(rank);
  if (before == Thread::dispatching || before == Thread::waking) return false;
  const Place& place = streams_.place(id);
  const std::int32_t op = place.code->ops[place.segment().ops.first].op;
  const JobId job = place.code->job;
  Time gap = dispatch_;
  if (before == Thread::asleep)
    gap += jobs_.jitter(job).wake(wake_, {ranks_[place.rank].number, place.step, place.slot.value(), op});
  else
    gap = dispatch(id, op);
  if (gap == Time()) return false;
  streams_.set(id, Status::launching);
  thread = before == Thread::asleep ? Thread::waking : Thread::dispatching;
  if (thread == Thread::dispatching) touch(rank);
  clock_.at(clock_.now() + gap, EventKind::launch, id);
  return true;
}

void SharedCores::set_work(Work& work, Time alone) {
  work.left = work_of(alone);
  work.share = 0;
}

void SharedCores::begin_kernel(StreamId id, Time alone) {
  runs_[id].thread = Thread::awake;
  begin_copy(id, alone);
}

void SharedCores::begin_copy(StreamId id, Time alone) {
  set_work(runs_[id].work, alone);
  touch(streams_.place(id).rank);
}

bool SharedCores::end(StreamId id, std::uint32_t version) {
  const Work& work = runs_[id].work;
  if (work.version != version) return false;
  touch(streams_.place(id).rank);
  if (streams_.status(id) == Status::running) kernels_.count_time(id, clock_.now() - work.since);
  return true;
}

void SharedCores::begin_transfer(TransferId id, RankId rank, Time alone, int threads) {
  transfers_.reach(id);
  TransferRun& run = transfers_[id];
  set_work(run.work, alone);
  run.rank = rank, run.threads = threads;
  nodes_[node_of(rank)].transfers.push_back(id);
  touch(rank);
}

bool SharedCores::end_transfer(TransferId id, std::uint32_t version) {
  const TransferRun& run = transfers_[id];
  if (run.work.version != version) return false;
  std::erase(nodes_[node_of(run.rank)].transfers, id);
  touch(run.rank);
  return true;
}

std::int64_t SharedCores::threads_at_work(NodeId node, std::vector<StreamId>& running) const {
  const std::int32_t per_node = cluster_.devices_per_node();
  const RankId first(node.value() * per_node);
  std::int64_t threads = 0;
  for (const RankId rank : IdRange<RankId>{first, std::min(first + per_node, ranks_.next())})
    for (const StreamId id : ranks_[rank].streams()) {
      const Place& place = streams_.place(id);
      const Status status = streams_.status(id);
      const bool kernel = status == Status::running && serve(place);
      const bool gap = status == Status::launching && runs_[id].thread == Thread::dispatching;
      if (!kernel && !gap && status != Status::copying) continue;
      if (!gap) running.push_back(id);
      threads += kernel && place.computes() ? sharing_.threads_per_rank : 1;
    }
  for (const TransferId id : nodes_[node].transfers) threads += transfers_[id].threads;
  return threads;
}

void SharedCores::settle(NodeId node) {
  nodes_[node].touched = false;
  std::vector<StreamId> running;
  const std::int64_t threads = threads_at_work(node, running);
  const std::int64_t share = std::max<std::int64_t>(threads, sharing_.cores) * unit_ + others_;
  const int busy = static_cast<int>(std::min<std::int64_t>(threads, sharing_.cores));
  for (const StreamId id : running) rate_stream(id, share, busy);
  for (const TransferId id : nodes_[node].transfers) rate_transfer(id, share);
}

// What is left now of work that has gone on at cores_ / share.
void SharedCores::progress(Work& work) const {
  if (work.share == 0) return;
  work.left = std::max<Int128>(0, work.left - work_of(clock_.now() - work.since) * cores_ / work.share);
}

// Rounded up.
Time SharedCores::end_of(const Work& work) const {
  const Int128 unit = static_cast<Int128>(cores_) << kWorkBits;
  return work.since + Time::from_ps(static_cast<std::int64_t>((work.left * work.share + unit - 1) / unit));
}

// From now on the stream's kernel or copy runs at cores_ / share, the kernel alongside so many busy cores.
void SharedCores::rate_stream(StreamId id, std::int64_t share, int busy) {
  Work& work = runs_[id].work;
  const bool kernel = streams_.status(id) == Status::running;
  StateId state = kAlone;
  if (kernel) {
    state = devices_.state(streams_.place(id).rank);
    if (threads_) state = devices_.states().with_busy(state, busy);
  }
  const bool other_state = kernel && kernels_.state(id) != state;
  if (work.share == share && !other_state) return;
  if (work.share > 0 && kernel) kernels_.count_time(id, clock_.now() - work.since);
  progress(work);
  if (other_state) {
    const Kernels::Changed time = kernels_.set_state(id, state);
    const std::int64_t whole = time.before.ps();
    work.left = whole == 0 ? 0 : (work.left * time.after.ps() + whole - 1) / whole;
  }
  work.since = clock_.now();
  work.share = share;
  clock_.at(end_of(work), EventKind::core_work, id, ++work.version);
}

void SharedCores::rate_transfer(TransferId id, std::int64_t share) {
  Work& work = transfers_[id].work;
  if (work.share == share) return;
  progress(work);
  work.since = clock_.now();
  work.share = share;
  clock_.at(end_of(work), EventKind::core_transfer, id, ++work.version);
}

}  // namespace rehearse::engine
