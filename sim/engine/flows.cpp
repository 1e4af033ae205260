// See flows.h.
#include "sim/engine/flows.h"

#include <algorithm>

#include "sim/base/interrupt.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/longest_run.h"
#include "sim/engine/network.h"

namespace rehearse::engine {
namespace {

constexpr std::uint32_t kFlowMoves = 0, kFlowActivity = std::uint32_t{1} << 30;

class Flows {
 public:
  Flows(const std::vector<collective::TransferPlan>& transfers, const cluster::Cluster& cluster)
      : transfers_(transfers), network_(cluster, queue_, kFlowActivity), flows_(transfers.size()) {
    run_.ends.resize(transfers.size());
    run_.link_bytes.assign(cluster.resources().size(), 0);
    for (std::size_t t = 0; t < transfers.size(); ++t) {
      for (const collective::Activity& activity : transfers[t].activities) {
        for (const collective::Use& use : activity.uses)
          run_.link_bytes[static_cast<std::size_t>(use.resource)] += use.bytes;
        if (activity.min_duration > Time()) flows_[t].activities.push_back(network_.define(activity));
      }
      queue_.push(transfers[t].copy_out + transfers[t].startup, kFlowMoves | static_cast<std::uint32_t>(t), 0);
    }
  }

  FlowsRun run() {
    std::vector<Event> instant;
    while (!queue_.empty()) {
      check_interrupt();
      const Time now = queue_.next_time();
      require_countable(now);
      while (!queue_.empty() && queue_.next_time() == now) {
        queue_.take(instant);
        for (const Event& event : instant) dispatch(event, now);
      }
      network_.settle(now);
    }
    for (const Time end : run_.ends) run_.end = std::max(run_.end, end);
    return std::move(run_);
  }

 private:
  struct Flow {
    std::vector<ActivityId> activities;
    std::size_t moving = 0;
  };

  void dispatch(const Event& event, Time now) {
    if ((event.target & kFlowActivity) != 0) {
      const std::uint32_t slot = event.target & (kFlowActivity - 1);
      if (!network_.current(slot, event.version)) return;
      const auto owner = static_cast<std::size_t>(network_.finish(slot));
      if (--flows_[owner].moving == 0) run_.ends[owner] = now + transfers_[owner].copy_in;
      return;
    }
    Flow& flow = flows_[event.target];
    flow.moving = flow.activities.size();
    if (flow.moving == 0) run_.ends[event.target] = now + transfers_[event.target].copy_in;
    for (const ActivityId activity : flow.activities)
      network_.start(activity, static_cast<std::int32_t>(event.target), now);
  }

  const std::vector<collective::TransferPlan>& transfers_;
  EventQueue queue_;
  Network network_;
  std::vector<Flow> flows_;
  FlowsRun run_;
};

}  // namespace

FlowsRun run_flows(const std::vector<collective::TransferPlan>& transfers, const cluster::Cluster& cluster) {
  return Flows(transfers, cluster).run();
}

}  // namespace rehearse::engine
