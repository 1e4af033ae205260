// Performs a Program for real: every rank of the plan is a set of threads, one a stream, on CPU kernels; in this
// process or, with the others of a World (world.h), each in its own. The flow, top to bottom in performer.cpp: check
// that it can be performed, lay out each role's step (timeline.*), open the data (data.*), make and fill the ranks that
// are here (rank.*, parameters.*), run them, gather what was measured at the root (report.*) and turn it into a
// result::Result (measure.*).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "execute/checkpoint/options.h"
#include "execute/measure.h"
#include "execute/processes/failures.h"
#include "execute/processes/world.h"
#include "execute/rank/parameters.h"
#include "execute/rank/rank.h"
#include "execute/timeline.h"
#include "execute/training_losses.h"
#include "sim/account/server_events.h"
#include "sim/model/recorded_choices.h"
#include "sim/plan/scenario.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::execute {

inline constexpr int kMaxRanks = 64;

struct StepLoss {
  double loss = 0;            // what is trained on
  std::vector<double> parts;  // with multi-token prediction, of the model and of each module (loss_part_name)
};

struct Options {
  int steps = 20;    // of the training; a run that goes on from a checkpoint does those that are left
  std::string data;  // data.h; empty: the default
  std::chrono::milliseconds timeout{60'000};  // how long a rank waits for others in a transfer (the World's)
  bool record = false;                        // keep the ops of the last step of one rank a stage
  bool record_every_step = false;             // with `record`: of all steps
  bool clear_arena = false;                   // memory begins as zeros, not as what shows reads too early
  bool keep_parameters = false;               // fill Outcome::parameters
  // At the root in the caller's thread, after each step in order; what it throws ends the run and is thrown on.
  std::function<void(int step, const StepLoss& loss)> on_step;  // of the training, from 0
  // At the root after on_step, with the losses so far: whether they suffice; the run then ends a step or two later, or
  // with the round. Of ranks that are threads of this process, on CPUs, without checkpoints and parameter servers.
  std::function<bool(const std::vector<double>& losses)> enough;
  // In the caller's thread, many times a second; what it throws ends the run and is thrown on.
  std::function<void()> poll;
  CheckpointOptions checkpoint;
  // Makes the ranks; null: they are threads of the CPU. Outlives the run.
  RankMaker* maker = nullptr;
  // In the thread of the stream, before each op; what it throws fails that rank there.
  std::function<void(int rank, std::int64_t step, const program::Op& op)> before_op;
  // Of a plan with parameter servers: what each does, in order, as it was simulated or recorded; nullptr: as it comes.
  // Outlives the run.
  const std::vector<account::ServerEvent>* server_order = nullptr;
  bool record_routing = false;  // fill Outcome::routing
};

struct Outcome {
  result::Result result;  // source "measured"; its peak_rss_bytes is the largest process's
  std::string data;       // what was trained on, for people
  int processes = 1;
  std::int64_t all_rss_bytes = 0;  // the processes' peaks, added
  Parameters parameters;           // after the last step
  // Of ranks on devices: the most that a rank's share of what lies outside arenas is, and the largest drift.
  DeviceUse device;
  // fp16, after the last step, by rank: the loss scale, and how many steps it has stood.
  std::vector<std::vector<float>> loss_scales;
  StepShares shares;            // of the steps from first_step on
  std::int64_t first_step = 0;  // steps done before, by the run that this one went on from
  // Of the rank that stood still longest; `bytes` of all ranks.
  CheckpointUse checkpoints;
  // What each parameter server did, in order, one server after the other; and the result's account of it.
  std::vector<account::ServerEvent> server_events = {};
  // What the ranks' tokens chose, in order.
  std::vector<model::RoutedChoices> routing = {};
};

// Throws InputError for a scenario that cannot be performed (number of ranks); perform() does too.
void check_performable(const plan::Scenario& scenario, int steps);
// All that perform() checks before it begins, for `ranks` that are to be on this machine: also the data, and
// DoesNotFit.
void check_run(const plan::Scenario& scenario, const program::Program& program, const Options& options,
               std::span<const int> ranks);

// Threads of a rank's compute stream: as the scenario says, else cores / ranks on this machine.
int threads_per_rank(const plan::Scenario& scenario, int ranks_on_machine);

// Each role's step; `program` must outlive it.
std::vector<Timeline> make_timelines(const program::Program& program, const plan::RankGrid& grid);

// Performs the ranks of `world` that are here. At the root the outcome of all ranks, elsewhere nothing. Throws
// InputError for a scenario that cannot be performed (number of ranks, data), DoesNotFit, RankFailure.
std::optional<Outcome> perform(const plan::Scenario& scenario, const program::Program& program, const Options& options,
                               World& world);
// With all ranks here.
Outcome perform(const plan::Scenario& scenario, const program::Program& program, const Options& options);

}  // namespace rehearse::execute
