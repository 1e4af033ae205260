// The best plans of a space, proven: every plan is settled by a rule that forbids it, by its memory, by a bound or by a
// simulation. From top to bottom in search.cpp:
//
//   choices      every combination of the keys' values, once (space.h)
//   settling     each is read as a scenario, lowered and given its bounds: the least memory that its tensors need, and
//                the least time that a step can take (least_step.h). What does not fit is out.
//   simulating   the rest in the order of their bounds, a fixed number at a time: memory laid out in full, then the
//   step
//                simulated as `rehearse simulate` does it. When the next bound is not below the objective of the last
//                plan to be answered, all that is left is settled by its bound, and the answer is proven.
//
//   answering    the best plans as `rehearse simulate` answers them, static check included; of simpler ways to split
//   the
//                model than the best plan's the fastest plan within its interval; what each key of it is worth.
//
// The outcome depends on the space alone, not on threads or on processes that share it (shared_work.h); with a limit of
// plans too, with a limit of time it does not. Such a limit is of all of this: half of what is left is for settling
// plans from all over the space, then those that are settled are simulated, and so on in turn: by turns what the proof
// needs next, and the most promising of the plans that are lowered, lest time ends while bounds still rise and nothing
// has been simulated. A quarter is kept for answering, or for finding anything to answer. What runs when the time is
// over ends within milliseconds, but for the answer of the best plan.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/diagnostics.h"
#include "sim/result/result.h"
#include "sim/run/processes.h"
#include "sim/run/run.h"
#include "sim/search/kinds.h"
#include "sim/search/shared_work.h"
#include "sim/search/space.h"

namespace rehearse::search {

// What is to be least: time of a step; GPU-hours of a training sample (which is as good as time where all plans have
// as many GPUs); memory of the rank that needs most; energy of a sample.
enum class Objective : unsigned char { step_time, cost, memory, energy };

struct Request {
  std::string file;                      // the scenario's
  std::vector<std::string> assignments;  // to every plan; their keys are fixed
  std::vector<SpaceKey> ranges;          // keys that have these values
  Objective objective = Objective::step_time;
  std::size_t top = 5;
  std::int64_t most_simulated = 0;  // 0: no limit
  std::optional<std::chrono::duration<double>> most_time;
  bool worth = false;  // what each key of the best plan is worth
  bool front = false;  // the fastest plans with less and less memory
  int threads = 1;
  run::Processes shared;  // where several processes search together; only part 0 answers
  run::Options run;  // of each simulation; record is of the answers, samples, what_if and threads are not looked at
  std::function<void(std::string_view what, double done)>
      progress;  // called by one thread at a time; may throw to stop
};

enum class Status : unsigned char {
  forbidden,  // a rule of scenarios
  too_large,  // does not fit in memory
  floored,    // by its layers' bound: settled, or open where a limit ended the search
  bounded,    // by its own program's bound: the same
  simulated,
  unsettled  // nothing is known of it: a limit of time ended the search before
};

struct Plan {
  Choice choice;
  Status status = Status::forbidden;
  Time least;                    // bounded or simulated: the bound of its step
  std::int64_t least_bytes = 0;  // of the rank that needs most: at least; simulated: exactly
  std::int64_t gpus = 0;
  int complexity = 0;
  Time step;             // simulated
  double joules = 0;     // of a step; simulated, of devices whose power is known
  double objective = 0;  // simulated: the value; else at least
};

struct Counts {
  std::int64_t choices = 0, forbidden = 0, too_large = 0, bounded = 0, lowered = 0, simulated = 0, open = 0;
};

// Plans this near to one another may change places in reality: the step that was lost by taking our best of a published
// sweep was 1.5% at most (docs/validation.md, "Rankings"). How far off both are, they are together.
inline constexpr double kAlike = 1.015;
inline constexpr double kLessMemory = 0.9;

// The best plan with one key changed, and what that key forces: stages their schedule and chunks.
struct Worth {
  std::size_t key = 0, value = 0;  // of the space
  std::size_t plan = 0;            // simulated, or too large
};

struct Outcome {
  Space space;
  std::vector<Plan> plans;              // all, in the space's order
  std::vector<std::size_t> best;        // the answer, best first: indices into plans
  std::vector<result::Result> answers;  // of these
  // Simpler than the best plan, and no worse than kAlike times it.
  std::optional<std::size_t> simplest;
  std::optional<result::Result> simplest_answer;
  // Simpler kinds of plans than the best plan's, simplest first: what rules them out. Empty where the objective is
  // memory.
  std::vector<KindEvidence> kinds;
  std::vector<Worth> worth;
  // The best plan, and each after it the best with at most kLessMemory of the memory of the one before.
  std::vector<std::size_t> front;
  std::vector<result::Result> front_answers;
  Counts counts;
  bool proven = false;
  double open_from = 0;  // not proven: no open plan's objective is less; 0 where nothing is known of some
  // Of forbidden plans, reasons with how often each was met, most often first; of those too large the one that needs
  // least.
  std::vector<std::pair<std::string, std::int64_t>> reasons;
  std::optional<std::size_t> smallest;
  std::int64_t room_bytes = 0;  // of a device
  bool limited_by_time = false;
  int interrupted = 0;  // the signal that ended the search after plans were simulated: `best` as far as it came,
                        // without answers
};

// Throws InputError for a scenario that is wrong whatever its plan, with noise other than ranks that are slow
// throughout or with jobs alongside it; Interrupted where a signal ends it before a plan is simulated, or where several
// processes share it.
Outcome search(const Request& request);

// The scenario with some plan that can be: for its model, batch and cluster. Throws InputError.
plan::Scenario any_scenario(const Request& request);

// Of each simulation of a search.
run::Options options_of(const Request& request);

// Throws InputError where a step of the scenario is not like every other, or is of several jobs.
void refuse_what_varies(const plan::Scenario& scenario, Objective objective);

// The sequences of a step of the scenario, whatever its plan. Throws InputError.
std::int64_t batch_of(const Request& request);

// What an objective is of a plan simulated; for tables of it.
double objective_of(Objective objective, Time step, std::int64_t gpus, std::int64_t batch, std::int64_t bytes,
                    double joules);

}  // namespace rehearse::search
