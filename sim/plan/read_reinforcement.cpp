// The section `reinforcement`: by its rows (key_table_reinforcement.cpp); here is what it does not go with.
#include <fmt/format.h>

#include <algorithm>

#include "sim/plan/read_keys.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

Reinforcement read_reinforcement(const Node& node) {
  Reinforcement r;
  if (!node || node.kind() == Node::Kind::null) return r;
  r.given = true;
  read_keys(node, "reinforcement.", r);
  const Node generation = node.get("generation");
  read_keys(generation, "reinforcement.generation.", r.generation);
  generation.finish();
  node.finish();
  return r;
}

namespace {

bool decodes(const model::Model& m) {
  return m.is_transformer() && m.is_causal() && !m.has_decoder() && !m.is_encoder() && !m.is_vision() &&
         !m.latent_attention() && !m.attention_sinks && m.attention_chunk == 0 && !m.has_mixers() &&
         m.expert_latent == 0;
}

void check_generation(const Node& node, const Scenario& s) {
  const Reinforcement& r = s.reinforcement;
  const std::int64_t gpus = r.colocated() ? s.cluster.gpus : r.generation.gpus, tensor = r.generation.tensor;
  const Node own = node.get("generation").get("tensor");
  if (gpus % tensor != 0)
    return own.error(fmt::format("{} devices that generate do not divide by {}", gpus, tensor),
                     "a divisor of the devices");
  if (s.model.heads % tensor != 0)
    return own.error(fmt::format("{} heads do not divide by {}", s.model.heads, tensor), "a divisor of model.heads");
  if (r.sequences() < gpus / tensor)
    node.get("prompts").error(
        fmt::format("{} sequences a step are fewer than the {} replicas that generate", r.sequences(), gpus / tensor),
        "more prompts or samples, or generation.tensor larger");
}

// What the movement of weights (sim/run/reinforcement/weight_movement.h) does not know: which rank has which experts
// where these are spread otherwise than over replicas alone, and ZeRO-3's parts where they are spread over context
// ranks, too.
void check_layout(const Node& node, const Scenario& s) {
  if (s.plan.expert > 1 && (s.plan.context > 1 || s.plan.whole_experts() || s.plan.zero == 3))
    node.error(
        "is not available yet with experts that are spread over context ranks, over tensor ranks that have whole ones, "
        "or under ZeRO-3: what each rank holds of them when weights move to where responses are generated is not known",
        "plan.expert: 1, or plan.context: 1, plan.expert_tensor: 0 and plan.zero: 0, 1 or 2");
  if (s.plan.context > 1 && s.plan.zero == 3)
    node.error(
        "is not available with ZeRO-3 over context ranks yet: what each rank holds when weights move to where "
        "responses are generated is not known",
        "plan.context: 1, or plan.zero: 0, 1 or 2");
}

// A packed row is one of documents (training.documents), and these do not go with everything.
void check_packing(const Node& node, const Scenario& s) {
  if (!s.reinforcement.packing) return;
  if (s.plan.context > 1 && s.plan.context_kind == ContextKind::ring)
    node.get("packing").error(
        "packed sequences make the steps of plan.context_kind: ring unequal, which is not available",
        "reinforcement.packing: false, or plan.context_kind: all_gather or all_to_all");
  if (s.plan.cuda_graphs != CudaGraphs::none)
    node.get("packing").error(
        "packed sequences have lengths that change with each micro-batch, which plan.cuda_graphs does not go with",
        "reinforcement.packing: false, or plan.cuda_graphs: none");
}

// A placement lists the devices that train, and what is wrong with links is looked for among their nodes alone.
void check_own_devices(const Node& cluster, const Scenario& s) {
  if (s.reinforcement.colocated()) return;
  for (const char* key : {"placement", "faults", "background"}) {
    const auto& given = s.cluster.overrides;
    if (std::any_of(given.begin(), given.end(), [key](const auto& pair) { return pair.first == key; }))
      cluster.get(key).error("says nothing of the devices of reinforcement.generation.gpus: not available together yet",
                             "leave it out, or generation: {gpus: 0}");
  }
}

}  // namespace

void check_reinforcement(const Sections& sections, const Scenario& s) {
  const Reinforcement& r = s.reinforcement;
  if (!r.given) return;
  const Node node = sections.root.get("reinforcement");
  const auto refuse_with = [&node](const std::string& what, const std::string& hint) {
    node.error("is not available with " + what + " yet", hint);
  };
  if (sections.model_sound && !decodes(s.model))
    refuse_with("this model: generation is of gpt, llama and moe without latent attention, sinks and chunks",
                "model: llama3-8b");
  if (s.plan.served()) refuse_with("plan.servers", "plan.servers: 0");
  if (s.plan.steps_apart()) refuse_with("plan.local_steps", "plan.local_steps: 0");
  if (s.training.lora()) refuse_with("adapters", "training.lora_rank: 0");
  if (s.training.packs()) refuse_with("training.documents", "leave it out: packing is said by reinforcement.packing");
  if (!s.jobs.empty()) refuse_with("cluster.jobs", "leave them out");
  if (!s.cluster.nodes.empty()) refuse_with("cluster.nodes", "one kind of node: cluster.topology");
  if (s.data.takes_time()) refuse_with("section data's loaders", "leave out sample_time and sample_bytes");
  const std::int64_t longest = r.prompt_tokens + r.longest_response(s.training.seq_len);
  if (r.prompt_tokens >= s.training.seq_len)
    node.get("prompt_tokens")
        .error(fmt::format("a prompt of {} tokens leaves no room for a response in training.seq_len, {}",
                           r.prompt_tokens, s.training.seq_len),
               "a larger training.seq_len");
  else if (longest > s.training.seq_len)
    node.get("prompt_tokens")
        .error(fmt::format("a prompt of {} tokens and responses of up to {} do not fit training.seq_len, {}",
                           r.prompt_tokens, longest - r.prompt_tokens, s.training.seq_len),
               "a larger training.seq_len");
  if (s.training.global_batch > 0 && r.sequences() % s.training.global_batch != 0)
    node.get("prompts").error(fmt::format("{} prompts of {} samples do not divide by training.global_batch, {}",
                                          r.prompts, r.samples, s.training.global_batch),
                              "whole updates: a divisor as training.global_batch");
  const Reinforcement usual;
  const auto of_ppo = [&](bool given, const char* key) {
    if (given && !r.has_critic()) node.get(key).error("is of algorithm: ppo", "algorithm: ppo");
  };
  of_ppo(r.critic != usual.critic, "critic");
  of_ppo(r.gamma != usual.gamma, "gamma"), of_ppo(r.gae_lambda != usual.gae_lambda, "gae_lambda");
  of_ppo(r.value_clip != usual.value_clip, "value_clip");
  if (r.asynchronous && r.colocated())
    node.get("asynchronous")
        .error("generates while others train, for which it needs devices of its own", "generation: {gpus: 8}");
  check_layout(node, s);
  check_packing(node, s);
  check_own_devices(sections.root.get("cluster"), s);
  if (sections.model_sound && s.model.heads > 0) check_generation(node, s);
}

}  // namespace rehearse::plan::detail
