// The least time that a step of a lowered plan can take, without simulating it: every kernel as fast as it is alone,
// every transfer as fast as with the network to itself, hosts and memory never in the way. What the program itself
// orders stays: streams are queues, events are waited for, a stage waits for its neighbours' messages and for
// collectives with other stages.
//
// That is a system of maxima and sums. Removing constraints and shortening durations can only make its times earlier,
// so no simulation of the same plan is faster. A body is reduced to the longest paths from what it meets (its streams'
// ends, events of earlier slots, messages) to what it leaves, once; a step is then one such small product a slot, for
// one rank a stage. A test compares it with simulations of random plans.
//
// Two steps are looked at, as a simulation does, and what passes between their ends is the bound, if all ranks meet at
// the end of a step (the norm of the gradients is theirs together) or there is one stage. Otherwise a stage may be
// ahead of another in the first step's end: then it is what passes between the end of a stage's own first step and that
// of the second, if nothing but this stage's work holds the others up, of the stage for which that is least.
//
// Leaves out: contention, what a kernel loses beside a transfer, the host's launches, waiting for a place in memory, a
// sender that waits for its receiver, jitter and faults.
#pragma once

#include "sim/base/units.h"
#include "sim/collective/collective.h"
#include "sim/cost/cost.h"
#include "sim/lower/lower.h"
#include "sim/plan/rank_grid.h"
#include "sim/run/prepared.h"

namespace rehearse::search {

// `together`: false where something else than the program delays a rank's first step, as loaders of data do: then its
// end says less of the next one's.
// Throws InputError for kernels and groups that cannot be costed.
Time least_step(const lower::DistinctStages& stages, const plan::RankGrid& grid, const cost::CostModel& costs,
                const collective::CollectiveModel& collectives, bool together = true);

// The same where a machine has several kinds of devices, with each stage lowered by itself (lower_distinct's `alike`
// false). Ranks of one kind in every stage are taken together, their transfers as fast as the fastest of them: if all
// ranks meet no step takes less than any such ranks need, else none less than those that need least.
Time least_step(const lower::DistinctStages& stages, const plan::RankGrid& grid, const run::Machine& machine,
                bool together = true);

}  // namespace rehearse::search
