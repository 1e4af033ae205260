// What both interpreters produce: the same structure for a simulated and a measured run, and its files: result.json
// (schema rehearse.result/1), ops.csv, trace.json.gz. Field names, units and meanings are the JSON's own.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/pace.h"
#include "sim/base/units.h"

namespace rehearse::result {

class OutputFile;  // output_file.h

// Where the compute stream's time goes; the order is the JSON's. Mean over ranks; sums to step_time to the picosecond.
// Exposed: it waits for bytes of that axis that move, or for training examples (input: only where loading them is
// simulated, and only then in files). Straggler: for a late rank of its own role. Bubble: for one of
// another role, which has not got there yet. The rule for waits is in sim/account/blame.h.
enum class Share : unsigned char {
  compute,
  exposed_tensor,
  exposed_context,
  exposed_expert,
  exposed_data,
  exposed_pipeline,
  exposed_input,
  straggler,
  bubble,
  optimizer,
  host,
  other
};
inline constexpr int kShares = 12;
inline constexpr std::array<std::string_view, kShares> kShareNames = {
    "compute",       "exposed_tensor", "exposed_context", "exposed_expert", "exposed_data", "exposed_pipeline",
    "exposed_input", "straggler",      "bubble",          "optimizer",      "host",         "other"};

struct StageMemory {
  int stage = 0;
  std::int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0, workspace = 0, communication = 0,
               framework = 0,
               peak = 0;  // bytes a rank at the moment of the peak
  std::string where;      // the op at the peak
  std::int64_t host = 0;  // bytes a rank in the memory of its node's host, at their own peak
  // In a cluster of several kinds of devices: those that ranks of the stage run on, "h100-sxm, a100-sxm-80g", and of
  // the one that leaves least what it has, and of that what is kept free. Else "".
  std::string device = {};
  std::int64_t capacity = 0, headroom = 0;
};
// The stage with least room: the one that needs most, where all have as much. nullptr: there are none.
const StageMemory* tightest(const std::vector<StageMemory>& stages);

// One executed op of a representative rank.
struct OpRecord {
  std::int32_t rank = 0, step = 0, slot = 0, body = 0, op = 0;  // identity; names are in OpNames
  std::int64_t start_ps = 0, duration_ps = 0;
  // Of the duration: of a transfer until the last participant had come, of an input until it was loaded.
  std::int64_t waited_ps = 0;
  // For what: straggler, bubble (a rank of another role), exposed_input; other: nobody or not known.
  Share waited_for = Share::other;
  // From when its stream was free and all that it waits for on others was done, until it started; -1: not known.
  std::int64_t queued_ps = -1;
  std::int32_t woken_by = -1;   // if the op had to wait then: the stream whose op it was that ended last; -1: none
  std::int64_t moving_ps = -1;  // transfers: of the duration, from when its start-up was over; -1: not known
};
struct OpName {
  std::string body, op, kind, phase, stream, coverage;
  std::string shape;       // "m=2048 n=4608 k=12288", for reports
  std::int64_t bytes = 0;  // transfers: bytes; kernels: memory traffic
  double flops = 0;
  std::int32_t group_size = 0;
  // Transfers, for the trace's arguments; empty or 0 where there is none.
  std::string dtype, group;   // "bf16"; the group's name, for sends and receives their axis
  std::int64_t elements = 0;  // of the full tensor (program::Collective)
  // The ops whose end this one waits for besides its own stream's order, "body/op" joined by ";".
  std::string after = {};
  int micro_batch_delta = 0;  // of micro-batch micro_batch_of_slot + delta
};

// What a link carried in the step reported. Times are from the step's start; bytes are of the transfers that ended in
// it.
struct LinkUser {
  std::string name;  // "data all_reduce", "pipeline send"
  std::int64_t bytes = 0;
};
struct LinkUse {
  std::string name, kind;     // a resource of the cluster; nvlink, nic, link, ...
  std::int64_t alike = 1;     // links, with this one, of its kind and capacity that carried the same for the same users
  std::int64_t capacity = 0;  // bytes/s
  std::int64_t bytes = 0;
  std::vector<LinkUser> users;                     // most bytes first
  std::int64_t busy_ps = 0;                        // with bytes of anything moving
  std::int64_t first_ps = 0, last_ps = 0;          // of that
  std::int64_t window_from_ps = 0, window_ps = 0;  // the tenth of the step in which it carried most
  std::int64_t window_bytes = 0;
};
struct Links {
  bool known = false;
  std::int64_t used = 0;   // links that carried anything
  std::int64_t bytes = 0;  // sum over all links
  std::vector<LinkUse> busiest;
};
// Parts of the breakdown that a file may lack: files of before there was straggler, and those without loaders.
inline bool may_be_absent(Share share) {
  return share == Share::straggler || share == Share::exposed_input;
}
// Parts of the breakdown that a result with !late_ranks_known does not know.
inline bool needs_common_clock(Share share) {
  return share == Share::straggler || share == Share::bubble;
}
double utilisation(const LinkUse& link, std::int64_t bytes, std::int64_t ps);  // of its capacity over that time

// A kind of collective of the step reported: the same call (group, size, way) on all instances of the group.
struct CollectiveUse {
  std::string kind, group;            // "all_reduce", "data"
  std::int64_t ranks = 0, nodes = 0;  // of one instance, and on how many nodes they are
  std::int64_t bytes = 0;             // full size of one call
  std::string algorithm, protocol;    // "ring", "ll128"; protocol "": none is known
  bool pinned = false;                // by the scenario
  std::string path;           // on GPUs of several nodes, between GPUs and NICs: "gpudirect", "host_memory"; else ""
  std::int64_t channels = 0;  // thread blocks a rank, one a channel; 0: not known
  std::string fidelity;       // "step": message by message, "flow": one flow, "analytic": no contention
  std::string coverage;       // of its time alone: exact, interpolated, extrapolated, spec
  double low = 1, high = 1;   // factors of that time
  std::int64_t count = 0;     // calls that ended in the step, over all instances
  std::int64_t alone_ps = 0;  // one call with the network to itself
  std::int64_t mean_ps = 0;   // of those calls, from when all members had come, rounded down
};

// One quantity over samples: order statistics, p is the ceil(p/100 n)-th smallest.
struct Quantiles {
  std::int64_t p5 = 0, p50 = 0, p95 = 0;
};
struct Samples {
  std::int64_t count = 0;     // 0: there are none
  std::int64_t reported = 0;  // the sample whose numbers the rest of the result is: that of the median step
  Quantiles step_ps;
  std::int64_t least_ps = 0, most_ps = 0, mean_ps = 0;
  std::array<Quantiles, kShares> breakdown_ps{};
  std::vector<std::int64_t> of_samples_ps = {};  // the step of each
};

// What noise costs in the sample reported, each by a simulation without it: `without_ps` is the step then.
struct NoiseCause {
  std::string what = {};       // "slow_rank", "slow_ranks", "links", "rank_step", "machine", "kernels", "transfers"
  std::int64_t rank = -1;      // slow_rank
  double factor = 1;           // slow_rank: its kernels'
  std::string resources = {};  // links: the pattern
  std::int64_t count = 0;      // links, slow_ranks: how many
  std::int64_t without_ps = 0;
};
struct NoiseCost {
  bool known = false;
  std::int64_t seed = 0, sample = 0;
  std::int64_t without_ps = 0;  // without any
  std::vector<NoiseCause> causes;
};

// The step with one physical rate or cost changed and everything else as it is.
struct WhatIf {
  std::string what;  // "compute", "memory_bandwidth", "nvlink", "nic", "latency", "launch"
  std::int64_t halved_ps = 0, doubled_ps = 0;
  std::string why = {};  // a sentence, where the worse machine makes the step shorter or the better one longer
};

// One of several jobs on a cluster. A job's steps differ as the others are at different points of theirs, so several
// are counted: those from its second on that began once all jobs had started.
struct JobResult {
  std::string name;
  std::int64_t gpus = 0, start_ps = 0;
  std::int64_t steps = 0;    // counted
  std::int64_t step_ps = 0;  // their mean, rounded down
  std::int64_t least_ps = 0, most_ps = 0;
  std::int64_t alone_ps = 0;                         // the mean of the same steps with the cluster to itself
  double slowdown = 1;                               // the sum of steps over that of steps alone
  std::int64_t peak_bytes = 0, memory_capacity = 0;  // of a rank of the stage that needs most; of its device
};

// What the accelerators take in the step reported, all of them together, without hosts, switches and cooling.
struct Energy {
  bool known = false;
  double idle_j = 0, products_j = 0, memory_j = 0, ports_j = 0;
  double low_j = 0, high_j = 0;  // of the sum, at the low and the high ends of the device's figures
  double zeros_j = 0;            // the sum, were all operands of products zeros
  double limit_w = 0;            // of one
  // The highest clock, as a share of the boost clock, at which the mean power is within the limit.
  double clock = 1;
  double joules() const { return idle_j + products_j + memory_j + ports_j; }
};
double watts_per_gpu(const Energy& energy, std::int64_t step_ps, std::int64_t gpus);
inline constexpr double kJoulesPerKwh = 3.6e6;

// A matrix product that was performed by a library on a GPU: what it is besides its sizes ("nt bf16>f32 accumulate",
// cost::form_text), and the library's algorithm ("id 66 tile 128x256 stages 37 split-k 1 cluster 3").
struct ProductUse {
  std::string form;
  std::int64_t m = 0, n = 0, k = 0;
  std::string algorithm;
  friend bool operator==(const ProductUse&, const ProductUse&) = default;
};
// Local steps (plan.local_steps): a round of `steps`, of which the last ends with the outer step. All that is said of a
// step is the mean over a round then, but for records, which are of its last step.
struct LocalSteps {
  bool known = false;
  std::int64_t steps = 1, workers = 1;
  std::string outer;  // "average", "nesterov"
  // A round; the mean of its steps but the last, 0 if that is the only one; the last.
  std::int64_t round_ps = 0, inner_ps = 0, outer_ps = 0;
};
// The phase before the first step in which rank 0's weights become everybody's (training.first_weights: broadcast); no
// part of any step.
struct FirstWeights {
  bool known = false;             // false: each rank draws its own, or no two hold the same
  std::int64_t time_ps = 0;       // until the last rank has all; measured: drawing them too
  std::int64_t bytes = 0;         // that a rank is sent, of the stage with most
  std::int64_t messages = 0;      // in which they come
  std::int64_t link_bytes = 0;    // simulated: sum over all links of what they carry
  std::vector<std::string> ways;  // simulated: "ring/simple", as the collectives of a step
};
// Parameter servers (plan.servers), in place of a common step: iterations of workers and updates of servers between
// times that are both in the steady run. step_time is the mean time in which as many gradients are applied as make a
// global batch then.
struct ParameterServers {
  bool known = false;
  std::int64_t servers = 0, workers = 0;
  std::int64_t own_devices = 0;  // beside the workers', which are Result::ranks
  std::string consistency;       // a word of plan.consistency
  std::int64_t bound = -1;       // plan.staleness; -1: none
  std::int64_t backup_workers = 0;
  std::int64_t updates = 0, dropped = 0;  // gradients counted: applied; of iterations that were given up
  std::int64_t window_ps = 0;             // in which they were
  double updates_per_s = 0;               // of the parameters; a synchronous step is one
  double samples_per_s = 0;
  // [k]: updates whose gradient was of parameters k updates old, of all servers; and their mean.
  std::vector<std::int64_t> staleness;
  double mean_staleness = 0;
  std::int64_t most_ahead = 0;           // iterations that a worker was ahead of the slowest, at most
  std::vector<double> iterations_per_s;  // by worker
  std::int64_t parameter_bytes = 0;      // that a worker pulls in an iteration; it pushes gradient_bytes
  std::int64_t gradient_bytes = 0;
  std::int64_t fullest_server_bytes = 0;  // of the parameters that a worker pulls: of the server with most
  std::int64_t server_memory_bytes = 0;   // that one keeps: values, and the optimizer's states
  // What is busiest, and which share of the time: "workers" (their compute), "server 0" (its updates), or a link.
  std::string bound_by;
  double busy = 0;
};
// A step of reinforcement learning from feedback (section reinforcement), in place of an optimizer step: step_time and
// the breakdown are of all of it, over all its devices, tokens of prompts and responses. Collectives, records and
// stages are of one update of the actor.
struct ReinforcementPhase {
  std::string name;     // "generation", "reference scoring", "actor training", ...
  std::string devices;  // "all", "generating", "training"
  std::int64_t ps = 0;
  double idle = 0;  // of the time of the devices that it is on: share in which they have nothing to do in it
  std::int64_t peak_bytes = 0;  // of the fullest device; 0: not of its own
};
struct Reinforcement {
  bool known = false;
  std::string algorithm;  // a word of reinforcement.algorithm
  bool colocated = true, asynchronous = false;
  std::int64_t prompts = 0, samples = 0, updates = 0;
  double prompt_tokens = 0, response_tokens = 0;  // means, as drawn and cut
  std::int64_t longest_response = 0;
  std::int64_t training_gpus = 0, generating_gpus = 0, replicas = 0;  // colocated: the same gpus twice
  std::vector<ReinforcementPhase> phases;                             // in their order
  std::int64_t update_ps = 0;                                         // one optimizer step of the actor
  // Generation: of the replica that takes longest; sequences a replica decodes at once, at most.
  std::int64_t prefill_ps = 0, decode_ps = 0, decode_steps = 0, sequences_at_once = 0;
  double generated_tokens_per_s = 0;                        // responses over the time of generation
  std::int64_t cache_bytes = 0, cache_bytes_per_token = 0;  // of a device: room for keys and values; of a token
  std::int64_t most_cached_bytes = 0;                       // of the device with most
  std::int64_t moved_bytes = 0;                             // of weights, from device to device
  double idle = 0;                                          // of all devices' time in the step
  // Of a run that was performed, by step: the mean reward, and the mean distance of a token from the reference where
  // there is one.
  std::vector<double> rewards, distances;
};
// A measured run on GPUs: what the one with the lowest clock was like (execute/rank/gpu/state_log.h) and which products
// were performed. samples 0: nobody could say.
struct GpuRun {
  std::int64_t samples = 0;
  std::int64_t sm_mhz = 0, least_sm_mhz = 0, max_sm_mhz = 0, memory_mhz = 0, temperature_c = 0;
  double power_w = 0, power_limit_w = 0;
  std::string throttle;  // reasons, "none" or joined by "+"
  std::vector<ProductUse> products;
  bool known() const { return samples > 0 || !products.empty(); }
};

// How evenly a simulation's tokens fall on the ranks of an expert group (plan::ExpertLoads). Imbalance: the most rows
// of one of them over their mean.
struct ExpertBalance {
  bool known = false;                        // false: the loads are even
  double imbalance = 1, mean_imbalance = 1;  // of the worst layer; mean over the layers with experts
  std::int64_t worst_layer = 0;              // from 0
  double dropped = 0;                        // share of the tokens' choices that a capacity drops
};

// How training examples come to the ranks, where loading them takes time.
struct Input {
  bool known = false;
  std::int64_t workers = 0, ahead = 0;  // of a replica: processes, and micro-batches loaded before they are asked for
  std::int64_t micro_batch_ps = 0;      // between two micro-batches of a replica's loader, of the slowest replica
  std::int64_t step_ps = 0;             // so what a step takes at least: that for each of its micro-batches
  std::string bound;                    // "workers", "storage"; "process": loading adds to the step
};

// How long an epoch is: PyTorch's DistributedSampler and DataLoader, which first share the samples out and then make
// batches of each replica's.
struct Epoch {
  std::int64_t samples = 0;  // 0: not known
  bool drop_last = true;
  std::int64_t padded_steps = 0, dropping_steps = 0;  // without and with drop_last
  std::int64_t epochs = 0;                            // that the run is to take; 0: not given
  std::int64_t steps() const { return drop_last ? dropping_steps : padded_steps; }
};

// Of training.base_batch: a run that is known to train well, for advice on the learning rate of this one.
struct LearningRate {
  std::int64_t base_batch = 0;  // 0: not given
  double base_lr = 0;           // 0: not given
  std::int64_t global_batch = 0;
};

// Of a run that was to reach a loss: the mean of the last `window` steps' losses is at most `loss`.
struct LossTarget {
  bool known = false;
  double loss = 0;
  std::int64_t window = 1;
  std::int64_t step = -1, ps = 0;  // of the training, and since the run began; step -1: it was not reached
};

// What must not be overlooked about a plan, in a sentence or a few for people.
struct Note {
  std::string what;  // "uneven_stages"
  std::string text;
};

struct Result {
  std::string source = "simulated";
  std::string scenario_name, scenario_file;
  std::map<std::string, std::string> scenario;  // resolved keys, for people: "plan.tensor" -> "8"
  std::int64_t ranks = 0, steps = 1;
  std::int64_t step_time_ps = 0;
  std::int64_t ideal_step_ps = 0;  // under the profile `rehearse`, where another was chosen automatically; 0: not known
  double tokens_per_s = 0, tokens_per_s_per_gpu = 0;
  double model_flops = 0, hardware_flops = 0;  // of one step over all ranks
  double peak_flops_per_gpu = 0;               // where devices differ, the sum of all peaks over their number
  std::string flop_formula;
  std::array<std::int64_t, kShares> breakdown_ps{};
  // False: measured on hosts without a common clock, which cannot say who came late. Straggler and bubble are 0 then
  // (null in the JSON), and waits for late ranks lie in exposed_*.
  bool late_ranks_known = true;
  std::int64_t memory_capacity = 0;  // of a device; where they differ, of the tightest stage's
  std::int64_t memory_headroom = 0;  // of the capacity: kept free
  bool memory_fits = true;           // in the rest
  std::vector<StageMemory> stages;
  // Where ranks keep anything there: of the node whose ranks need most of its host's memory, and what that has; 0: not
  // known. memory_fits is of both memories.
  std::int64_t host_bytes = 0, host_capacity = 0;
  bool host_fits() const { return host_capacity == 0 || host_bytes <= host_capacity; }
  std::array<double, 4> coverage{};  // exact, interpolated, extrapolated, spec: shares of simulated busy time
  // Where kernels were measured, besides the device's own file, for people: "a profiler's trace of 8 GPUs, train.json".
  std::vector<std::string> measured_in;
  double interval_low_s = 0, interval_high_s = 0;
  double kernels_low = 1, kernels_high = 1;  // not in result.json: of the kernels' costs alone, as factors of the step
  std::string limited_by;                    // one sentence
  // engine
  std::int64_t ops = 0, events = 0, ranks_simulated = 0, peak_rss_bytes = 0;
  std::int64_t arena_bytes = 0;    // measured: what all ranks' arenas held, of peak_rss_bytes
  std::int64_t planned_bytes = 0;  // measured: what the memory plan gives all of them; not in result.json
  double wall_s = 0;
  std::vector<double> loss;  // what is trained on, by step
  // Measured, with multi-token prediction: those that make it up, none weighted: "model", "mtp1", ... each by step.
  struct LossPart {
    std::string name;
    std::vector<double> of_steps;
  };
  std::vector<LossPart> loss_parts;
  Links links;
  std::vector<CollectiveUse> collectives;  // the longest in all first
  Samples samples;
  NoiseCost noise;
  std::vector<WhatIf> what_if;
  ExpertBalance experts;
  Input input;
  Epoch epoch;
  LearningRate learning_rate;
  std::vector<Note> notes;
  Energy energy;
  Pace pace;  // of the machine while it was measured, or of a simulation while it was calibrated; unknown: none
  GpuRun gpu;
  LocalSteps local_steps;
  FirstWeights first_weights;
  ParameterServers servers;
  LossTarget target;
  Reinforcement reinforcement;
  std::vector<JobResult> jobs;  // the one that all else is about first; empty: it is alone
  // Not in result.json.
  std::vector<OpRecord> records;                          // sorted by rank, then start
  std::map<int, std::vector<std::vector<OpName>>> names;  // rank's role -> body -> op
  std::map<int, int> role_of_rank;
  std::map<int, std::vector<std::string>> streams;  // rank's role -> stream
  // Recorded rank -> body -> op: of a transfer the other ranks that take part, as peers_text writes them.
  std::map<int, std::vector<std::vector<std::string>>> peers;
  std::map<int, std::vector<int>> micro_batch_of_slot;  // role -> slot -> micro-batch (-1 none)
  std::vector<std::vector<std::int64_t>>
      step_ends_ps;  // simulated, if recorded: by rank and step, since the first began
};

// Whether the share is one of the result's: exposed_input is where loading takes time.
inline bool has_share(const Result& r, Share share) {
  return share != Share::exposed_input || r.input.known;
}

// Of a round of that many steps, the last of which took outer_ps.
inline LocalSteps local_steps(std::int64_t steps, std::int64_t workers, std::int64_t round_ps, std::int64_t outer_ps) {
  return {true, steps, workers, "", round_ps, steps > 1 ? (round_ps - outer_ps) / (steps - 1) : 0, outer_ps};
}
// How long the step took that the records are of: the last of a round, an update, or the step reported.
inline std::int64_t recorded_step_ps(const Result& r) {
  if (r.reinforcement.known) return r.reinforcement.update_ps;
  return r.local_steps.known ? r.local_steps.outer_ps : r.step_time_ps;
}

double mfu(const Result& r);
double hfu(const Result& r);

double tokens_per_step(const Result& r);
// Devices that are paid for: the ranks', and those that parameter servers have of their own.
std::int64_t paid_devices(const Result& r);
double gpu_hours(const Result& r, double tokens);  // 0 if the result has no token rate
double kwh(const Result& r, double tokens);        // the same; of the accelerators

// Stable key order and number format: seconds are exact decimals of the picoseconds, never binary noise.
std::string to_json(const Result& r);
// Why `dir` cannot be a result directory (a file is in the way, not writable), or "" if it can; makes nothing.
std::string directory_problem(const std::string& dir);
// A file that some results have beside these three.
struct DirectoryFile {
  std::string name;
  std::function<void(OutputFile&)> write;
};
DirectoryFile directory_file(std::string name, std::string content);
// Writes DIR/ops.csv, trace.json.gz, `more` and, last, result.json, each atomically; makes DIR. Where an older result
// was, its steps.csv, servers.csv and learning.csv that this one has not are then removed. Throws std::runtime_error.
void write_directory(const Result& r, const std::string& dir, const std::vector<DirectoryFile>& more = {});

}  // namespace rehearse::result
