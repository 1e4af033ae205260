// One rank of a run: an arena, and a thread for each stream that has ops, which walks the stream's ops step after step
// in program order. Threads of a rank wait for one another by position (timeline.h) under one mutex; of other ranks
// they know only through the communicator. Whatever a thread throws is told to the World and stops the run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "execute/any_rank.h"
#include "execute/communicator.h"
#include "execute/data.h"
#include "execute/kernel_call.h"
#include "execute/measure.h"
#include "execute/performer.h"
#include "execute/timeline.h"
#include "execute/world.h"
#include "kernels/device.h"

namespace rehearse::execute {

// What the ranks of a run that are here share. Outlives them.
struct Run {
  const plan::Scenario& scenario;
  const program::Program& program;
  const plan::RankGrid& grid;
  const Options& options;
  Data& data;
  World& world;
  const std::vector<Timeline>& timelines;  // by role
  int threads_per_rank = 1;
  Clock::time_point began;

  const Timeline& timeline(int rank) const {
    return timelines[static_cast<std::size_t>(grid.coordinate(rank, Axis::pipeline))];
  }
  // Of any rank, from any thread.
  std::string whereabouts(int rank) const { return whereabouts_text(timeline(rank), rank, world.whereabouts(rank)); }
};

class Rank final : public AnyRank {
 public:
  Rank(Run& run, int rank, bool reports_loss);
  ~Rank() override;

  void initialise() override;
  void start() override;
  bool ended() const override { return running_ == 0; }
  void join() override;

  int rank() const override { return rank_; }
  const Timeline& timeline() const override { return timeline_; }
  const std::vector<Shares>& shares() const override { return shares_; }
  std::vector<result::OpRecord> records() const override;
  std::vector<float> parameters() const override;
  std::vector<float> loss_scale() const override;
  std::int64_t held_bytes() const override;

 private:
  struct StreamState {
    std::condition_variable changed;
    std::int64_t done = 0;  // position published, since the run began
    int waits_for = -1;     // stream we sleep for, until it has done `needed`
    std::int64_t needed = 0;
    std::vector<Clock::time_point> met;  // by position in the step: when a transfer's last participant came
    std::unique_ptr<kernels::Device> device;
    std::vector<result::OpRecord> records;
    std::vector<std::int64_t> known;        // other streams' positions we have waited for
    kernels::StepValues* values = nullptr;  // of the step its ops are in; streams are not in step with one another
    std::vector<std::int64_t> examples;
    std::vector<float> loaded;  // before it is rounded
    std::thread thread;
  };
  struct Timing {  // of the compute stream
    bool on = false;
    Clock::time_point now;
    Shares shares{};
  };

  void run_stream(std::int32_t stream);
  void walk(std::int32_t stream);
  void await(StreamState& own, const Instance& i, std::int64_t step, Timing& timing);
  // When a transfer's last participant had come; of a kernel, no time.
  Clock::time_point perform(StreamState& own, const Instance& i, std::int64_t step);
  void load(StreamState& own, const program::Input& input, kernels::Out to);
  void publish(std::int32_t stream, StreamState& own, const Instance& i, std::int64_t step, Clock::time_point met);
  Clock::time_point transfer(const Instance& i, const program::Op& op, std::int64_t step);
  Clock::time_point collective(const Instance& i, const program::Op& op, const program::Collective& c,
                               std::int64_t step);
  Clock::time_point exchange(const Instance& i, const program::PointToPoint& p, std::int64_t step);
  void blame(const Instance& earlier, Clock::time_point met, Timing& timing);
  void count(Timing& timing, result::Share share, Clock::time_point until);
  void* pointer(std::size_t place) const;
  kernels::Out operand(std::size_t place) const;
  std::int64_t first_sequence(const Instance& i) const;  // of its micro-batch, counted from the step's first
  std::int64_t call_number(std::size_t call, std::int64_t step) const;
  void note_failure(std::int32_t stream, const std::string& what, const std::vector<int>& missing, bool cause);

  Run& run_;
  int rank_;
  bool reports_loss_;
  const Timeline& timeline_;
  Communicator& communicator_;
  Whereabouts& at_;
  std::byte* arena_ = nullptr;
  std::vector<std::int64_t> shift_;        // by buffer: bytes from its base instance to the view, for this rank
  std::vector<std::vector<int>> members_;  // by group
  std::int32_t timed_stream_ = 0;          // the compute stream, whose time is accounted for
  std::mutex mutex_;                       // of StreamState::done, waits_for, needed, met
  std::vector<std::unique_ptr<StreamState>> streams_;
  std::atomic<int> running_ = 0;
  std::vector<Shares> shares_;  // by step; written by the compute stream
};

}  // namespace rehearse::execute
