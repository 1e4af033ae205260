// What interrupts a run of weeks, and how it goes on (sections `failures` and `checkpoint` of a scenario): of what
// `rehearse goodput` simulates (sim/run/weeks.h). A step knows nothing of either.
#pragma once

#include <cstdint>

#include "sim/base/units.h"

namespace rehearse::plan {

// Where no spare host is left: the run waits for a repair, or goes on with fewer replicas and the batch as it is.
enum class WithoutSpares : unsigned char { wait, fewer_replicas };

// Mean times between failures are hours of one unit; 0: it never fails. A failure of any unit stops the run.
struct Failures {
  double gpu_mtbf_hours = 0, nic_mtbf_hours = 0, host_mtbf_hours = 0, switch_mtbf_hours = 0;
  double job_mtbf_hours = 0;  // of the whole run, however large: its software
  std::int64_t gpus_per_switch = 16;
  Time detection, restart;
  std::int64_t spare_hosts = -1;  // -1: as many as are needed
  double repair_hours = 24;
  WithoutSpares without_spares = WithoutSpares::wait;

  bool any() const {
    return gpu_mtbf_hours > 0 || nic_mtbf_hours > 0 || host_mtbf_hours > 0 || switch_mtbf_hours > 0 ||
           job_mtbf_hours > 0;
  }
};

// sync: ranks stand still until all is written. async: until it is copied to the host's memory. incremental: until what
// has changed since the checkpoint before is found and written.
enum class CheckpointMode : unsigned char { sync, async, incremental };

struct CheckpointRequest {
  Time interval;  // zero: the best one
  CheckpointMode mode = CheckpointMode::sync;
  Bytes bytes;                                  // of a whole checkpoint; zero: by the model and its training
  Bandwidth storage_bandwidth, rank_bandwidth;  // of all ranks together; at most of each, zero: no limit of its own
  Bandwidth copy_bandwidth;
  double changed_share = -1;     // of the bytes, from one checkpoint to the next; below 0: of what is trained
  std::int64_t base_every = 10;  // incremental: every so many checkpoints a whole one
};

}  // namespace rehearse::plan
