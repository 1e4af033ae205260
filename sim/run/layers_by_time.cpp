// See layers_by_time.h. One part a stage: of the contiguous splits the least maximum by dynamic programming, and among
// those with it the least sum of squares. Several parts: from the split whose slowest part is fastest, one layer at a
// time goes from one part to another for as long as that makes the stages' times, the longest first, smaller. For
// layers that take a stage alike that ends at the least maximum: if another split had a smaller one, it would give the
// slowest stage fewer layers and some other stage more, which could then take one.
#include "sim/run/layers_by_time.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "sim/account/program_facts.h"
#include "sim/base/check.h"
#include "sim/base/units.h"
#include "sim/engine/wide.h"
#include "sim/lower/lower.h"
#include "sim/plan/muon_shards.h"
#include "sim/plan/schedule/schedule.h"
#include "sim/program/work.h"
#include "sim/run/device_kinds.h"
#include "sim/run/prepared.h"

namespace rehearse::run {
namespace {

using engine::Int128;
using Counts = std::vector<std::int64_t>;

// What part `part` takes with the layers [from, to).
class PartTimes {
 public:
  PartTimes(const std::vector<LayerTimes>& of_stage, const std::vector<int>& stage_of) : stage_of_(stage_of) {
    for (const LayerTimes& times : of_stage) {
      std::vector<std::int64_t>& sum = sums_.emplace_back(1, 0);
      for (const std::int64_t layer : times.layers) sum.push_back(sum.back() + layer);
      ends_.emplace_back(times.first, times.last);
    }
  }
  std::size_t parts() const { return stage_of_.size(); }
  std::size_t stages() const { return sums_.size(); }
  std::size_t layers() const { return sums_.front().size() - 1; }
  std::size_t stage(std::size_t part) const { return static_cast<std::size_t>(stage_of_[part]); }
  std::int64_t of(std::size_t part, std::size_t from, std::size_t to) const {
    const std::size_t s = stage(part);
    return sums_[s][to] - sums_[s][from] + (part == 0 ? ends_[s].first : 0) +
           (part + 1 == parts() ? ends_[s].second : 0);
  }

 private:
  const std::vector<int>& stage_of_;
  std::vector<std::vector<std::int64_t>> sums_;  // of each stage: of the layers before
  std::vector<std::pair<std::int64_t, std::int64_t>> ends_;
};

// The contiguous split whose slowest part takes least, and of these the one with the least sum of squares. `last`: the
// fewest layers of the last part.
Counts split(const PartTimes& times, std::size_t fewest, std::size_t last) {
  const std::size_t parts = times.parts(), layers = times.layers();
  const auto fewest_of = [&](std::size_t part) { return part + 1 == parts ? last : fewest; };
  const auto behind = [&](std::size_t part) { return part + 1 == parts ? 0 : (parts - part - 2) * fewest + last; };
  constexpr std::int64_t kNone = INT64_MAX;
  std::vector<std::int64_t> least(layers + 1, kNone);  // of the parts so far with so many layers
  least[0] = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    std::vector<std::int64_t> next(layers + 1, kNone);
    for (std::size_t to = part * fewest + fewest_of(part); to + behind(part) <= layers; ++to)
      for (std::size_t from = part * fewest; from + fewest_of(part) <= to; ++from)
        if (least[from] != kNone) next[to] = std::min(next[to], std::max(least[from], times.of(part, from, to)));
    least = std::move(next);
  }
  const std::int64_t most = least[layers];
  std::vector<Int128> squares(layers + 1, -1);  // -1: cannot be
  squares[0] = 0;
  std::vector<std::vector<std::size_t>> begins;
  for (std::size_t part = 0; part < parts; ++part) {
    std::vector<Int128> next(layers + 1, -1);
    std::vector<std::size_t>& begin = begins.emplace_back(layers + 1, 0);
    for (std::size_t to = part * fewest + fewest_of(part); to + behind(part) <= layers; ++to)
      for (std::size_t from = part * fewest; from + fewest_of(part) <= to; ++from) {
        const std::int64_t time = times.of(part, from, to);
        if (squares[from] < 0 || time > most) continue;
        const Int128 sum = squares[from] + static_cast<Int128>(time) * time;
        if (next[to] < 0 || sum < next[to]) next[to] = sum, begin[to] = from;
      }
    squares = std::move(next);
  }
  Counts counts(parts);
  for (std::size_t part = parts, to = layers; part-- > 0;) {
    const std::size_t from = begins[part][to];
    counts[part] = static_cast<std::int64_t>(to - from);
    to = from;
  }
  return counts;
}

// Times of the stages, then of the parts, each the longest first.
std::vector<std::int64_t> objective(const PartTimes& times, const Counts& counts) {
  std::vector<std::int64_t> stages(times.stages(), 0), parts;
  std::size_t from = 0;
  for (std::size_t part = 0; part < counts.size(); ++part) {
    const std::size_t to = from + static_cast<std::size_t>(counts[part]);
    parts.push_back(times.of(part, from, to));
    stages[times.stage(part)] += parts.back();
    from = to;
  }
  std::sort(stages.rbegin(), stages.rend());
  std::sort(parts.rbegin(), parts.rend());
  stages.insert(stages.end(), parts.begin(), parts.end());
  return stages;
}

Counts improved(const PartTimes& times, Counts counts, std::int64_t fewest, std::int64_t last) {
  std::vector<std::int64_t> best = objective(times, counts);
  for (;;) {
    Counts chosen;
    for (std::size_t from = 0; from < counts.size(); ++from)
      for (std::size_t to = 0; to < counts.size() && counts[from] > (from + 1 == counts.size() ? last : fewest); ++to) {
        if (from == to) continue;
        Counts moved = counts;
        --moved[from], ++moved[to];
        if (std::vector<std::int64_t> tried = objective(times, moved); tried < best)
          best = std::move(tried), chosen = std::move(moved);
      }
    if (chosen.empty()) return counts;
    counts = std::move(chosen);
  }
}

constexpr std::int64_t kNoLayer = -1;

// "layer12.mlp.up", "d_layer12.mlp.up" -> 12
std::int64_t layer_of_op(std::string_view name) {
  constexpr std::string_view kLayer = "layer", kGradient = "d_";
  if (name.starts_with(kGradient)) name.remove_prefix(kGradient.size());
  if (!name.starts_with(kLayer)) return kNoLayer;
  std::int64_t layer = kNoLayer;
  const char* const begin = name.data() + kLayer.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
  return error == std::errc() && end < name.data() + name.size() && *end == '.' ? layer : kNoLayer;
}

std::string_view head_of(std::string_view name) {
  return name.substr(0, name.find('.'));
}

// What a role's ops belong to: a layer, the embedding (before the layers) or the head.
class Whose {
 public:
  Whose(const program::Role& role, bool first, bool last) : first_(first), last_(last) {
    if (!first || !last) return;
    for (const program::Body& body : role.bodies) {
      bool behind = false;
      for (const program::Op& op : body.ops) {
        if (op.phase != program::Phase::forward) continue;
        if (layer_of_op(op.name) != kNoLayer)
          behind = true;
        else if (!behind)
          before_.insert(head_of(op.name));
      }
    }
  }
  // Nothing: of neither.
  std::int64_t* at(const program::Op& op, LayerTimes& times) const {
    if (const std::int64_t layer = layer_of_op(op.name); layer != kNoLayer)
      return static_cast<std::size_t>(layer) < times.layers.size() ? &times.layers[static_cast<std::size_t>(layer)]
                                                                   : &times.last;  // of multi-token prediction
    if (first_ && last_) return before_.contains(head_of(op.name)) ? &times.first : &times.last;
    return first_ ? &times.first : last_ ? &times.last : nullptr;
  }

 private:
  bool first_, last_;
  std::set<std::string_view> before_;
};

bool waited_for(const program::Group& group) {
  return group.kind == program::GroupKind::tensor || group.kind == program::GroupKind::context ||
         group.kind == program::GroupKind::expert;
}

// What a step's ops take a rank.
class OpTimes {
 public:
  OpTimes(const program::Program& program, const plan::RankGrid& grid, const Machine& machine)
      : program_(program), grid_(grid), machine_(machine) {}

  // A body alone, each op as soon as its stream and its waits let it: what each kernel adds to the time of the compute
  // stream, what it waits for included.
  template <class Add>  // (op, ps)
  void walk(const program::Role& role, const program::Body& body, int rank, const Add& add) const {
    std::map<program::StreamId, std::int64_t> streams;
    std::map<program::EventId, std::int64_t> events;
    for (const program::Op& op : body.ops) {
      const std::int64_t before = streams[op.stream];
      std::int64_t start = before;
      for (const program::EventId event : op.waits)
        if (const auto recorded = events.find(event); recorded != events.end())
          start = std::max(start, recorded->second);
      const std::int64_t end = start + of(role, op, rank);
      streams[op.stream] = end;
      if (op.records >= 0) events[op.records] = end;
      if (role.streams[static_cast<std::size_t>(op.stream)].kind == program::StreamKind::compute) add(op, end - before);
    }
  }

 private:
  std::int64_t of(const program::Role& role, const program::Op& op, int rank) const {
    const bool counted = op.phase == program::Phase::forward || op.phase == program::Phase::recompute ||
                         op.phase == program::Phase::backward;
    if (!counted || std::holds_alternative<program::HostSync>(op.shape)) return 0;
    if (const auto* c = std::get_if<program::Collective>(&op.shape)) return collective(op, *c, rank);
    if (program::is_transfer(op) ||
        role.streams[static_cast<std::size_t>(op.stream)].kind != program::StreamKind::compute)
      return 0;
    const cost::CostModel& costs = machine_.costs_of(machine_.cluster->kind_of(rank));
    cost::Interference beside;
    if (costs.device().cpu) beside.busy_cores = grid_.ranks();
    return costs.kernel(role, op, beside).duration.ps();
  }

  std::int64_t collective(const program::Op& op, const program::Collective& c, int rank) const {
    const program::Group& group = program_.groups[static_cast<std::size_t>(c.group)];
    if (!waited_for(group)) return 0;
    const std::vector<int> members = grid_.members(rank, group.axes, group.pipeline_only, group.tensor_block);
    const std::int64_t bytes = program::collective_bytes(op);
    const collective::CollectiveModel& model = machine_.collectives.model();
    if (c.parts < 0 && c.to.experts == 0) return model.collective(c.kind, members, Bytes(bytes)).alone().ps();
    return model.exchange(members, {program::part_bytes(program_, c.parts, bytes, members.size()), c.back, c.to})
        .alone()
        .ps();
  }

  const program::Program& program_;
  const plan::RankGrid& grid_;
  const Machine& machine_;
};

// Of all layers as ranks like this one would do them in a step.
LayerTimes times_on(int rank, const plan::Scenario& scenario, const program::Program& program, const OpTimes& ops,
                    const std::vector<int>& stage_of) {
  LayerTimes slowest;
  slowest.layers.resize(static_cast<std::size_t>(plan::unit_count(scenario.model)));
  for (const program::Role& role : program.roles) {
    LayerTimes own;
    own.layers.resize(slowest.layers.size());
    const Whose whose(role, role.pipeline == stage_of.front(), role.pipeline == stage_of.back());
    std::vector<std::int64_t> runs(role.bodies.size(), 0);
    for (const program::Slot& slot : role.slots) ++runs[static_cast<std::size_t>(slot.body)];
    for (std::size_t b = 0; b < role.bodies.size(); ++b)
      if (runs[b] > 0)
        ops.walk(role, role.bodies[b], rank, [&](const program::Op& op, std::int64_t ps) {
          if (std::int64_t* const sum = whose.at(op, own)) *sum += ps * runs[b];
        });
    // Of places in an expert group the one with most to do.
    for (std::size_t l = 0; l < own.layers.size(); ++l) slowest.layers[l] = std::max(slowest.layers[l], own.layers[l]);
    slowest.first = std::max(slowest.first, own.first), slowest.last = std::max(slowest.last, own.last);
  }
  return slowest;
}

LayerTimes slower_of(LayerTimes a, const LayerTimes& b) {
  for (std::size_t l = 0; l < a.layers.size(); ++l) a.layers[l] = std::max(a.layers[l], b.layers[l]);
  a.first = std::max(a.first, b.first), a.last = std::max(a.last, b.last);
  return a;
}

// Stages on devices of the same kinds take alike.
std::vector<LayerTimes> times_of_stages(const plan::Scenario& scenario, const Machine& machine,
                                        const std::vector<int>& stage_of) {
  const program::Program program = lower::lower(scenario);
  const plan::RankGrid grid = scenario.grid();
  const OpTimes ops(program, grid, machine);
  std::map<std::vector<int>, LayerTimes> known;  // by kinds of devices
  std::vector<LayerTimes> all;
  const std::vector<StageDevices> stages = devices_of_stages(*machine.cluster, grid);
  for (const StageDevices& stage : stages) {
    const auto [at, fresh] = known.try_emplace(stage.kinds);
    for (std::size_t k = 0; k < stage.kinds.size() && fresh; ++k) {
      LayerTimes times = times_on(stage.first_rank[k], scenario, program, ops, stage_of);
      at->second = k == 0 ? std::move(times) : slower_of(std::move(times), at->second);
    }
    all.push_back(at->second);
  }
  return all;
}

}  // namespace

std::vector<std::int64_t> layers_by_time(const std::vector<LayerTimes>& of_stage, const std::vector<int>& stage_of,
                                         std::int64_t least, std::int64_t least_of_last) {
  const PartTimes times(of_stage, stage_of);
  const auto fewest = static_cast<std::size_t>(least);
  REHEARSE_CHECK(times.layers() >= times.parts() * fewest, "{} layers for {} parts", times.layers(), times.parts());
  const std::int64_t last = least_of_last < 0 ? least : least_of_last;
  Counts counts = split(times, fewest, static_cast<std::size_t>(last));
  return times.parts() == times.stages() ? counts : improved(times, std::move(counts), least, last);
}

std::vector<std::int64_t> stage_times(const std::vector<LayerTimes>& of_stage, const std::vector<int>& stage_of,
                                      const std::vector<std::int64_t>& layers) {
  const PartTimes times(of_stage, stage_of);
  std::vector<std::int64_t> stages(of_stage.size(), 0);
  std::size_t from = 0;
  for (std::size_t part = 0; part < layers.size(); ++part) {
    const std::size_t to = from + static_cast<std::size_t>(layers[part]);
    stages[times.stage(part)] += times.of(part, from, to);
    from = to;
  }
  return stages;
}

std::optional<ChosenLayers> choose_layers(const plan::Scenario& scenario, const Machine& machine) {
  if (!scenario.plan.layers_by_time) return std::nullopt;
  ChosenLayers chosen{scenario, ""};
  plan::Plan& plan = chosen.scenario.plan;
  plan.layers_by_time = false;
  const plan::PipelineSchedule& schedule = plan::schedule_of(plan.schedule, plan.pipeline);
  std::vector<int> stage_of;
  for (int part = 0; part < static_cast<int>(plan.layers_per_stage.size()); ++part)
    stage_of.push_back(schedule.stage_of(part, static_cast<int>(plan.pipeline)));
  const std::vector<LayerTimes> times = times_of_stages(chosen.scenario, machine, stage_of);
  const Counts even = plan.layers_per_stage;
  // The modules of multi-token prediction are a part of their own.
  const std::int64_t least = plan::least_layers(scenario);
  plan.layers_per_stage =
      layers_by_time(times, stage_of, least, scenario.model.mtp_depth > 0 && least == 1 ? 0 : least);
  const std::int64_t micro_batches = scenario.training.micro_batches(scenario.plan);
  const auto slowest = [&](const Counts& layers) {
    const std::vector<std::int64_t> stages = stage_times(times, stage_of, layers);
    return format_time(Time::from_ps(*std::max_element(stages.begin(), stages.end()) / micro_batches));
  };
  chosen.text = fmt::format(
      "plan.layers_per_stage: by_time chose [{}]: the slowest stage takes {} a micro-batch, with [{}], as auto has "
      "them, {}.",
      fmt::join(plan.layers_per_stage, ", "), slowest(plan.layers_per_stage), fmt::join(even, ", "), slowest(even));
  return chosen;
}

}  // namespace rehearse::run
