// What jobs that wait in a queue come to (sim/run/queue.h): what `rehearse queue` prints (reports/queue.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rehearse::result {

// Where the GPUs' time goes until the last job ends, in GPU-seconds; they sum to the makespan x all GPUs. Of GPUs that
// stand free while a job waits: `fragmented` where there are enough of them for it, but not on one host or not in whole
// hosts; `too_few` where there are not, or where only jobs of other turns do. `idle`: nothing waits.
struct QueueShares {
  double busy = 0, switching = 0, fragmented = 0, too_few = 0, idle = 0;
};

struct QueuedRun {
  double arrive_s = 0, start_s = 0, end_s = 0;
};

// Jobs of one entry of the file. `work_s`: of one, in its first rung; `step_s`: of its scenario, 0 without one;
// `copy_s`: of weights between rounds.
struct QueueGroup {
  std::string name;
  std::int64_t gpus = 1;
  bool grows = false;  // later rungs work longer
  std::string batch;   // of a job with a scenario: what a step trains on, in words
  double step_s = 0, work_s = 0, copy_s = 0;
};

struct QueueResult {
  std::string name, topology, policy, policy_text;  // "gang"; "gang: turns of 10 min, ..."
  std::int64_t hosts = 1, devices = 1;              // devices of a host
  std::vector<QueueGroup> groups;
  std::vector<std::size_t> group_of;  // by job
  std::vector<QueuedRun> runs;        // by job
  double makespan_s = 0;
  QueueShares gpu_s;
  double price_per_gpu_hour = 0;  // 0: not known

  std::int64_t gpus() const { return hosts * devices; }
  double all_gpu_s() const { return makespan_s * static_cast<double>(gpus()); }
  double utilisation() const { return makespan_s > 0 ? gpu_s.busy / all_gpu_s() : 0; }
};

// The same jobs with another number of GPUs each. `problem`: why that cannot be; "" where it can.
struct QueueChoice {
  std::int64_t gpus = 0;
  std::string problem;
  QueueResult result;
};

}  // namespace rehearse::result
