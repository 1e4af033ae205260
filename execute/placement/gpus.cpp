// See gpus.h.
#include "execute/placement/gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "execute/placement/placement.h"
#include "execute/processes/launch_environment.h"
#include "execute/processes/start_ranks.h"
#include "execute/rank/gpu/cuda_ranks.h"
#include "kernels/cuda/cuda.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {
namespace {

// What --device is if it is not given (cli/execute.cpp); "cuda" for the ranks that we start, which need not find out
// again.
constexpr const char* kDeviceVariable = "REHEARSE_DEVICE";

bool started_for_gpus() {
  const char* value = std::getenv(kDeviceVariable);
  return value != nullptr && std::string(value) == "cuda" && supervised();
}

[[noreturn]] void refuse_device(const std::string& option, const std::string& message, const std::string& hint) {
  throw InputError(Diagnostic{option, 0, 0, "", message, hint});
}

GpuOptions rank_options(const PlacementRequest& request, int ranks, int gpus) {
  GpuOptions options;
  options.graphs = request.graphs == "on" ? Graphs::on : request.graphs == "off" ? Graphs::off : Graphs::automatic;
  options.measure_products = request.products == "measured";
  options.library_attention = request.attention == "cudnn";
  options.ranks_on_device = (ranks + gpus - 1) / gpus;
  return options;
}

// What cannot be, before anything is looked for.
void check_request(const PlacementRequest& request) {
  if (request.device == "cuda" && !request.ranks.empty() && request.ranks != "nccl")
    refuse_device("--ranks " + request.ranks, "ranks on GPUs are processes joined by NCCL",
                  "--ranks nccl, or leave it out");
  if (request.device == "cpu" && request.ranks == "nccl")
    refuse_device("--ranks nccl", "joins ranks on GPUs", "--device cuda");
}

std::string sharing_note(int ranks, int gpus, const std::string& why_no_mps) {
  return fmt::format(
      "{} ranks share {} GPU{}, {}; NCCL goes over TCP on the loopback: losses are real, times are not those of NVLink",
      ranks, gpus, gpus == 1 ? "" : "s",
      why_no_mps.empty() ? "side by side (MPS)" : fmt::format("by slices of time ({})", why_no_mps));
}

}  // namespace

std::optional<NotOnGpus> not_on_gpus(const plan::Scenario& scenario) {
  const plan::Plan& plan = scenario.plan;
  if (scenario.model.windowed(scenario.training.seq_len))
    return NotOnGpus{"there are no kernels of GPUs for model.sliding_window below training.seq_len yet",
                     "--device cpu, or a training.seq_len up to the window"};
  if (scenario.plan.cuda_graphs != plan::CudaGraphs::none)
    return NotOnGpus{"kernels are not captured in graphs yet", "--device cpu, or plan.cuda_graphs: none"};
  if (scenario.training.optimizer == plan::OptimizerKind::muon)
    return NotOnGpus{"there is no kernel of GPUs for Muon's step yet", "--device cpu, or training.optimizer: adamw"};
  if (plan.steps_apart())
    return NotOnGpus{"there are no kernels of GPUs for the end of a round of local steps yet",
                     "--device cpu, or plan.local_steps: 0"};
  if (plan.served())
    return NotOnGpus{"parameter servers are performed on CPUs so far", "--device cpu, or plan.servers: 0"};
  if (plan.compresses_gradients())
    return NotOnGpus{"there are no kernels of GPUs for compressed gradients yet",
                     "--device cpu, or plan.gradient_compression: [none]"};
  if (scenario.training.optimizer == plan::OptimizerKind::lamb)
    return NotOnGpus{"there are no kernels of GPUs for LAMB's step yet", "--device cpu, or training.optimizer: adamw"};
  if (scenario.training.packs())
    return NotOnGpus{"there are no kernels of GPUs for sequences packed of documents yet",
                     "--device cpu, or training.documents: none"};
  if (plan.offload_optimizer || plan.offloads_activations())  // offload_parameters is with the first
    return NotOnGpus{"ranks on GPUs keep nothing in the host's memory yet", "--device cpu, or without plan.offload_*"};
  if (scenario.training.narrow())
    return NotOnGpus{"there are no kernels of GPUs for 8-bit copies yet", "--device cpu, or training.precision=bf16"};
  if (scenario.model.latent_attention())
    return NotOnGpus{"there are no kernels of GPUs for latent attention yet", "--device cpu"};
  if (scenario.model.has_mixers())
    return NotOnGpus{"there are no kernels of GPUs for Mamba-2 mixers (model.layer_pattern, M) yet", "--device cpu"};
  if (scenario.model.is_list())
    return NotOnGpus{
        "there are no kernels of GPUs for some layers of lists yet (batch normalisation, overlapping pooling, "
        "sparse features)",
        "--device cpu"};
  if (scenario.model.is_vision())
    return NotOnGpus{"a vision transformer's attention without a mask has not run on a GPU yet", "--device cpu"};
  if (scenario.model.is_encoder())
    return NotOnGpus{"an encoder's tanh, gathered rows and attention without a mask have not run on a GPU yet",
                     "--device cpu"};
  if (scenario.model.has_decoder())
    return NotOnGpus{"there are no kernels of GPUs for biases of scores and attention to another sequence yet",
                     "--device cpu"};
  if (scenario.model.activation == model::ActivationKind::geglu && scenario.model.is_transformer())
    return NotOnGpus{"there is no kernel of GPUs for feed-forward layers gated by gelu yet", "--device cpu"};
  if (scenario.model.activation == model::ActivationKind::swiglu_oai && scenario.model.is_transformer())
    return NotOnGpus{"there is no kernel of GPUs for the gated activation swiglu_oai yet", "--device cpu"};
  if (scenario.model.attention_sinks)
    return NotOnGpus{"there are no kernels of GPUs for sinks of attention yet", "--device cpu"};
  if (scenario.model.chunked(scenario.training.seq_len))
    return NotOnGpus{"there are no kernels of GPUs for model.attention_chunk below training.seq_len yet",
                     "--device cpu, or a training.seq_len up to the chunk"};
  if (scenario.model.family == model::Family::moe && !scenario.model.gated() && plan.weigh_in_experts)
    return NotOnGpus{"there is no kernel of GPUs for experts without a gate whose activations scores multiply yet",
                     "--device cpu, or plan.weigh_in_experts=false"};
  if (scenario.model.family == model::Family::moe && (scenario.model.bias || scenario.model.weigh_expert_inputs))
    return NotOnGpus{"there are no kernels of GPUs for biases of experts and inputs that scores multiply yet",
                     "--device cpu"};
  if (plan.schedule == plan::Schedule::dualpipe)
    return NotOnGpus{
        "stages that first send to each other at the same time would wait for each other while NCCL connects them",
        "--device cpu, or plan.schedule: dualpipe_v"};
  const model::Model& m = scenario.model;
  if (plan.tensor > 1 && m.is_transformer() && m.kv_heads < plan.tensor && m.kv_heads < m.heads)
    return NotOnGpus{"a key-value head on several ranks of a tensor group has not run on GPUs yet",
                     "--device cpu, or plan.tensor=1"};
  if (m.attention_softcap > 0 || m.query_scale > 0)
    return NotOnGpus{"there are no kernels of GPUs for capped or otherwise scaled scores yet", "--device cpu"};
  if (m.position == model::Position::alibi)
    return NotOnGpus{"there are no kernels of GPUs for biases of scores by distance yet", "--device cpu"};
  if (m.is_transformer() && m.head_dim > 256)
    return NotOnGpus{"kernels of attention on GPUs have heads of up to 256 columns", "--device cpu"};
  if (m.zero_centered_norms || m.qk_norm)
    return NotOnGpus{"there are no kernels of GPUs for norms around 1 and of queries and keys yet", "--device cpu"};
  if (m.logit_softcap > 0)
    return NotOnGpus{"logits that are capped have not run on a GPU yet", "--device cpu, or model.logit_softcap=0"};
  return {};
}

std::optional<Devices> choose_gpus(const PlacementRequest& request, const plan::Scenario& scenario) {
  check_request(request);
  const bool asked = request.device == "cuda" || request.ranks == "nccl";
  const bool may = request.device == "auto" && request.ranks.empty() && scenario.cluster.topology != "local";
  if (!asked && !may) return {};
  const char* const option = request.device == "cuda" ? "--device cuda" : "--ranks nccl";
  if (const auto reason = not_on_gpus(scenario)) {
    if (!asked) return {};
    refuse_device(option, reason->why, reason->instead);
  }
  Devices gpus;
  if (started_for_gpus()) {
    gpus.devices.resize(static_cast<std::size_t>(kernels::cuda::device_count()));
    if (gpus.devices.empty()) gpus.why_none = kernels::cuda::why_no_device();
  } else {
    gpus = find_devices(read_launch(process_environment()).launcher == Launcher::none);
  }
  if (gpus.why_none.empty()) return gpus;
  if (!asked) return {};
  const bool built_without = gpus.why_none.find("built without CUDA") != std::string::npos;
  refuse_device(
      option, "no CUDA device: " + gpus.why_none,
      built_without ? "install the CUDA toolkit, build again; --device cpu performs the plan here" : "--device cpu");
}

std::unique_ptr<RankMaker> make_gpu_ranks(const PlacementRequest& request, const plan::Scenario& scenario,
                                          const Devices& gpus, World& world) {
  const auto here = world.on_this_machine();
  const std::vector<int> ranks(here.begin(), here.end());
  const auto count = static_cast<int>(gpus.devices.size()), n = static_cast<int>(ranks.size());
  if (n > count) {
    share_device(world.here().front());
    if (world.root() && !supervised()) request.note(sharing_note(n, count, "MPS, if any, is the launcher's"));
  }
  CudaRanksOptions options;
  options.device = [ranks, count](int rank) {
    return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin()) % count;
  };
  options.rank = rank_options(request, n, count);
  options.alone = scenario.cluster.gpus == 1;
  return make_cuda_ranks(options);
}

GpusToStart::GpusToStart(const PlacementRequest& request, const Devices& gpus, int ranks)
    : request_(request), gpus_(static_cast<int>(gpus.devices.size())), ranks_(ranks) {
  CudaRanksOptions options;
  options.devices = gpus.devices;
  options.device = [count = gpus_](int rank) { return rank % count; };
  options.rank = rank_options(request, ranks, gpus_);
  maker_ = make_cuda_ranks(options);
}

void GpusToStart::prepare_sharing() {
  if (ranks_ <= gpus_) return;
  std::string why;
  if (auto started = Mps::start(why)) {
    if (const std::string problem = started->problem(); problem.empty())
      mps_.emplace(std::move(*started));
    else
      why = "no context under MPS: " + problem;
  }
  request_.note(sharing_note(ranks_, gpus_, mps_ ? "" : why));
}

Variables GpusToStart::variables(int rank) const {
  Variables all{{kDeviceVariable, "cuda"}};
  if (ranks_ <= gpus_) return all;
  for (const auto& [name, value] : sharing_variables(rank))
    if (name == "NCCL_HOSTID" || std::getenv(name.c_str()) == nullptr) all.emplace_back(name, value);
  if (mps_)
    for (const auto& variable : mps_->variables()) all.push_back(variable);
  return all;
}

}  // namespace rehearse::execute
