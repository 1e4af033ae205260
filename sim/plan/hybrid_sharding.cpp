// Which ranks shard together where not all do (hybrid sharding, plan.zero_group): as many of those with the same
// weights as a number says or as share a node, the rest being replicas of the group.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "sim/plan/nearest_numbers.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

// Whether every group of ranks that shard together, of `replicas` of them, lies within one of the nodes of `devices`
// ranks each.
bool within_nodes(const Scenario& scenario, std::int64_t replicas, std::int64_t devices) {
  Scenario tried = scenario;
  tried.plan.replicas = replicas;
  const RankGrid grid = tried.grid();
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    if (grid.position(rank, kShardAxes) != 0) continue;
    for (const int member : grid.members(rank, {Axis::context, Axis::expert, Axis::data}))
      if (member / devices != rank / devices) return false;
  }
  return true;
}

}  // namespace

std::optional<std::int64_t> devices_of_node(const ClusterRequest& cluster, const std::string& data_root) {
  if (!cluster.nodes.empty()) {
    const std::vector<std::int64_t> each = devices_of_nodes(cluster, data_root);
    const bool alike = std::adjacent_find(each.begin(), each.end(), std::not_equal_to<>()) == each.end();
    return alike && each.front() > 0 ? std::optional(each.front()) : std::nullopt;
  }
  const bool path = cluster.topology.find('/') != std::string::npos || cluster.topology.ends_with(".yaml") ||
                    cluster.topology.ends_with(".yml");
  Diagnostics problems;  // the topology's own reader reports them
  try {
    Document document = Document::from_file(
        path ? cluster.topology : data_root + "/topologies/" + cluster.topology + ".yaml", problems);
    for (const auto& [key, value] : cluster.overrides)
      if (key == "node.devices") document.set(key + "=" + value);
    if (document.root().get("kind").as_text() == "local") return cluster.gpus;
    return document.root().get("node").get("devices").as_integer();
  } catch (const InputError&) {
    return std::nullopt;
  }
}

namespace {

// Whether each of so many groups that shard apart has whole expert groups.
bool holds_experts(const Plan& plan, std::int64_t replicas) {
  return plan.data % replicas == 0 && plan.data / replicas % plan.expert_replicas() == 0;
}

// Plan::replicas of groups of `group` ranks with the same weights, or of those of a node (Plan::kNodeShards).
void resolve_group(const Node& key, const char* name, std::int64_t group, std::optional<std::int64_t> devices,
                   Scenario& scenario) {
  Plan& plan = scenario.plan;
  const std::int64_t all = plan.data * plan.context, spread = plan.context * plan.expert_replicas();
  if (group > 0) {
    if (all % group != 0 || group % plan.context != 0) {
      const std::string context = plan.context > 1 ? fmt::format(" * context = {} * {}", plan.data, plan.context) : "";
      key.error(fmt::format(
          "groups of {} ranks: {} ranks have the same weights (data{}), which do not divide into such "
          "groups{}; nearest that do: {}",
          group, all, context, plan.context > 1 ? fmt::format(" of whole context groups of {}", plan.context) : "",
          nearest_divisors(all, group, all)));
      return;
    }
    if (!holds_experts(plan, all / group)) {
      key.error(fmt::format("groups of {} ranks: experts are spread over {} of the ranks with the same other weights, "
                            "which do not lie whole in each group",
                            group, spread),
                fmt::format("a multiple of {}", spread));
      return;
    }
    plan.replicas = all / group;
    return;
  }
  if (!devices || *devices < 1) {
    key.error(
        fmt::format("topology {} does not say how many devices a node has (node.devices)", scenario.cluster.topology),
        fmt::format("give {} as a number of ranks", name));
    return;
  }
  for (std::int64_t replicas = 1; replicas <= plan.data; ++replicas) {
    if (!holds_experts(plan, replicas) || !within_nodes(scenario, replicas, *devices)) continue;
    if (all / replicas < 2) break;
    plan.replicas = replicas;
    return;
  }
  key.error(fmt::format("no {} ranks with the same weights share a node of {} devices (tensor = {}, pipeline = {}{}, "
                        "rank_order)",
                        spread > 2 ? fmt::to_string(spread) : "two", *devices, plan.tensor, plan.pipeline,
                        plan.expert > 1 ? fmt::format(", expert = {}", plan.expert) : ""),
            fmt::format("split less, or give {} as a number of ranks", name));
}

}  // namespace

void resolve_zero_group(const Node& key, std::optional<std::int64_t> devices, Scenario& scenario) {
  Plan& plan = scenario.plan;
  plan.replicas = 1;
  if (plan.zero_group == Plan::kAllShard) return;
  if (plan.zero == 0) {
    key.error("with zero: 0 nothing is sharded", "plan.zero 1, 2 or 3, or leave zero_group out");
    return;
  }
  resolve_group(key, "zero_group", plan.zero_group, devices, scenario);
}

void resolve_local_group(const Node& plan_node, std::optional<std::int64_t> devices, Scenario& scenario) {
  Plan& plan = scenario.plan;
  if (!plan.steps_apart()) return;
  if (plan.zero > 0) {
    plan_node.get("local_steps")
        .error(
            fmt::format("with plan.zero = {} a rank has no optimizer states, and no parameters, of its own to step by",
                        plan.zero),
            "plan.zero: 0");
    return;
  }
  if (plan.local_group == Plan::kReplicaGroup)
    plan.replicas = plan.data;
  else
    resolve_group(plan_node.get("local_group"), "local_group", plan.local_group, devices, scenario);
}

}  // namespace rehearse::plan::detail
