// The parts of read_scenario (scenario.cpp), one a section of the file, and what they share: each reads its mapping
// with defaults, reports problems through its nodes and goes on. Nothing here throws for user input.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/diagnostics.h"
#include "sim/base/document.h"
#include "sim/plan/scenario.h"

namespace rehearse::plan::detail {

// Largest values read; every product of two of them fits int64.
inline constexpr std::int64_t kMaxRanks = 1'000'000;
inline constexpr std::int64_t kMaxMicroBatch = 1'000'000;
inline constexpr std::int64_t kMaxGlobalBatch = 1'000'000'000;
inline constexpr std::int64_t kMaxSeqLen = 1'000'000'000;
// Of section data; products with the batch fit a double exactly enough, and times are checked where they are made.
inline constexpr double kMostSamples = 1e15, kMostEpochs = 1e9, kMostWorkers = 4096, kMostPrefetch = 4096;

// The words of a choice that is left to the library unless one is given.
template <std::size_t N>
std::vector<std::string_view> auto_or(const std::array<std::string_view, N>& words) {
  std::vector<std::string_view> all{"auto"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

// An error: `what` is in the format but not in this program yet; `available` says what is.
void not_available(const Node& node, const std::string& what, const std::string& available);

// A value as one line of YAML, and a mapping as pairs of dotted key and such a line.
std::string flow_text(const Node& node);
std::string quoted_text(const std::string& text);
using Pairs = std::vector<std::pair<std::string, std::string>>;
void flatten(const Node& node, const std::string& prefix, int depth, Pairs& out);

// What a scenario says of a file: a name or a path, which may be relative to the scenario's own file. If there is
// nothing, or it comes from the command line, it is left for the working directory.
std::string beside(const Node& said, const std::string& text);

ClusterRequest read_cluster(const Node& node);
// cluster_nodes.cpp: cluster.nodes, into the request and as an override for the topology's reader; and whether
// cluster.gpus are as many as the nodes have devices, which they are if they are not given.
void read_cluster_nodes(const Node& list, ClusterRequest& request);
void count_devices(const Node& cluster, const std::string& data_root, ClusterRequest& request);
// cluster.jobs, once the rest of the scenario is read.
struct Source {
  const std::string& path;
  const std::vector<std::string>& assignments;
  const std::string& data_root;
  Purpose purpose = Purpose::simulate;
  const ClusterRequest* machine = nullptr;  // it is itself read as a job alongside another, on this cluster
  ParsedFiles* files = nullptr;             // the scenario's file and its model's, where they are read many times
};
// The file with what is assigned. Throws InputError if it cannot be read.
Document opened(const Source& source, Diagnostics& diagnostics);
void read_jobs(const Node& list, const Source& source, Diagnostics& diagnostics, Scenario& scenario);
Scenario read_scenario(const Source& source);
Plan read_plan(const Node& node, const FrameworkProfile& profile);
Training read_training(const Node& node, const FrameworkProfile& profile);
Noise read_noise(const Node& node);
Data read_data(const Node& node);
Failures read_failures(const Node& node);
CheckpointRequest read_checkpoint(const Node& node);
Reinforcement read_reinforcement(const Node& node);
// Ranks that noise names must be there.
void check_noise(const Node& node, Scenario& scenario);

// Resolves what depends on several sections (data parallel size, layers a stage, sequence length, global batch) and
// reports every rule that the combination breaks, at the key concerned. A rule is skipped if one of its operands was
// already reported, so that one mistake gives one message.
struct Sections {
  Node root, cluster, plan, training;
  bool model_sound = true;                   // the model was read without a problem
  std::optional<std::int64_t> node_devices;  // of the topology, where the plan asks for it

  // The value of a key by its path, "plan.schedule".
  Node at(const std::string& path) const {
    const std::size_t dot = path.find('.');
    return root.get(path.substr(0, dot)).get(path.substr(dot + 1));
  }
};
// expert_room.cpp: whether the loads that a simulation takes fit into the buffers of model.buffer_factor. What is
// performed is compared with them as it comes.
void check_room_for_experts(const Node& model, const Scenario& scenario);
// recorded_routing.cpp: with routing: recorded the table of model.routing_file, which must fit the model and the plan.
// Throws InputError for what is wrong in the table itself.
void read_recorded_routing(const Node& model, Scenario& scenario);
// Loads that differ between micro-batches, against what runs two of these together or casts their rows.
void check_varying_loads(const Node& model, const Scenario& scenario);
// plan.cuda_graphs.
void check_graphs(const Sections& sections, const Scenario& scenario);
// plan.expert_dispatch, at `own`, with what else the plan says.
void check_expert_dispatch(const Node& own, const Scenario& scenario);
// plan.overlap_shared_experts, at `own`.
void check_overlapped_shared_experts(const Node& own, const Scenario& scenario);
// performed_fp8.cpp: products in fewer than 16 bits that are performed: which are not yet, and whether blocks divide
// what a rank has.
void check_performed_precision(const Node& training, const Scenario& scenario);
// narrow_rules.cpp: what is kept or sent in few bits, or made again in backward, one key each.
void check_narrow_and_again(const Sections& sections, const Scenario& scenario);
// Of products in 8 bits with scales of rows.
void check_row_scales(const Node& training, const Scenario& scenario);
// ignored_target_rules.cpp: what does not go with training.ignored_token.
void check_ignored_targets(const Sections& sections, const Scenario& scenario);

// document_rules.cpp: what of training.documents does not go together, or is missing.
void check_documents(const Sections& sections, const Scenario& scenario);
// deterministic_rules.cpp: what of training.deterministic and fill_uninitialized there is not; which loss and which
// collectives the framework takes with it.
void check_deterministic(const Sections& sections, const Scenario& scenario);
void choose_deterministic(Scenario& scenario);
// optimizer_rules.cpp: which plans an optimizer of whole tensors goes with.
void check_optimizer(const Node& training, const Scenario& scenario);
// tensor_rules.cpp: what plan.async_tensor_parallel needs. `sound`: no problem of that key was reported.
void check_async_tensor(const Node& plan, const Scenario& scenario, const std::function<bool(const char*)>& sound);
// adapter_rules.cpp: where low-rank adaptation is not available.
void check_adapters(const Node& training, const Scenario& scenario, const std::function<bool(const char*)>& sound);
// offload_rules.cpp: what of plan.offload_optimizer and plan.offload_activations cannot be.
void check_offload(const Sections& sections, const Scenario& scenario);
// gradient_rules.cpp: which chains of plan.gradient_compression there are, and which plans they go with.
void check_gradient_compression(const Node& plan, const Scenario& scenario);
// local_step_rules.cpp: what plan.local_steps does not go with.
void check_local_steps(const Node& plan, const Scenario& scenario);
// server_rules.cpp: Plan::replicas of workers of parameter servers; what plan.servers and the keys beside it do not go
// with.
void resolve_servers(const Sections& sections, Scenario& scenario);
void check_servers(const Sections& sections, const Scenario& scenario);
// vision_rules.cpp: how a vision transformer cannot be split.
void check_vision(const Sections& sections, const Scenario& scenario);
// llama_like_rules.cpp: what of norms, capped scores and bases does not go together.
void choose_capped_attention(model::Model& model);
void check_shared_key_head(const Sections& sections, const Scenario& scenario);
void check_llama_like(const Sections& sections, const Scenario& scenario);
// mixer_rules.cpp: what does not go with layers of one branch each, and with mixers among them.
void check_one_branch(const Sections& sections, const Scenario& scenario);
void check_encoder_decoder(const Sections& sections, const Scenario& scenario);
void check_encoder(const Sections& sections, const Scenario& scenario, const std::function<bool(const char*)>& sound);
// copies_rules.cpp: what does not go with two copies of the parameters (schedule dualpipe).
void check_copies(const Sections& sections, const Scenario& scenario);
// prediction_rules.cpp: where multi-token prediction is not available.
void check_predictions(const Sections& sections, const Scenario& scenario);
// hybrid_sharding.cpp: the devices of a node of the topology, if its file says so; Plan::replicas from
// Plan::zero_group, whose key is `key`, or from Plan::local_group.
std::optional<std::int64_t> devices_of_node(const ClusterRequest& cluster, const std::string& data_root);
// cluster_nodes.cpp: of each of cluster.nodes, 0 where its topology does not say (its reader reports that).
std::vector<std::int64_t> devices_of_nodes(const ClusterRequest& cluster, const std::string& data_root);
void resolve_local_group(const Node& plan, std::optional<std::int64_t> devices, Scenario& scenario);
void resolve_zero_group(const Node& key, std::optional<std::int64_t> devices, Scenario& scenario);
// read_reinforcement.cpp: what the section `reinforcement` does not go with.
void check_reinforcement(const Sections& sections, const Scenario& scenario);
void resolve(const Sections& sections, const Diagnostics& reported, Scenario& scenario);

}  // namespace rehearse::plan::detail
