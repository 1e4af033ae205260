// Ranks that share the cores of their node. With d the threads of all running kernels, of copies of messages and of
// transfers that cores move (TransferPlan::threads), each of these progresses at min(1, cores / d). On a CPU (cpu_)
// every stream is a thread, kernels of all of them count, a kernel is asked for as long as min(d, cores) cores are
// busy, and between the ops of a stream lies the time its thread needs to go on: `dispatch`, and `wake` if it slept.
// With another device's costs only compute streams take cores. Kernels go one by one here, and every change of d or of
// interference re-rates the node at the end of the instant.
//
// Leaves out: what the operating system's turns do to threads beyond the cores (all progress evenly here).
#include <algorithm>

#include "sim/base/check.h"
#include "sim/engine/simulator.h"

namespace rehearse::engine {

namespace {

constexpr int kWorkBits = 20;  // Lane::work: ps * 2^20

Int128 work_of(std::int64_t ps) {
  return static_cast<Int128>(ps) << kWorkBits;
}

// What is left of `work` after `elapsed` ps at cores / share.
Int128 after(Int128 work, std::int64_t elapsed, std::int64_t cores, std::int64_t share) {
  return std::max<Int128>(0, work - work_of(elapsed) * cores / share);
}

// How long it takes at cores / share, rounded up.
std::int64_t time_for(Int128 work, std::int64_t cores, std::int64_t share) {
  const Int128 unit = work_of(cores);
  return static_cast<std::int64_t>((work * share + unit - 1) / unit);
}

}  // namespace

void Simulator::touch_node(std::int32_t rank) {
  const std::int32_t node = cluster_.node_of(rank);
  if (node_touched_[static_cast<std::size_t>(node)]) return;
  node_touched_[static_cast<std::size_t>(node)] = 1;
  touched_nodes_.push_back(node);
}

// The time before the lane's item that its thread needs to come to it: false if there is none or it is over.
bool Simulator::begin_gap(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const bool slept = std::exchange(lane.slept, false);
  if (std::exchange(lane.gap_over, false)) {
    if (std::exchange(lane.at_work, false)) touch_node(lane.rank);
    return false;
  }
  const std::int64_t gap = dispatch_ + (slept ? wake_ : 0);
  if (gap == 0) return false;
  lane.status = Status::launching;
  lane.gap_over = true;
  lane.at_work = !slept;
  if (lane.at_work) touch_node(lane.rank);
  queue_.push(now_ + gap, target(EventKind::launch, id), 0);
  return true;
}

// The lane's kernel at `position` is next, from `anchor` on.
void Simulator::begin_shared_kernel(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  lane.share = 0;
  if (lane.anchor > now_) {  // not launched yet
    lane.status = Status::launching;
    lane.at_work = cpu_;
    queue_.push(lane.anchor, target(EventKind::kernels, id), ++lane.version);
    return;
  }
  lane.status = Status::running;
  lane.at_work = false;
  lane.state = ranks_[static_cast<std::size_t>(lane.rank)].state;
  lane.table = &lane.times->in_state(lane.state, states_);
  lane.work = work_of(kernel_time(lane, lane.position));
  touch_node(lane.rank);
}

void Simulator::end_shared_kernel(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  if (lane.status == Status::launching) {
    begin_shared_kernel(id);
    return;
  }
  touch_node(lane.rank);
  lane.table->count_time(lane.position, now_ - lane.anchor);
  complete_kernel(id, now_);
  if (++lane.position < item_of(lane).last) {
    lane.anchor = now_ + dispatch_;
    if (lane.code->launch_cost > 0) lane.anchor = std::max(lane.anchor, launch_time(lane, lane.position));
    lane.kernel_start = lane.anchor;
    begin_shared_kernel(id);
    return;
  }
  finish_item(id);
}

void Simulator::begin_shared_copy(LaneId id, std::int64_t ps) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  lane.work = work_of(ps);
  lane.share = 0;
  touch_node(lane.rank);
}

void Simulator::begin_core_transfer(std::int32_t number) {
  Transfer& transfer = matching_.transfer(number);
  const std::int32_t rank = matching_.group(transfer.group).group->ranks.front();
  const std::int64_t core_time = matching_.plan(transfer.plan).core_time;
  transfer.work = work_of(noisy_transfers_ ? times(core_time, factor_of_transfer(transfer)) : core_time);
  transfer.share = 0;
  core_transfers_[static_cast<std::size_t>(cluster_.node_of(rank))].push_back(number);
  touch_node(rank);
}

void Simulator::end_core_transfer(std::int32_t number) {
  const std::int32_t rank = matching_.group(matching_.transfer(number).group).group->ranks.front();
  std::erase(core_transfers_[static_cast<std::size_t>(cluster_.node_of(rank))], number);
  touch_node(rank);
  end_transfer(number);
}

std::int64_t Simulator::threads_at_work(std::int32_t node, std::vector<LaneId>& running) const {
  const std::int32_t first = node * cluster_.devices_per_node();
  const std::int32_t last = std::min(first + cluster_.devices_per_node(), static_cast<std::int32_t>(ranks_.size()));
  std::int64_t threads = 0;
  for (std::int32_t index = first; index < last; ++index) {
    const Rank& rank = ranks_[static_cast<std::size_t>(index)];
    for (std::int32_t stream = 0; stream < rank.code->streams; ++stream) {
      const Lane& lane = lanes_[static_cast<std::size_t>(rank.first_lane + stream)];
      const bool kernel = lane.status == Status::running && on_shared_cores(lane);
      const bool gap = lane.status == Status::launching && lane.at_work;
      if (!kernel && !gap && lane.status != Status::copying) continue;
      if (!gap) running.push_back(rank.first_lane + stream);
      threads += kernel && lane.compute ? sharing_.threads_per_rank : 1;
    }
  }
  for (const std::int32_t number : core_transfers_[static_cast<std::size_t>(node)])
    threads += matching_.plan(matching_.transfer(number).plan).threads;
  return threads;
}

void Simulator::share_node(std::int32_t node) {
  node_touched_[static_cast<std::size_t>(node)] = 0;
  std::vector<LaneId> running;
  const std::int64_t threads = threads_at_work(node, running);
  const std::int64_t share = std::max<std::int64_t>(threads, sharing_.cores);
  const int busy = static_cast<int>(std::min<std::int64_t>(threads, sharing_.cores));
  for (const LaneId id : running) {
    const StateId state = ranks_[static_cast<std::size_t>(lanes_[static_cast<std::size_t>(id)].rank)].state;
    reschedule_shared(id, share, cpu_ ? states_.with_busy(state, busy) : state);
  }
  for (const std::int32_t number : core_transfers_[static_cast<std::size_t>(node)])
    reschedule_core_transfer(number, share);
}

// From now on the lane's kernel or copy runs at cores / share, the kernel in `state`.
void Simulator::reschedule_shared(LaneId id, std::int64_t share, StateId state) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const bool kernel = lane.status == Status::running;
  if (!kernel) state = lane.state;
  if (lane.share == share && lane.state == state) return;
  if (lane.share > 0) {
    lane.work = after(lane.work, now_ - lane.anchor, sharing_.cores, lane.share);
    if (kernel) lane.table->count_time(lane.position, now_ - lane.anchor);
  }
  if (lane.state != state) {
    KernelTable& table = lane.times->in_state(state, states_);
    const std::int64_t whole = lane.table->kernel(lane.position), changed = table.kernel(lane.position);
    lane.work = whole == 0 ? 0 : (lane.work * changed + whole - 1) / whole;
    lane.state = state;
    lane.table = &table;
  }
  lane.anchor = now_;
  lane.share = share;
  queue_.push(now_ + time_for(lane.work, sharing_.cores, share), target(EventKind::kernels, id), ++lane.version);
}

void Simulator::reschedule_core_transfer(std::int32_t number, std::int64_t share) {
  Transfer& transfer = matching_.transfer(number);
  if (transfer.share == share) return;
  if (transfer.share > 0) transfer.work = after(transfer.work, now_ - transfer.anchor, sharing_.cores, transfer.share);
  transfer.anchor = now_;
  transfer.share = share;
  queue_.push(now_ + time_for(transfer.work, sharing_.cores, share), target(EventKind::cores, number),
              ++transfer.version);
}

}  // namespace rehearse::engine
