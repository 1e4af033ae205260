// Whether a plan fits in a device's memory, and which changes would make it fit. Memory follows from the lowered
// program alone, so candidates are lowered and walked, never simulated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/cost/cost.h"
#include "sim/plan/scenario.h"
#include "sim/program/link/send_slots.h"
#include "sim/program/memory_plan.h"
#include "sim/program/program.h"
#include "sim/result/result.h"
#include "sim/run/run.h"

namespace rehearse::run {

struct Machine;

// Bytes a rank of each stage holds. What our own Performer holds besides its tensors is what was measured on the
// device, if it was. `arenas`: as account::stage_memory has it.
std::vector<result::StageMemory> stages_on(const Machine& machine, const plan::Scenario& scenario,
                                           const program::Program& program, const program::Arenas* arenas = nullptr);
// What kernels take for themselves, on the device that needs most; empty where none does.
program::OwnMemory own_memory_on(const Machine& machine, const plan::Scenario& scenario);
// Of the stage that needs most.
std::int64_t largest_peak(const std::vector<result::StageMemory>& stages);
// Bytes of the device that cluster.headroom keeps free, at most all.
std::int64_t headroom_on(const cost::Device& device, const plan::Scenario& scenario);

// Of the node whose ranks keep most in their host's memory: the bytes, and what the host has of it; 0 and 0 where no
// rank keeps anything there.
std::pair<std::int64_t, std::int64_t> fullest_host(const cluster::Cluster& cluster, const plan::RankGrid& grid,
                                                   const std::vector<result::StageMemory>& stages);

struct Changes {
  std::vector<std::string> assignments;  // "plan.recompute=full", as --set takes it; each to another key
  std::int64_t peak_bytes = 0;           // of the stage that then needs most
  bool fits = false;
};

// `assignments`: those the scenario was read with; a candidate is read with them, so it is checked like any plan.
// The first single change that fits on the scenario's devices, in the order of what it costs (see fit.cpp). If none
// does, changes are taken one by one, each the one that then needs least, until it fits or there are three, and if it
// then does not fit, the optimizer goes to the host, with ZeRO 2 if need be; nullopt if nothing needs less than the
// scenario does.
std::optional<Changes> changes_that_fit(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                        const Options& options);

}  // namespace rehearse::run
