// What of a scenario's program is profiled, and what the table of kernel times learns from it.
//
// As many ranks perform at once as the host has cores for (cores / threads of a rank), of different roles where there
// are; then one rank of each role alone, since with transfers in between ranks do not always compute side by side. A
// run that could only repeat known keys is left out: the scenario's middle stages, a second scenario of the same
// model.
#pragma once

#include <string>
#include <vector>

#include "calibrate/budget.h"
#include "calibrate/jitter.h"
#include "calibrate/kernel_times.h"
#include "calibrate/profile_run.h"

namespace rehearse::calibrate {

// A scenario with its program, as `rehearse execute` performs it.
struct Target {
  plan::Scenario scenario;
  program::Program program;
  plan::RankGrid grid;
  int threads = 1;         // of a rank
  bool generates = false;  // a step of generation, with what it does beside its ops (generation_profile.h)
};
// Throws InputError if it cannot be performed for another reason than its number of ranks.
Target make_target(const plan::Scenario& scenario);

struct PlannedRun {
  const Target* target = nullptr;
  std::vector<int> ranks;
  int busy = 1;       // cores
  double weight = 0;  // a rough time of a step: how the budget is split
};
std::vector<PlannedRun> plan_runs(const Target& target, int cores);

// Whether the run would add a key.
bool adds_to(const KernelTimes& times, const PlannedRun& run);

struct Learnt {
  KernelTimes times;
  std::vector<double> gaps;   // seconds between two ops of a stream of which the later had no event to wait for
  std::vector<double> wakes;  // from the end of an op of another stream to the start of one that slept for it
  JitterSamples jitter;
};
// Adds every op of the run. The first step, with cold caches and pages, is left out of what was done more than once.
// What is left of fewer than four repetitions stands for itself only where fewer than eight like it were done: on a
// crowded machine one of them may be a delay and nothing else.
void learn(const PlannedRun& planned, const ProfileRun& done, Learnt& learnt);

struct ProfileReport {
  double busy = 0;                      // cores at work, mean over the time that was profiled; 0: nothing was
  std::vector<std::string> shortfalls;  // for people: what the budget was too small for
};
// Plans, profiles and learns: for `seconds`, longer where fewer than four steps were done by then, but never past the
// budget. Throws execute::DoesNotFit for ranks too large for this machine's memory.
ProfileReport profile_targets(const std::vector<Target>& targets, int cores, double seconds, const Budget& budget,
                              Learnt& learnt);

}  // namespace rehearse::calibrate
