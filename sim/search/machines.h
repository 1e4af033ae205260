// The machines that a search's plans run on: one a framework, since `framework: auto` chooses by the plan, and one a
// cluster and list of calibrations, where keys of these are ranged over; and what they have room for.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "sim/lower/lower.h"
#include "sim/run/prepared.h"
#include "sim/search/layer_floor.h"

namespace rehearse::search {

// Several threads may ask.
class Machines {
 public:
  explicit Machines(const run::Options& options) : options_(options) {}

  std::shared_ptr<const run::Machine> of(const plan::Scenario& scenario);
  CollectiveTimes& collectives_of(const run::Machine& machine);

 private:
  const run::Options& options_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const run::Machine>> known_;
  std::map<const run::Machine*, std::unique_ptr<CollectiveTimes>> collectives_;
};

// Bytes of a device that plans may take; of the kind that has most.
std::int64_t most_room(const run::Machine& machine, const plan::Scenario& scenario);
// Of the kind that has least memory.
Bytes least_memory(const run::Machine& machine);
// What a device needs for so many bytes of tensors at once: at least, since what placing them in an arena takes is not
// counted.
std::int64_t with_reserve(std::int64_t tensors, const plan::Scenario& scenario, const run::Machine& machine);
// Of the kind that takes least while it does nothing; 0 where it is not known of all.
double idle_watts(const run::Machine& machine);

// A lowered plan's memory: of the stage whose tensors need most, without what placing them takes beyond that; whether
// each stage has room on its own devices.
struct LeastMemory {
  std::int64_t bytes = 0;
  bool fits = true;
};
LeastMemory least_memory(const lower::DistinctStages& stages, const plan::Scenario& scenario,
                         const run::Machine& machine);
// The same of a whole program in arenas, of the stage whose tensors need most once they are placed: what laying out all
// stages need not find out. 0: nothing is known before that, as where there are several kinds of devices.
std::int64_t fullest_placed(const program::Program& program, const plan::Scenario& scenario,
                            const run::Machine& machine);

}  // namespace rehearse::search
