// See sections.h. Parameter servers are of data parallelism alone: a worker has a whole model, and a server whole
// parameters.
#include <fmt/format.h>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

void resolve_servers(const Sections& sections, Scenario& scenario) {
  Plan& plan = scenario.plan;
  const Node& node = sections.plan;
  if (plan.served() && !sections.training.has("first_weights")) scenario.training.first_weights = FirstWeights::seeded;
  if (!plan.served()) {
    const char* const none = "plan.servers 1 or more, or leave it out";
    if (plan.consistency != Consistency::synchronous)
      node.get("consistency").error("who waits for whom differs with parameter servers alone, and servers = 0", none);
    if (plan.backup_workers > 0)
      node.get("backup_workers")
          .error("collectives wait for every rank: servers take the first, and servers = 0", none);
    if (plan.mode_overhead > 0)
      node.get("mode_overhead").error("is of workers of parameter servers, and servers = 0", none);
    plan.backup_workers = 0;
    return;
  }
  const std::int64_t data = plan.data;
  if (plan.backup_workers > 0 && plan.consistency != Consistency::synchronous) {
    node.get("backup_workers")
        .error("gradients that are applied as they come leave nobody behind to spare",
               "consistency: synchronous, or backup_workers: 0");
    plan.backup_workers = 0;
  }
  if (plan.backup_workers >= data) {
    node.get("backup_workers")
        .error(
            fmt::format("{} of {} data-parallel ranks are spare, and none is left to count", plan.backup_workers, data),
            fmt::format("at most {}", data - 1));
    plan.backup_workers = 0;
  }
  if (plan.local_steps == 0 && plan.zero == 0) plan.replicas = data;  // each steps by nobody else's gradients
}

namespace {

// What of the plan is more than replicas of a whole model.
void check_split(const Node& servers, const Plan& plan) {
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"tensor", plan.tensor}, {"pipeline", plan.pipeline}, {"context", plan.context}, {"expert", plan.expert}};
  for (const auto& [name, size] : sizes)
    if (size > 1)
      servers.error(
          fmt::format("a worker has a whole model, and plan.{} = {} splits it over {} ranks", name, size, size),
          fmt::format("plan.{}: 1, or servers: 0", name));
  if (plan.zero > 0)
    servers.error(
        fmt::format("servers hold the optimizer's states, of which plan.zero = {} shards the ranks' own", plan.zero),
        "plan.zero: 0, or servers: 0");
  if (plan.steps_apart())
    servers.error(fmt::format("with plan.local_steps = {} workers step by themselves", plan.local_steps),
                  "plan.local_steps: 0, or servers: 0");
  if (plan.compresses_gradients())
    servers.error("gradients for servers are not compressed yet", "plan.gradient_compression: [none]");
  if (plan.offload_optimizer || plan.offload_parameters)
    servers.error("the optimizer's step is the servers', and workers keep parameters on their devices",
                  "plan.offload_optimizer: false and plan.offload_parameters: false");
  if (plan.embedding_tables == EmbeddingTables::sharded)
    servers.error("tables that one rank has are no server's", "plan.embedding_tables: replicated");
  if (plan.cuda_graphs == CudaGraphs::step)
    servers.error("a graph of a whole step has no place for pulls and pushes", "plan.cuda_graphs: layer or none");
}

void check_steps(const Node& servers, const Scenario& s) {
  const Training& t = s.training;
  if (t.optimizer != OptimizerKind::sgd && t.optimizer != OptimizerKind::adamw)
    servers.error("servers step by sgd or adamw so far", "training.optimizer: sgd or adamw");
  if (t.clip > 0)
    servers.error(
        fmt::format("training.clip = {} is of the norm of all gradients, of which a server has its own alone", t.clip),
        "training.clip: 0");
  if (t.moments != MomentsKind::fp32) servers.error("servers keep moments in fp32", "training.moments: fp32");
  if (t.narrow() || t.precision == Precision::fp16)
    servers.error("scales of 8 and 4 bits, and of fp16's losses, are of all ranks together",
                  "training.precision: fp32 or bf16");
  if (t.sparse_optimizer != SparseOptimizer::none)
    servers.error("tables that backward updates are no server's", "training.sparse_optimizer: none");
  if (t.lora()) servers.error("adapters' gradients are not pushed yet", "training.lora_rank: 0");
  if (s.model.sync_batch_norm)
    servers.error("batch normalisation over all ranks' examples makes them meet in every layer",
                  "model.sync_batch_norm: false");
  if (!s.jobs.empty())
    servers.error("beside other jobs of the cluster servers are not simulated yet", "no cluster.jobs");
}

}  // namespace

void check_servers(const Sections& sections, const Scenario& scenario) {
  if (!scenario.plan.served()) return;
  const Node servers = sections.plan.get("servers");
  if (scenario.training.first_weights == FirstWeights::broadcast)
    sections.training.get("first_weights")
        .error("workers pull their parameters from the servers, the first ones too", "first_weights: seeded");
  check_split(servers, scenario.plan);
  check_steps(servers, scenario);
  if (scenario.plan.server_devices == ServerDevices::workers && scenario.plan.servers > scenario.plan.data)
    sections.plan.get("server_devices")
        .error(fmt::format("{} servers beside {} workers, at most one each", scenario.plan.servers, scenario.plan.data),
               "fewer servers, or server_devices: own");
  if (scenario.plan.own_servers() > 0 && !scenario.cluster.nodes.empty())
    sections.plan.get("server_devices")
        .error("cluster.nodes lists the ranks' devices alone", "server_devices: workers, or cluster.topology and gpus");
}

}  // namespace rehearse::plan::detail
