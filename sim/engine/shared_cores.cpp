// Kernels of ranks that share the cores of their node (CPU execution). With d the threads of all ranks whose compute
// stream is running a kernel, every such kernel progresses at min(1, cores / d). Kernels go one by one here, and every
// change of d or of interference re-rates the node at the end of the instant. Transfers take no cores: their cost on a
// host is in their measured times.
#include <algorithm>

#include "sim/base/check.h"
#include "sim/engine/simulator.h"

namespace rehearse::engine {

namespace {

constexpr int kWorkBits = 20;  // Lane::work: ps * 2^20

}  // namespace

void Simulator::touch_node(std::int32_t rank) {
  const std::int32_t node = cluster_.node_of(rank);
  if (node_touched_[static_cast<std::size_t>(node)]) return;
  node_touched_[static_cast<std::size_t>(node)] = 1;
  touched_nodes_.push_back(node);
}

// The lane's kernel at `position` is next, from `anchor` on.
void Simulator::begin_shared_kernel(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  lane.share = 0;
  if (lane.anchor > now_) {  // not launched yet
    lane.status = Status::launching;
    queue_.push(lane.anchor, target(EventKind::kernels, id), ++lane.version);
    return;
  }
  lane.status = Status::running;
  lane.state = ranks_[static_cast<std::size_t>(lane.rank)].state;
  lane.table = &lane.times->in_state(lane.state, states_);
  lane.work = static_cast<Int128>(lane.table->kernel(lane.position)) << kWorkBits;
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
  complete_kernel(lane, now_);
  if (++lane.position < item_of(lane).last) {
    lane.anchor = launch_cost_ > 0 ? std::max(now_, launch_time(lane, lane.position)) : now_;
    lane.kernel_start = lane.anchor;
    begin_shared_kernel(id);
    return;
  }
  lane.blame = item_of(lane).blame;
  lane.transferred = false;
  finish_item(id);
}

void Simulator::share_node(std::int32_t node) {
  node_touched_[static_cast<std::size_t>(node)] = 0;
  const std::int32_t first = node * cluster_.devices_per_node();
  const std::int32_t last = std::min(first + cluster_.devices_per_node(), static_cast<std::int32_t>(ranks_.size()));
  std::vector<LaneId> running;
  for (std::int32_t index = first; index < last; ++index) {
    const Rank& rank = ranks_[static_cast<std::size_t>(index)];
    for (const std::int32_t stream : rank.code->compute_streams)
      if (lanes_[static_cast<std::size_t>(rank.first_lane + stream)].status == Status::running)
        running.push_back(rank.first_lane + stream);
  }
  const std::int64_t threads = static_cast<std::int64_t>(running.size()) * sharing_.threads_per_rank;
  for (const LaneId id : running) reschedule_shared(id, std::max<std::int64_t>(threads, sharing_.cores));
}

// From now on the lane's kernel runs at cores / share.
void Simulator::reschedule_shared(LaneId id, std::int64_t share) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const StateId state = ranks_[static_cast<std::size_t>(lane.rank)].state;
  if (lane.share == share && lane.state == state) return;
  if (lane.share > 0) {
    const Int128 elapsed = static_cast<Int128>(now_ - lane.anchor) << kWorkBits;
    lane.work = std::max<Int128>(0, lane.work - elapsed * sharing_.cores / lane.share);
    lane.table->count_time(lane.position, now_ - lane.anchor);
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
  const Int128 unit = static_cast<Int128>(sharing_.cores) << kWorkBits;
  const auto left = static_cast<std::int64_t>((lane.work * share + unit - 1) / unit);
  queue_.push(now_ + left, target(EventKind::kernels, id), ++lane.version);
}

}  // namespace rehearse::engine
