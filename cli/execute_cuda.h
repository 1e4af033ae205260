// What `rehearse execute --device` comes to: the CPU, or this machine's GPUs, a process a rank; and how these processes
// come to their GPU.
#pragma once

#include <memory>
#include <string>

#include "cli/execute_ranks.h"
#include "execute/performer.h"
#include "execute/placement/devices.h"
#include "execute/processes/world.h"
#include "execute/rank/gpu/cuda_ranks.h"
#include "execute/rank/gpu/gpu_rank.h"
#include "sim/plan/scenario.h"

namespace rehearse::cli {

struct DeviceRequest {
  std::string device = "auto", graphs = "auto";
};

// Whether ranks are to be on GPUs. `auto`: on GPUs if this machine has one, the scenario's cluster is not this machine
// itself (topology local) and no other kind of ranks is asked for. Throws InputError for what cannot be.
bool choose_cuda(const DeviceRequest& request, const RanksRequest& ranks, const plan::Scenario& scenario,
                 execute::Devices& devices);

// The world of this process, as make_world(): null if its processes are still to be started, by start_on_gpus().
std::unique_ptr<execute::World> make_cuda_world(const RanksRequest& request, const plan::Scenario& scenario);

// The maker for the rank of this process.
std::unique_ptr<execute::RankMaker> make_cuda_maker(const DeviceRequest& request, const plan::Scenario& scenario,
                                                    const execute::Devices& devices, execute::World& world);

// As start_processes(); exit status 3 if the plan does not fit on the GPUs.
int start_on_gpus(const DeviceRequest& request, const RanksRequest& ranks, const plan::Scenario& scenario,
                  const program::Program& program, execute::Options options, const execute::Devices& devices);

}  // namespace rehearse::cli
