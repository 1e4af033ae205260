// Ranks that share the cores of their node. With d the threads of all running kernels, of copies of messages and of
// transfers that cores move (TransferPlan::threads), each of these progresses at min(1, cores / d). Where k other
// programs' threads competed while the costs were measured (cost::Device::pace), they are in all durations as they were
// alongside as many threads of ours as cores, and alongside more of ours they get less: then it is (cores + k) / (d +
// k). On a CPU every stream is a thread, kernels of all of them count, a kernel is asked for as long as min(d, cores)
// cores are busy, and between the ops of a stream lies the time its thread needs to go on: `dispatch`, and `wake` if it
// slept. With another device's costs only compute streams take cores. Kernels go one by one here, and every change of d
// or of interference re-rates the node at the end of the instant.
//
// Leaves out: what the operating system's turns do to threads beyond the cores (all progress evenly here).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/cluster/cluster.h"
#include "sim/cost/cost.h"
#include "sim/engine/ids.h"
#include "sim/engine/interference.h"
#include "sim/engine/simulator/clock.h"
#include "sim/engine/simulator/devices.h"
#include "sim/engine/simulator/jobs.h"
#include "sim/engine/simulator/ranks.h"
#include "sim/engine/simulator/streams.h"
#include "sim/engine/wide.h"

namespace rehearse::engine {

class Kernels;

class SharedCores {
 public:
  // `device` is that of the ranks.
  SharedCores(Clock& clock, const cluster::Cluster& cluster, const cost::Device& device, const Ranks& ranks,
              const Jobs& jobs, Streams& streams, Devices& devices, Kernels& kernels);

  bool shared() const { return sharing_.cores > 0; }
  // Ranks are threads of a shared host, with gaps between their ops.
  bool threads() const { return threads_; }
  // Whether kernels of a stream run here.
  bool serve(const Place& place) const { return shared() && (place.computes() || threads_); }
  // Between the stream's last op and the one of this number in the body, both of one segment.
  Time dispatch(StreamId id, std::int32_t op) const;

  // Threads between ops. The stream's sleeps; it comes to its segment only after the gap that begin_gap() begins: false
  // if there is none, or it is over.
  void sleep(StreamId id) { runs_[id].thread = Thread::asleep; }
  bool begin_gap(StreamId id);
  bool gap_is_over(StreamId id) const {
    return runs_[id].thread == Thread::dispatching || runs_[id].thread == Thread::waking;
  }
  // Between the kernels of a segment: until its event.
  void wait_for_launch(StreamId id) { runs_[id].thread = threads_ ? Thread::dispatching : Thread::awake; }

  // The stream's kernel, or a copy by its thread, begins, and takes `alone` if there are cores enough.
  void begin_kernel(StreamId id, Time alone);
  void begin_copy(StreamId id, Time alone);
  // An event came up: whether it is the end of what the stream does now, which is then over.
  bool end(StreamId id, std::uint32_t version);

  // A transfer that so many cores of the rank's node move.
  void begin_transfer(TransferId id, RankId rank, Time alone, int threads);
  bool end_transfer(TransferId id, std::uint32_t version);

  // What runs on the rank's node, or beside what, has changed.
  void touch(RankId rank);
  // The end of an instant: re-rates the nodes that were touched.
  void settle() {
    for (const NodeId node : touched_) settle(node);
    touched_.clear();
  }

 private:
  // What the thread of a stream does when it runs nothing.
  enum class Thread : unsigned char {
    awake,
    asleep,       // since its segment has been at the head
    dispatching,  // it keeps a core busy in the gap before its segment
    waking
  };
  // `left` in ps * 2^20 from `since` on, at cores_ / share; share 0: not scheduled yet.
  struct Work {
    Int128 left = 0;
    Time since;
    std::int64_t share = 0;
    std::uint32_t version = 0;  // of the event of its end
  };
  struct StreamRun {
    Work work;
    Thread thread = Thread::awake;
  };
  struct TransferRun {
    Work work;
    RankId rank;
    int threads = 0;
  };
  struct Node {
    bool touched = false;
    std::vector<TransferId> transfers;
  };

  NodeId node_of(RankId rank) const { return NodeId(cluster_.node_of(rank.value())); }
  static void set_work(Work& work, Time alone);
  void progress(Work& work) const;
  Time end_of(const Work& work) const;
  std::int64_t threads_at_work(NodeId node, std::vector<StreamId>& running) const;
  void settle(NodeId node);
  void rate_stream(StreamId id, std::int64_t share, int busy);
  void rate_transfer(TransferId id, std::int64_t share);

  Clock& clock_;
  const cluster::Cluster& cluster_;
  const cluster::HostSharing sharing_;
  const std::int64_t unit_;    // of cores_ and shares: thousandths of a thread where others compete, else threads
  const std::int64_t others_;  // threads of other programs, in units
  const std::int64_t cores_;   // and those others, in units
  const bool threads_;
  const Time dispatch_, wake_;
  const Ranks& ranks_;
  const Jobs& jobs_;
  Streams& streams_;
  Devices& devices_;
  Kernels& kernels_;
  IdVector<StreamId, StreamRun> runs_;
  IdVector<TransferId, TransferRun> transfers_;
  IdVector<NodeId, Node> nodes_;
  std::vector<NodeId> touched_;
};

}  // namespace rehearse::engine
