// See execute_cuda.h.
#include "cli/execute_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "cli/console.h"
#include "cli/refuse.h"
#include "execute/gloo/start_ranks.h"
#include "execute/gpu/shared_device.h"
#include "execute/launch/environment.h"
#include "execute/local/local_world.h"
#include "kernels/cuda/cuda.h"
#include "sim/base/diagnostics.h"

namespace rehearse::cli {
namespace {

// What --device is if it is not given (execute.cpp); "cuda" for the ranks that we start, which need not find out again.
constexpr const char* kDeviceVariable = "REHEARSE_DEVICE";

bool started_for_gpus() {
  const char* value = std::getenv(kDeviceVariable);
  return value != nullptr && std::string(value) == "cuda" && execute::supervised();
}

execute::GpuOptions rank_options(const DeviceRequest& request, int ranks_here, int devices) {
  execute::GpuOptions options;
  options.graphs = request.graphs == "on"    ? execute::Graphs::on
                   : request.graphs == "off" ? execute::Graphs::off
                                             : execute::Graphs::automatic;
  options.ranks_on_device = (ranks_here + devices - 1) / devices;
  return options;
}

// What cannot be, before anything is looked for.
void check_request(const DeviceRequest& request, const RanksRequest& ranks) {
  if (request.device == "cuda" && !ranks.how.empty() && ranks.how != "nccl")
    refuse("--ranks " + ranks.how, "ranks on GPUs are processes joined by NCCL", "--ranks nccl, or leave it out");
  if (request.device == "cpu" && ranks.how == "nccl") refuse("--ranks nccl", "joins ranks on GPUs", "--device cuda");
}

std::string sharing_note(int ranks, int devices, const std::string& mps) {
  return fmt::format(
      "{} ranks share {} GPU{}, {}; NCCL goes over TCP on the loopback: losses are real, times are not those of NVLink",
      ranks, devices, devices == 1 ? "" : "s",
      mps.empty() ? "side by side (MPS)" : fmt::format("by slices of time ({})", mps));
}

}  // namespace

bool choose_cuda(const DeviceRequest& request, const RanksRequest& ranks, const plan::Scenario& scenario,
                 execute::Devices& devices) {
  check_request(request, ranks);
  const bool asked = request.device == "cuda" || ranks.how == "nccl";
  const bool may = request.device == "auto" && ranks.how.empty() && scenario.cluster.topology != "local";
  if (!asked && !may) return false;
  if (started_for_gpus()) {
    devices.rooms.resize(static_cast<std::size_t>(kernels::cuda::device_count()));
    if (devices.rooms.empty()) devices.why_none = kernels::cuda::why_no_device();
  } else {
    const bool alone = execute::read_launch(execute::process_environment()).launcher == execute::Launcher::none;
    devices = execute::find_devices(alone);
  }
  if (devices.why_none.empty()) return true;
  if (!asked) return false;
  const bool built_without = devices.why_none.find("built without CUDA") != std::string::npos;
  refuse(request.device == "cuda" ? "--device cuda" : "--ranks nccl", "no CUDA device: " + devices.why_none,
         built_without ? "install the CUDA toolkit, build again; --device cpu performs the plan here" : "--device cpu");
}

std::unique_ptr<execute::World> make_cuda_world(const RanksRequest& request, const plan::Scenario& scenario) {
  if (scenario.cluster.gpus == 1 &&
      execute::read_launch(execute::process_environment()).launcher == execute::Launcher::none)
    return execute::make_local_world(1, request.timeout);
  RanksRequest nccl = request;
  nccl.how = "nccl";
  return make_world(nccl, scenario);
}

std::unique_ptr<execute::RankMaker> make_cuda_maker(const DeviceRequest& request, const plan::Scenario& scenario,
                                                    const execute::Devices& devices, execute::World& world) {
  const auto here = world.on_this_machine();
  const std::vector<int> ranks(here.begin(), here.end());
  const auto count = static_cast<int>(devices.rooms.size()), n = static_cast<int>(ranks.size());
  const int own = world.here().front();
  if (n > count) {
    execute::share_device(own);
    if (world.root() && !execute::supervised()) note(sharing_note(n, count, "MPS, if any, is the launcher's"));
  }
  execute::CudaRanksOptions options;
  options.device = [ranks, count](int rank) {
    return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin()) % count;
  };
  options.rank = rank_options(request, n, count);
  options.alone = scenario.cluster.gpus == 1;
  return execute::make_cuda_ranks(options);
}

int start_on_gpus(const DeviceRequest& request, const RanksRequest&, const plan::Scenario& scenario,
                  const program::Program& program, execute::Options options, const execute::Devices& devices) {
  const auto ranks = static_cast<int>(scenario.cluster.gpus), count = static_cast<int>(devices.rooms.size());
  execute::CudaRanksOptions cuda;
  cuda.devices = devices.rooms;
  cuda.device = [count](int rank) { return rank % count; };
  cuda.rank = rank_options(request, ranks, count);
  const auto maker = execute::make_cuda_ranks(cuda);
  options.maker = maker.get();

  std::optional<execute::Mps> mps;
  const bool shared = ranks > count;
  const auto variables = [&](int rank) {
    execute::Variables all{{kDeviceVariable, "cuda"}};
    if (!shared) return all;
    for (const auto& [name, value] : execute::sharing_variables(rank))
      if (name == "NCCL_HOSTID" || std::getenv(name.c_str()) == nullptr) all.emplace_back(name, value);
    if (mps)
      for (const auto& variable : mps->variables()) all.push_back(variable);
    return all;
  };
  const auto begin = [&] {
    if (!shared) return;
    std::string why;
    if (auto started = execute::Mps::start(why)) {
      if (const std::string problem = started->problem(); problem.empty())
        mps.emplace(std::move(*started));
      else
        why = "no context under MPS: " + problem;
    }
    note(sharing_note(ranks, count, mps ? "" : why));
  };
  return start_processes(scenario, program, options, begin, variables);
}

}  // namespace rehearse::cli
