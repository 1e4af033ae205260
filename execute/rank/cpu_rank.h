// One rank of a run on the CPU: an arena, and a thread for each stream that has ops, which performs the stream's ops
// step after step in program order. Threads of a rank wait for one another by position (timeline.h) under one mutex; of
// other ranks they know only through the communicator. Whatever a thread throws is reported to the World and stops the
// run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "execute/history.h"
#include "execute/measure.h"
#include "execute/rank/first_weights.h"
#include "execute/rank/kernel_call.h"
#include "execute/rank/op_ranges.h"
#include "execute/rank/rank.h"
#include "execute/rank/rank_layout.h"
#include "execute/rank/routing_log.h"
#include "execute/rank/run.h"
#include "execute/timeline.h"
#include "execute/transport/communicator.h"
#include "kernels/device.h"

namespace rehearse::execute {

class CpuRank final : public Rank {
 public:
  CpuRank(Run& run, int rank, bool reports_loss);
  ~CpuRank() override;

  void initialise() override;
  void start() override;
  bool ended() const override { return running_ == 0; }
  void join() override;

  int rank() const override { return rank_; }
  const Timeline& timeline() const override { return timeline_; }
  const std::vector<Shares>& shares() const override { return shares_; }
  // Those of the steps since the last call, which are forgotten; while the rank stands between two steps of a phase.
  std::vector<Shares> take_shares() { return std::exchange(shares_, {}); }
  std::vector<result::OpRecord> records() const override;
  std::vector<float> parameters() const override;
  std::vector<float> loss_scale() const override;
  std::int64_t held_bytes() const override;
  double first_weights_s() const override { return first_weights_s_; }
  CheckpointUse checkpoint_use() const override;
  std::vector<model::RoutedChoices> routing() const override {
    return routing_ ? routing_->all() : std::vector<model::RoutedChoices>();
  }

 private:
  struct StreamState {
    std::condition_variable changed;
    std::int64_t done = 0;  // position published, since the run began
    int waits_for = -1;     // stream we sleep for, until it has done `needed`
    std::int64_t needed = 0;
    std::vector<std::condition_variable*> to_wake;  // streams' `changed`, once its own thread has published
    History history;                                // up to `done`
    std::vector<Clock::time_point> ended;           // by position in the step, of ops that are waited for
    std::vector<Stretch> unpublished;               // not yet in the history; of its own thread
    std::unique_ptr<kernels::Device> device;
    std::vector<result::OpRecord> records;
    std::vector<std::int64_t> known;        // other streams' positions we have waited for
    kernels::StepValues* values = nullptr;  // of the step its ops are in; streams are not in step with one another
    std::vector<std::int64_t> examples;
    std::vector<kernels::Out> operands;  // of the kernel under way
    std::vector<float> loaded;           // before it is rounded
    std::thread thread;
  };
  // What a stream's thread makes of its time: the compute stream shares of the step, others their history.
  struct Timing {
    bool compute = false;
    Clock::time_point now;  // accounted for up to here
    Shares shares{};
    std::vector<Stretch>* unpublished = nullptr;
  };
  // The end of a wait: what ended last of what was waited for.
  struct WaitEnd {
    const Instance* op = nullptr;
    Clock::time_point ended;
  };

  void get_first_weights();
  void run_stream(std::int32_t stream);
  void perform_steps(std::int32_t stream);
  bool goes_on(std::int64_t step);          // to this one
  bool ends_with(std::int64_t step) const;  // of one that has begun
  void await(StreamState& own, const Instance& i, std::int64_t step, Timing& timing);
  // Who came last to a transfer; of a kernel, no time.
  Arrival perform(StreamState& own, const Instance& i, std::int64_t step);
  void load(StreamState& own, const program::Input& input, kernels::Out to);
  void save_checkpoint(std::int64_t steps_done);
  void pull_parameters(std::int64_t step, Timing& timing);
  void push_gradients(std::int64_t step, Timing& timing);
  bool begin_phase_step(std::int64_t step, Timing& timing);
  void end_phase_step(std::int64_t step, Timing& timing);
  template <class Work>
  void with_all_standing(std::int64_t moment, Work work);
  void publish_times(StreamState& own, const Timing& timing);
  void end_step(StreamState& own, const Timing& timing);
  void publish(StreamState& own, const Instance& i, std::int64_t step, const Timing& timing);
  Arrival transfer(const Instance& i, const program::Op& op, std::int64_t step);
  Arrival collective(const Instance& i, const program::Op& op, const program::Collective& c, std::int64_t step);
  Arrival exchange(const Instance& i, const program::PointToPoint& p, std::int64_t step);
  void count_op(Timing& timing, const program::Op& op, const Arrival& last, Clock::time_point end);
  void record(StreamState& own, const Instance& i, std::int64_t step, Clock::time_point start, Clock::time_point end,
              const Arrival& last);
  void report_losses(std::int64_t step);
  void count_wait(Timing& timing, const WaitEnd& wait);
  void count(Timing& timing, result::Share share, Clock::time_point until);
  kernels::Out operand(std::size_t place) const { return layout_.operand(memory_, place); }
  std::int32_t instance_at(std::int32_t stream) const;

  Run& run_;
  int rank_;
  bool reports_loss_;
  const Timeline& timeline_;
  const RankLayout layout_;
  const OpRanges ranges_;
  Communicator& communicator_;
  const FirstWeights first_weights_;
  std::vector<std::int64_t> calls_before_;  // the first step, by group: of first_weights_
  double first_weights_s_ = 0;
  Whereabouts& at_;
  RankMemory memory_;
  std::vector<float> losses_;      // of the iteration, which a worker of parameter servers keeps
  std::int32_t timed_stream_ = 0;  // the compute stream, whose time is accounted for
  std::mutex mutex_;               // of StreamState::done, waits_for, needed, history, ended; asked_since_
  std::vector<std::unique_ptr<StreamState>> streams_;
  Clock::time_point asked_since_;  // the compute stream asks for nothing that was before
  std::atomic<int> running_ = 0;
  int threads_ = 0;             // of streams
  int standing_ = 0;            // threads that have come where all stand still (with_all_standing); with the mutex
  std::int64_t stood_ = 0;      // the last moment at which they did: at checkpoints steps done; with the mutex
  bool goes_on_ = true;         // of a phase: there is another step; written and read around a stand
  Clock::time_point admitted_;  // when the servers let the last pull begin; written and read around a stand
  std::condition_variable stood_changed_;
  std::vector<Shares> shares_;           // by step; written by the compute stream
  std::unique_ptr<RoutingLog> routing_;  // likewise; null: not asked for
  std::optional<RoutingReplay> replay_;  // where choices are those of a record
};

}  // namespace rehearse::execute
