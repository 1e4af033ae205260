// One rank of a run: an arena, and a thread for each stream that has ops, which walks the stream's ops step after step
// in program order. Threads of a rank wait for one another by position (timeline.h) under one mutex; of other ranks
// they know only through the communicator. Whatever a thread throws is noted in Failures and stops the run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "execute/communicator.h"
#include "execute/data.h"
#include "execute/kernel_call.h"
#include "execute/measure.h"
#include "execute/performer.h"
#include "execute/run_state.h"
#include "execute/timeline.h"
#include "kernels/device.h"

namespace rehearse::execute {

// What the ranks of a run share. Outlives them.
struct Run {
  const plan::Scenario& scenario;
  const program::Program& program;
  const plan::RankGrid& grid;
  const Options& options;
  Data& data;
  Stop& stop;
  Losses& losses;
  Failures& failures;
  int threads_per_rank = 1;
  Clock::time_point began;
  std::function<std::string(int rank)> whereabouts;  // Rank::whereabouts of any rank
};

class Rank {
 public:
  // `loss_reporter`: our number among those that report the loss, -1 if we do not.
  Rank(Run& run, int rank, const Timeline& timeline, Communicator& communicator, int loss_reporter);
  ~Rank();

  void initialise();
  void start();
  void join();

  // After join().
  const std::byte* arena() const { return arena_; }
  const Timeline& timeline() const { return timeline_; }
  const std::vector<Shares>& shares() const { return shares_; }
  std::vector<result::OpRecord> records() const;
  // "rank 3 (stage1) in 'layer2...' (slot 4: forward micro-batch 2)": where it is. From any thread.
  std::string whereabouts() const;

 private:
  struct StreamState {
    std::condition_variable changed;
    std::int64_t done = 0;  // position published, since the run began
    int waits_for = -1;     // stream we sleep for, until it has done `needed`
    std::int64_t needed = 0;
    std::vector<Clock::time_point> met;       // by position in the step: when a transfer's last participant came
    std::atomic<std::int32_t> instance = -1;  // being done; -1: none
    std::unique_ptr<kernels::Device> device;
    std::vector<result::OpRecord> records;
    std::vector<std::int64_t> known;  // other streams' positions we have waited for
    std::vector<std::int64_t> examples;
    std::int32_t examples_slot = -1;
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
  void perform(StreamState& own, const Instance& i, std::int64_t step);
  void publish(std::int32_t stream, StreamState& own, const Instance& i, std::int64_t step, Clock::time_point met);
  Clock::time_point transfer(const Instance& i, const program::Op& op, std::int64_t step);
  Clock::time_point collective(const Instance& i, const program::Op& op, const program::Collective& c,
                               std::int64_t step);
  Clock::time_point exchange(const Instance& i, const program::PointToPoint& p, std::int64_t step);
  void blame(const Instance& earlier, Clock::time_point met, Timing& timing);
  void count(Timing& timing, result::Share share, Clock::time_point until);
  void* pointer(std::size_t place) const;
  const std::vector<std::int64_t>& examples(StreamState& own, const Instance& i, std::int64_t step) const;
  std::int64_t call_number(std::size_t call, std::int64_t step) const;
  std::string place_of(std::int32_t instance) const;
  void note_failure(std::int32_t stream, const std::string& what, const std::vector<int>& missing, bool cause);

  Run& run_;
  int rank_, loss_reporter_;
  const Timeline& timeline_;
  Communicator& communicator_;
  std::byte* arena_ = nullptr;
  std::vector<std::int64_t> shift_;        // by buffer: bytes from its base instance to the view, for this rank
  std::vector<std::vector<int>> members_;  // by group
  std::int32_t timed_stream_ = 0;          // the compute stream, whose time is accounted for
  std::mutex mutex_;                       // of StreamState::done, waits_for, needed, met
  std::vector<std::unique_ptr<StreamState>> streams_;
  std::vector<Shares> shares_;  // by step; written by the compute stream
};

}  // namespace rehearse::execute
