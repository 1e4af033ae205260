// Kernels of a lane: an item of them runs to its end unless interference changes in between; see simulator.h.
#include <algorithm>

#include "sim/base/check.h"
#include "sim/engine/simulator.h"

namespace rehearse::engine {

void Simulator::begin_kernels(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const Item& item = item_of(lane);
  lane.status = Status::running;
  lane.position = item.first;
  lane.state = lane.compute ? ranks_[static_cast<std::size_t>(lane.rank)].state : 0;
  lane.table = &lane.times->in_state(lane.state, states_);
  lane.whole = true;
  lane.gaps = false;
  lane.anchor = now_;
  if (lane.code->launch_cost > 0) {
    lane.launch_base = launch_base(lane);
    lane.anchor = std::max(now_, launch_time(lane, item.first));
    lane.gaps = launch_time(lane, item.last - 1) > now_;
  }
  lane.one_by_one = lane.gaps || recording(lane);
  lane.gaps = lane.gaps || noisy_kernels_;
  lane.kernel_start = lane.anchor;
  if (on_shared_cores(lane)) {
    begin_shared_kernel(id);
    return;
  }
  const std::int64_t all = lane.table->item(lane.item);
  lane.left = kernel_time(lane, item.first);
  if (lane.gaps)
    schedule_kernels(id);
  else
    queue_.push(now_ + all, target(EventKind::kernels, id), ++lane.version);
}

// The item's end, from the kernel in progress on.
void Simulator::schedule_kernels(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const std::int32_t last = item_of(lane).last;
  std::int64_t end = lane.anchor + lane.left;
  if (lane.gaps) {
    for (std::int32_t position = lane.position + 1; position < last; ++position)
      end = std::max(end, launch_time(lane, position)) + kernel_time(lane, position);
  } else {
    end += lane.table->item(lane.item) - lane.table->before(lane.position) - lane.table->kernel(lane.position);
  }
  queue_.push(end, target(EventKind::kernels, id), ++lane.version);
}

void Simulator::end_kernels(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  if (lane.status == Status::copying) {
    end_copy(id);
    return;
  }
  if (on_shared_cores(lane)) {
    end_shared_kernel(id);
    return;
  }
  const Item& item = item_of(lane);
  if (lane.whole && !lane.one_by_one) {
    lane.table->count_item(lane.item);  // for coverage, as if there were no noise
  } else {
    run_until(id, now_);
    REHEARSE_CHECK(lane.position == item.last, "an item ended before its kernels");
  }
  // Kernels that were accounted for one by one have been told already.
  tell(id, share_of(lane, item), now_);
  finish_item(id);
}

// Completes the kernels of the item that have ended by `time` and brings up the next.
void Simulator::run_until(LaneId id, std::int64_t time) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  if (lane.anchor + lane.left > time) return;
  if (lane.one_by_one || noisy_kernels_)
    complete_one_by_one(id, time);
  else
    complete_together(lane, time);
}

void Simulator::complete_together(Lane& lane, std::int64_t time) {
  const std::int32_t last = item_of(lane).last;
  std::int64_t end = lane.anchor + lane.left;
  lane.table->count_time(lane.position, lane.left);
  const std::int32_t first = ++lane.position;
  for (; lane.position < last; ++lane.position) {
    lane.left = lane.table->kernel(lane.position);
    if (end + lane.left > time) break;
    end += lane.left;
  }
  lane.table->count_kernels(first, lane.position);
  lane.anchor = lane.kernel_start = end;
}

// Launches come between kernels, or each is recorded.
void Simulator::complete_one_by_one(LaneId id, std::int64_t time) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const std::int32_t last = item_of(lane).last;
  for (;;) {
    const std::int64_t end = lane.anchor + lane.left;
    if (end > time) return;
    lane.table->count_time(lane.position, lane.left);
    complete_kernel(id, end);
    if (++lane.position == last) return;
    lane.anchor = lane.gaps ? std::max(end, launch_time(lane, lane.position)) : end;
    lane.kernel_start = lane.anchor;
    lane.left = kernel_time(lane, lane.position);
  }
}

void Simulator::complete_kernel(LaneId id, std::int64_t end) {
  const Lane& lane = lanes_[static_cast<std::size_t>(id)];
  if (recording(lane)) {
    records_.push_back(record_of(id, lane.position, lane.kernel_start, end));
    released_[static_cast<std::size_t>(id)] = {end, kNobody};
  }
  tell(id, result::Share::host, lane.kernel_start);
  tell(id, share_of(lane, item_of(lane)), end);
}

// Interference on the lane's rank has changed: what is left of the kernel in progress takes its share of the new
// duration.
void Simulator::change_state(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  if (sharing_.cores > 0) {
    touch_node(lane.rank);
    return;
  }
  run_until(id, now_);
  REHEARSE_CHECK(lane.position < item_of(lane).last, "an item went on past its end");
  const StateId to = ranks_[static_cast<std::size_t>(lane.rank)].state;
  KernelTable& table = lane.times->in_state(to, states_);
  table.item(lane.item);
  const std::int64_t changed = table.kernel(lane.position);
  const bool begun = lane.kernel_start < now_;
  if (begun) {
    const std::int64_t whole = lane.table->kernel(lane.position), done = now_ - lane.anchor;
    lane.table->count_time(lane.position, done);
    lane.left = whole == 0 ? 0 : mul_div_up(lane.left - done, changed, whole);
    lane.anchor = now_;
  }
  lane.state = to;
  lane.table = &table;
  if (!begun) lane.left = kernel_time(lane, lane.position);
  lane.whole = false;
  schedule_kernels(id);
}

}  // namespace rehearse::engine
