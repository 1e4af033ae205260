// See auto_framework.h. The file is read once for its cluster, model and plan alone, since the profile sets defaults of
// the reading proper.
#include "sim/plan/auto_framework.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/plan/read_model.h"

namespace rehearse::plan::detail {

namespace {

constexpr const char* kIdeal = "rehearse";

// A judgement each, of what is usual in 2025. ZeRO-1 and 2 of whole models are FSDP2 that keeps what it gathered:
// `deepspeed` is of 2022, and Megatron's distributed optimizer is for models that are split. Megatron-Core shards
// parameters only in an FSDP of its own that no profile describes.
struct AutoRule {
  const char *framework, *why;
  bool (*holds)(const model::Model& model, const Plan& plan);
};

bool split(const Plan& plan) {
  return plan.tensor > 1 || plan.pipeline > 1 || plan.context > 1 || plan.expert > 1;
}

constexpr AutoRule kRules[] = {
    {kIdeal, "no other profile's framework makes a pipeline of such a model",
     [](const model::Model& m, const Plan& p) { return !m.is_transformer() && split(p); }},
    // Megatron-Core refuses it, or from 0.16 on gathers what split weights give (check_shared_key_head).
    {kIdeal, "no other profile's framework has a key-value head on several ranks of a tensor group",
     [](const model::Model& m, const Plan& p) { return m.kv_heads < p.tensor && m.kv_heads < m.heads; }},
    {"megatron-core", "a transformer with tensor, pipeline, context or expert parallelism",
     [](const model::Model&, const Plan& p) { return split(p) && p.zero < 3; }},
    {"torch-fsdp2", "states are sharded over the replicas",
     [](const model::Model&, const Plan& p) { return p.zero > 0; }},
    // DistributedDataParallel under autocast has no optimizer on the host; Megatron-Core has, of replicas too.
    {"megatron-core", "every rank has the whole model, and the optimizer is on the host",
     [](const model::Model& m, const Plan& p) { return m.is_transformer() && p.offload_optimizer; }},
    {kIdeal, "no other profile's framework keeps the optimizer of such a model's replicas on the host",
     [](const model::Model&, const Plan& p) { return p.offload_optimizer; }},
    {"torch-ddp", "every rank has the whole model, but for the tables of others",
     [](const model::Model&, const Plan& p) { return p.embedding_tables == EmbeddingTables::sharded; }},
    {"torch-ddp", "every rank has the whole model", [](const model::Model&, const Plan&) { return true; }},
};

ChosenFramework ideal(const char* why) {
  return {*find_framework(kIdeal), why};
}

// This host's cores, or a machine that `rehearse calibrate` measured: calibrations of CPUs are JSON.
bool is_cpu(const std::string& device) {
  return device == "local" || device.ends_with(".json");
}

// By the topology's file, or an override of its device.
bool on_cpu(const ClusterRequest& cluster, const std::string& data_root, ParsedFiles* files) {
  for (const auto& [key, value] : cluster.overrides)
    if (key == "device") return is_cpu(value);
  const std::string& name = cluster.topology;
  const bool path = name.find('/') != std::string::npos || name.ends_with(".yaml") || name.ends_with(".yml");
  Diagnostics unheard;
  const Document document =
      Document::from_file(path ? name : fmt::format("{}/topologies/{}.yaml", data_root, name), unheard, files);
  return document.root().kind() == Node::Kind::mapping && is_cpu(document.root().get("device").as_text().value_or(""));
}

bool costed_on_cpu(const Node& costs) {
  const Node list = costs.get("calibration");
  const Node first = list.kind() == Node::Kind::sequence && list.size() > 0 ? list.at(0) : list;
  return is_cpu(first.as_text().value_or(""));
}

}  // namespace

ChosenFramework framework_on_gpus(const model::Model& model, const Plan& plan) {
  const auto* rule =
      std::find_if(std::begin(kRules), std::end(kRules), [&](const AutoRule& r) { return r.holds(model, plan); });
  return {*find_framework(rule->framework), rule->why};
}

FrameworkProfile framework_of_plan(const FrameworkProfile& named, const Source& source) {
  if (named.replicas_as.empty()) return named;
  Diagnostics unheard;
  const Document document = opened(source, unheard);
  if (read_plan(document.root().get("plan"), named).zero > 0) return named;
  FrameworkProfile profile = *find_framework(named.replicas_as);
  profile.name = named.name;
  profile.summary = named.summary;
  profile.sources = named.sources;
  return profile;
}

ChosenFramework choose_framework(const Source& source) {
  if (source.purpose == Purpose::perform) return ideal("what is performed");
  Diagnostics unheard;
  try {
    Document document = opened(source, unheard);
    const Node root = document.root();
    if (root.kind() != Node::Kind::mapping) return ideal("");
    const ClusterRequest cluster = source.machine != nullptr ? *source.machine : read_cluster(root.get("cluster"));
    if (costed_on_cpu(root.get("costs")) || on_cpu(cluster, source.data_root, source.files))
      return ideal("ranks are a CPU's threads");
    const FrameworkProfile& profile = *find_framework(kIdeal);
    const model::Model model = read_model(root.get("model"), profile, source.data_root, unheard, source.files);
    const Plan plan = read_plan(root.get("plan"), profile);
    return unheard.list().empty() ? framework_on_gpus(model, plan) : ideal("");
  } catch (const InputError&) {
    return ideal("");
  }
}

}  // namespace rehearse::plan::detail
