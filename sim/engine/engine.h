// Performs a Program in simulated time. See engine.cpp for the flow. Deterministic: the same inputs give the same
// bytes.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/cost/cost.h"
#include "sim/engine/attention_loads.h"
#include "sim/engine/noise.h"
#include "sim/plan/rank_grid.h"
#include "sim/program/kernel_kinds.h"
#include "sim/program/link/send_slots.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::engine {

// Of a rank: what reads, decodes and hands over its micro-batches (simulator/loaders.h).
struct Loader {
  Time batch;       // what a worker takes for a micro-batch; without workers the process itself
  int workers = 0;  // that take turns
  int ahead = 0;    // micro-batches loaded, or being loaded, before they are asked for; at least `workers`
};

// The kinds of devices that ranks run on, where there are several (cluster::Cluster::kind_of). Must outlive the
// simulation.
struct DeviceKinds {
  std::vector<const cost::CostModel*> costs;  // of each kind; the first are the job's
  std::vector<Time> launch_cost;              // of each: host time an op
  std::vector<int> of_rank;
};

// A program as all its simulations begin with it (job_code.h): linked, with its ops in flat tables.
struct ProgramLayout;
// Must not outlive the program. `arenas`: of ranks whose memory is one; else nullptr.
std::shared_ptr<const ProgramLayout> lay_out_program(const program::Program& program, const plan::RankGrid& grid,
                                                     const program::Arenas* arenas,
                                                     const program::KernelKinds& kernels);

struct Options {
  int steps = 2;       // simulated; the last one is the steady step reported (see Outcome)
  int repeats = 0;     // of several jobs: steps the reported one does at least; below `steps`: `steps`
  Time launch_cost;    // host time an op
  bool arena = false;  // Job::arena
  bool fold = true;    // simulate one of the ranks that are alike (folding.h)
  // Rounds of micro-batches that are simulated (simulator/rounds.h): all; but for those that go as the ones before on
  // all ranks together; or on ranks that meet no others meanwhile, which ends in a second simulation where they do.
  // Without `fold` all are.
  enum class Rounds : unsigned char { all, unlike, unlike_by_part } rounds = Rounds::unlike_by_part;
  std::vector<int> recorded_ranks;  // whose ops are recorded (of the last step)
  plan::Noise noise;
  std::int64_t sample = 0;  // of the noise's draws
  bool rank_steps = false;  // fill Outcome::rank_step_ends
  std::vector<int> spared;  // ranks that are not slow, whatever noise says
  std::function<void(double done)>
      progress;  // called now and then with the share of op instances done; may throw to stop
  const program::Arenas* arenas = nullptr;          // Job::arenas
  const std::vector<Loader>* loaders = nullptr;     // Job::loaders
  const AttentionLoads* attention_loads = nullptr;  // Job::attention_loads
  const DeviceKinds* kinds = nullptr;               // Job::kinds
  const ProgramLayout* layout = nullptr;            // Job::layout
};

// A job alongside the one that is reported, on ranks of its own: it goes through its steps without end. What it points
// to must outlive the simulation. Its plans of transfers name the resources of the cluster that is simulated.
struct Job {
  const program::Program& program;
  const plan::RankGrid& grid;
  const collective::CollectiveModel& collectives;
  const cost::CostModel& costs;
  std::string name = {};  // of its part in what links carry: "NAME: data all_reduce"
  Time launch_cost = {};
  bool arena = false;      // each rank's memory is one (sim/program/link/places.h), also where it is no CPU
  plan::Noise noise = {};  // of its kernels and transfers; links have that of the options
  Time start = {};         // of its first step
  int repeats = 2;         // steps it does at least
  // Its ranks' arenas, laid out already; nullptr: where they have arenas each simulation lays these out.
  const program::Arenas* arenas = nullptr;
  // By rank; nullptr if the program takes no micro-batch from a loader (program::InputFrom).
  const std::vector<Loader>* loaders = nullptr;
  // nullptr: all micro-batches are as much work.
  const AttentionLoads* attention_loads = nullptr;
  // nullptr: all ranks are on devices of one kind, that of `costs` and `launch_cost`.
  const DeviceKinds* kinds = nullptr;
  // Of its program; nullptr: each simulation makes one.
  const ProgramLayout* layout = nullptr;
};

// Where some bodies run in every n-th step alone (program::Body::every), the first simulated step is one of
// these, and so must be the last: steps - 1 is a multiple of program::steps_per_round. What is reported of "the last
// step" is the mean over the last round then, rounded down, but for records, which are of its last step.
struct Outcome {
  Time step_time;                                            // of the last step
  std::vector<Time> step_ends;                               // latest rank's end of each step; see simulator/jobs.h
  std::array<std::int64_t, result::kShares> breakdown_ps{};  // mean over ranks of the last step; sums to step_time
  std::array<double, 4> coverage_busy_s{};                   // device busy time by coverage, all ranks
  double busy_low_s = 0, busy_high_s = 0, busy_s = 0;        // for the interval
  std::int64_t ops = 0, events = 0;                          // ops of all ranks; events of those simulated
  std::int64_t ranks_simulated = 0;                          // of the reported job
  std::vector<result::OpRecord> records;
  result::Links links;                             // of the last step
  std::vector<result::CollectiveUse> collectives;  // of the last step, of the reported job
  std::vector<std::int64_t> link_bytes;            // of the last step, by resource of the cluster
  // Of the transfers that ended in the last step, of the reported job, over all devices: what they read and wrote of
  // device memory, and what left or entered devices.
  double transfer_memory_bytes = 0, port_bytes = 0;
  std::vector<SlowRank> slow_ranks;
  std::vector<std::int64_t> faulty_links;        // by entry of noise.links: how many it befalls
  std::vector<std::vector<Time>> job_step_ends;  // of each job, the reported one first: of all steps it has done
  // By rank of the reported job and step, if they are asked for: when its own streams that end steps had finished it.
  std::vector<std::vector<Time>> rank_step_ends;
  Time round;  // the last program::steps_per_round steps together
};

// A simulation that cannot proceed: what() says who waits for whom.
class Deadlock : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

Outcome simulate(const program::Program& program, const plan::RankGrid& grid, const cluster::Cluster& cluster,
                 const collective::CollectiveModel& collectives, const cost::CostModel& costs, const Options& options);
// The same with other jobs on the cluster's links. The reported job does options.steps steps as it would alone and
// ends; then it goes on too, as the others do, until all have done their repeats, each with a last step that began when
// all jobs had. options.steps is at least 2.
Outcome simulate(const program::Program& program, const plan::RankGrid& grid, const cluster::Cluster& cluster,
                 const collective::CollectiveModel& collectives, const cost::CostModel& costs, const Options& options,
                 const std::vector<Job>& beside);
// The ends of the first job.repeats steps of a job that has the cluster to itself; of the options: noise of links,
// sample, progress.
std::vector<Time> repeat_alone(const Job& job, const cluster::Cluster& cluster, const Options& options);

}  // namespace rehearse::engine
