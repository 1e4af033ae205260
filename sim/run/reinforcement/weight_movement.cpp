// See weight_movement.h.
#include "sim/run/reinforcement/weight_movement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"
#include "sim/model/model.h"
#include "sim/plan/schedule/schedule.h"

namespace rehearse::run {
namespace {

constexpr std::size_t kMostFlows = std::size_t{1} << 22;  // those of 2,048 devices with ZeRO-3, a part from each other

// Of a chunk of layers on a stage the elements, and of a rank the part of their rows: [from, to) of `parts`.
struct Held {
  std::int64_t from = 0, to = 1, parts = 1;
};

// Of a stage: of routed experts, which plan.expert ranks have a part of each, and of all else.
struct StageElements {
  std::int64_t shared = 0, routed = 0;
};

// Elements of each stage's layers, chunks of a stage together.
std::vector<StageElements> elements_of_stages(const plan::Scenario& s) {
  const model::Model& m = s.model;
  const auto stages = static_cast<std::size_t>(s.plan.pipeline);
  std::vector<StageElements> elements(stages);
  const plan::PipelineSchedule& schedule = plan::schedule_of(s.plan.schedule, s.plan.pipeline);
  const auto stage_of = [&](std::size_t part) {
    return static_cast<std::size_t>(schedule.stage_of(static_cast<int>(part), static_cast<int>(stages)));
  };
  std::int64_t layer = 0, in_layers = 0;
  for (std::size_t part = 0; part < s.plan.layers_per_stage.size(); ++part)
    for (std::int64_t i = 0; i < s.plan.layers_per_stage[part]; ++i, ++layer) {
      const std::int64_t count = model::layer_parameter_count(m, layer);
      const std::int64_t routed = model::routed_parameter_count(m, layer);
      elements[stage_of(part)].shared += count - routed, elements[stage_of(part)].routed += routed;
      in_layers += count;
    }
  const std::int64_t rest = model::parameter_count(m) - in_layers, head = m.tied_embeddings ? 0 : rest / 2;
  elements[stage_of(0)].shared += rest - head;
  elements[stage_of(s.plan.layers_per_stage.size() - 1)].shared += head;
  return elements;
}

// What two parts of the same rows have in common, of `elements`.
std::int64_t common(const Held& a, const Held& b, std::int64_t elements) {
  const double low = std::max(static_cast<double>(a.from) / static_cast<double>(a.parts),
                              static_cast<double>(b.from) / static_cast<double>(b.parts));
  const double high = std::min(static_cast<double>(a.to) / static_cast<double>(a.parts),
                               static_cast<double>(b.to) / static_cast<double>(b.parts));
  return high > low ? std::llround((high - low) * static_cast<double>(elements)) : 0;
}

}  // namespace

std::vector<WeightFlow> weight_flows(const plan::Scenario& s, const cluster::Cluster& cluster, int first,
                                     std::int64_t replicas, std::int64_t tensor, std::int64_t element_bytes) {
  const plan::RankGrid grid = s.grid();
  const std::vector<StageElements> elements = elements_of_stages(s);
  const bool sharded = s.plan.zero == 3;
  const std::int64_t shards = sharded ? s.plan.data / s.plan.replicas : 1;
  // By stage, part, and which of the routed experts it is of (none: -1), the ranks that hold it; of each rank its part.
  std::map<std::tuple<int, std::int64_t, int>, std::vector<int>> holders;
  const std::int64_t spread = s.plan.expert_replicas();
  const auto elements_of = [&](int stage, int experts) {
    const StageElements& of = elements[static_cast<std::size_t>(stage)];
    if (spread == 1) return of.shared + of.routed;
    return experts < 0 ? of.shared : of.routed / spread;
  };
  std::vector<Held> held(static_cast<std::size_t>(grid.ranks()));
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const std::int64_t data = grid.coordinate(rank, Axis::data), part = grid.coordinate(rank, Axis::tensor);
    Held& own = held[static_cast<std::size_t>(rank)];
    own.parts = s.plan.tensor * shards;
    own.from = part * shards + (sharded ? data % shards : 0), own.to = own.from + 1;
    const int stage = grid.coordinate(rank, Axis::pipeline);
    holders[{stage, own.from, -1}].push_back(rank);
    if (spread > 1) holders[{stage, own.from, grid.coordinate(rank, Axis::expert)}].push_back(rank);
  }
  std::vector<std::int64_t> sent(static_cast<std::size_t>(grid.ranks()), 0);
  std::map<std::pair<int, int>, std::int64_t> flows;
  for (std::int64_t g = 0; g < replicas * tensor; ++g) {
    check_interrupt();
    const int to = first + static_cast<int>(g);
    const Held need{g % tensor, g % tensor + 1, tensor};
    for (const auto& [piece, ranks] : holders) {
      const Held& of = held[static_cast<std::size_t>(ranks.front())];
      const std::int64_t wanted = common(need, of, elements_of(std::get<0>(piece), std::get<2>(piece)));
      if (wanted == 0 || std::find(ranks.begin(), ranks.end(), to) != ranks.end()) continue;
      const auto cost = [&](int rank) {
        return std::pair(cluster.node_of(rank) != cluster.node_of(to), sent[static_cast<std::size_t>(rank)]);
      };
      const int from = *std::min_element(ranks.begin(), ranks.end(), [&](int a, int b) { return cost(a) < cost(b); });
      sent[static_cast<std::size_t>(from)] += wanted * element_bytes;
      flows[{from, to}] += wanted * element_bytes;
    }
    if (flows.size() > kMostFlows)
      throw InputError(Diagnostic{"", 0, 0, "reinforcement",
                                  fmt::format("the weights' way from {} ranks to {} devices that generate is of more "
                                              "than {} transfers, which are not simulated yet",
                                              grid.ranks(), replicas * tensor, kMostFlows),
                                  "plan.zero: 1 or 2, or plan.zero_group smaller, or fewer devices"});
  }
  std::vector<WeightFlow> all;
  for (const auto& [ends, bytes] : flows) all.push_back({ends.first, ends.second, bytes});
  return all;
}

}  // namespace rehearse::run
