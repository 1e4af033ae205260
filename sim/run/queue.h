// Many jobs that wait for GPUs of one cluster: when each starts and ends, and how the cluster's time is spent. A job of
// at most a host's GPUs is given them on one host, the fullest that has room; a larger one whole hosts. Jobs do not
// share links here (cluster.jobs of a scenario does), and how long each works is known.
//
//   fifo      in the order they came: whoever is first and does not fit holds up all others
//   backfill  EASY (Lifka 1995, "The ANL/IBM SP scheduling system"): the first that does not fit is promised the
//             earliest instant at which running jobs leave it room; others go before it where it still starts then
//   gang      Ousterhout 1982: up to `level` sets of jobs share the GPUs by turns of `slice_s`; all GPUs of a job run
//             at once, and at each turn the cluster stands still for `switch_s`, in which states are copied
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/result/queue.h"

namespace rehearse::run {

enum class QueuePolicy : unsigned char { fifo, backfill, gang };

const char* policy_name(QueuePolicy policy);  // "backfill"

struct QueuedJob {
  std::int64_t gpus = 1;
  double work_s = 0;    // on its GPUs, undisturbed
  double arrive_s = 0;  // with `after`: so long after those have ended
  int group = 0;        // 0, 1, ...
  int after = -1;       // all jobs of this earlier group end first; -1: of none
};

struct QueueRequest {
  std::int64_t hosts = 1, devices = 1;  // devices of a host
  QueuePolicy policy = QueuePolicy::fifo;
  double slice_s = 0, switch_s = 0;  // gang
  std::int64_t level = 1;            // gang
  std::vector<QueuedJob> jobs;
};

struct QueueOutcome {
  std::vector<result::QueuedRun> runs;  // of each job
  double makespan_s = 0;
  result::QueueShares gpu_s;
};

// Each job fits on the empty cluster, and those of more than a host's devices take whole hosts: checked. Throws
// InputError where turns are too many to simulate, Interrupted.
QueueOutcome simulate_queue(const QueueRequest& request);

}  // namespace rehearse::run
