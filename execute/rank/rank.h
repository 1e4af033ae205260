// A rank of a run as the Performer sees it, whatever performs it: the threads of a CPU rank (cpu_rank.h) or the streams
// of a GPU (gpu/gpu_rank.h). Made, initialised, started, joined; then asked what it measured. Whatever goes wrong in
// between is reported to the World's Failures.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "execute/measure.h"
#include "execute/timeline.h"
#include "sim/model/recorded_choices.h"
#include "sim/result/result.h"

namespace rehearse::execute {

struct Run;

// When a transfer began on a rank, and a wait of its compute stream that ended with a transfer: of ranks that learn
// only afterwards when others came (late_ranks.h). Times are ps since the run began.
struct TransferStart {
  std::int32_t step = 0, instance = 0;
  std::int64_t start_ps = 0;
};
struct TransferWait {
  std::int32_t step = 0, instance = 0;
  std::int64_t begin_ps = 0, end_ps = 0;
};

// What a rank's device was like while it performed (gpu/state_log.h); samples 0: not known.
struct DeviceConditions {
  std::int64_t samples = 0;
  int sm_mhz = 0, least_sm_mhz = 0, max_sm_mhz = 0, memory_mhz = 0, temperature_c = 0;
  double power_w = 0, power_limit_w = 0;
  bool throttle_known = false;
  std::uint64_t throttle = 0;  // kernels::throttle_text
};

// What lies outside the arenas on a rank's device, and what may be said of its clock. All 0 on a CPU.
struct DeviceUse {
  std::int64_t beside_bytes = 0;    // in use on the device that is no rank's arena; shared evenly by its ranks
  std::int64_t total_bytes = 0;     // of the device
  std::int64_t clock_drift_ps = 0;  // host clock minus device clock, gained over the run
  std::int64_t graph_steps = 0;     // steps that were replayed as a graph
  // Products whose algorithm was chosen by time, and those of them that are not the library's first choice.
  std::int64_t products = 0, other_products = 0;
  DeviceConditions conditions;
};

// What a rank's checkpoints cost it.
struct CheckpointUse {
  std::int64_t written = 0, bytes = 0;  // checkpoints; of the last of them
  std::int64_t all_bytes = 0;           // of all of them
  double stall_s = 0, write_s = 0;      // that the rank stood still, that its files were being written: of all of them
};

class Rank {
 public:
  virtual ~Rank() = default;

  virtual void initialise() = 0;  // in any thread; of several ranks at once
  virtual void start() = 0;
  virtual bool ended() const = 0;  // every thread is through, or has failed
  virtual void join() = 0;

  // After join().
  virtual int rank() const = 0;
  virtual const Timeline& timeline() const = 0;
  virtual const std::vector<Shares>& shares() const = 0;
  virtual std::vector<result::OpRecord> records() const = 0;
  virtual std::vector<float> parameters() const = 0;    // parameter_values()
  virtual std::vector<float> loss_scale() const = 0;    // loss_scale() of parameters.h
  virtual std::int64_t held_bytes() const = 0;          // of the arena
  virtual double first_weights_s() const { return 0; }  // that it took to get them from others, or to send them
  virtual CheckpointUse checkpoint_use() const { return {}; }
  virtual std::vector<model::RoutedChoices> routing() const { return {}; }  // if it was recorded
  virtual std::vector<TransferStart> transfer_starts() const { return {}; }
  virtual std::vector<TransferWait> transfer_waits() const { return {}; }
  virtual DeviceUse device_use() const { return {}; }
  virtual std::vector<result::ProductUse> products() const { return {}; }  // by the device's library
};

// The ranks' arenas together are larger than the memory that is there for them.
class DoesNotFit : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What makes the ranks of a process, if not the Performer itself on the CPU.
class RankMaker {
 public:
  virtual ~RankMaker() = default;
  // Before any process of `ranks`, which are to be on this machine, begins: throws DoesNotFit or
  // InputError.
  virtual void check(const std::vector<Timeline>& timelines, const plan::RankGrid& grid,
                     std::span<const int> ranks) = 0;
  // Throws DoesNotFit if the arena cannot be had.
  virtual std::unique_ptr<Rank> make(Run& run, int rank, bool reports_loss) = 0;
  virtual std::int64_t memory_of_a_rank() const = 0;  // bytes a rank may have on its device
};

}  // namespace rehearse::execute
