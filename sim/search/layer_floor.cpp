// See layer_floor.h.
#include "sim/search/layer_floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "sim/lower/lower.h"
#include "sim/plan/expert_loads.h"
#include "sim/plan/schedule/schedule.h"
#include "sim/program/work.h"
#include "sim/run/device_kinds.h"
#include "sim/run/energy.h"
#include "sim/search/least_times.h"

namespace rehearse::search {
namespace {

using program::Op;

// All layers on one stage, one micro-batch, one replica (of experts as many as share them).
plan::Scenario on_one_stage(plan::Scenario scenario) {
  plan::Plan& p = scenario.plan;
  p.layers_per_stage = {scenario.model.layers};
  p.layers_by_time = false;
  p.pipeline = p.chunks = 1;
  p.zero = 0, p.zero_group = plan::Plan::kAllShard, p.replicas = 1, p.local_steps = 0;
  p.data = p.expert_replicas();
  p.offload_optimizer = p.offload_parameters = p.offload_activations = false;
  p.offload_layers = 0;
  p.overlap_expert_exchange = false;
  // Which layers are recomputed depends on the stages.
  if (p.recompute_layers > 0 || p.recompute_every > 1) p.recompute = plan::Recompute::none;
  scenario.cluster.gpus = p.tensor * p.context * p.data;
  scenario.training.global_batch = p.micro_batch * p.data;
  return scenario;
}

constexpr std::int64_t kNoUnit = -2, kFirst = -1;

// Numbers of units: -1 what lies before the layers, 0 on the layers, their number what lies behind them. Of no unit is
// what lies between an encoder's layers and its decoder's: the stages decide which of them has it.
class Units {
 public:
  Units(const program::Role& role, const model::Model& model) : layers_(model.layers) {
    if (model.has_decoder()) between_ = {"encoder", "decoder"};
    bool behind = false;
    for (const program::Body& body : role.bodies)
      for (const Op& op : body.ops) {
        if (op.phase != program::Phase::forward || body.name.find("forward") == std::string::npos) continue;
        if (layer_of(op.name) >= 0)
          behind = true;
        else if (!is_between(op.name))
          (behind ? last_ : first_).insert(head(op.name));
      }
    for (const std::string& name : first_) last_.erase(name);
  }

  std::int64_t of(std::string_view name) const {
    // Those of multi-token prediction are behind the layers.
    if (const std::int64_t layer = layer_of(name); layer >= 0) return std::min(layer, layers_);
    const std::string prefix = head(name);
    if (between_.contains(prefix)) return kNoUnit;
    return first_.contains(prefix) ? kFirst : last_.contains(prefix) ? layers_ : kNoUnit;
  }
  bool is_between(std::string_view name) const { return between_.contains(head(name)); }

 private:
  static std::string head(std::string_view name) { return std::string(name.substr(0, name.find('.'))); }
  // "layer12.mlp.up" -> 12
  static std::int64_t layer_of(std::string_view name) {
    constexpr std::string_view kLayer = "layer";
    if (!name.starts_with(kLayer)) return kNoUnit;
    std::int64_t layer = kNoUnit;
    const char* const begin = name.data() + kLayer.size();
    const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
    return error == std::errc() && end < name.data() + name.size() && *end == '.' ? layer : kNoUnit;
  }

  std::int64_t layers_;
  std::set<std::string> first_, last_, between_;
};

// A body's units one after the other, each from its first kernel on the compute stream to its last.
class UnitPaths {
 public:
  // `waits`: whether kernels wait for transfers, and nothing else runs meanwhile.
  UnitPaths(const program::Role& role, const Units& units, TransferTimes& transfers, const cost::CostModel& costs,
            bool waits)
      : role_(role), units_(units), transfers_(transfers), costs_(costs), waits_(waits) {}

  template <class Add>  // (unit, whether backward, ps)
  void walk(const program::Body& body, const Add& add) {
    leave(add);
    for (const Op& op : body.ops) one(op, add);
    leave(add);
  }

 private:
  static constexpr std::int64_t kBefore = INT64_MIN / 4;  // of what lies before the unit

  bool computes(const Op& op) const {
    return role_.streams[static_cast<std::size_t>(op.stream)].kind == program::StreamKind::compute;
  }

  template <class Add>
  void one(const Op& op, const Add& add) {
    const bool on_compute = computes(op) && !program::is_transfer(op);
    if (on_compute) {
      const bool backward = op.phase == program::Phase::backward || op.phase == program::Phase::recompute;
      if (!backward && op.phase != program::Phase::forward) return leave(add);
      if (units_.is_between(op.name)) return leave(add);
      const std::int64_t unit = units_.of(op.name);
      if (unit != kNoUnit && (unit != unit_ || backward != backward_)) {
        leave(add);
        unit_ = unit, backward_ = backward, end_ = 0;
      }
    }
    if (unit_ == kNoUnit) return;
    std::int64_t start = on_compute ? end_ : kBefore;
    if (const auto earlier = streams_.find(op.stream); earlier != streams_.end())
      start = std::max(start, earlier->second);
    for (const program::EventId event : op.waits)
      if (const auto recorded = events_.find(event); recorded != events_.end())
        start = std::max(start, recorded->second);
    if (start < 0) return;
    const std::int64_t end = start + time_of(op);
    streams_[op.stream] = end;
    if (op.records >= 0) events_[op.records] = end;
    if (on_compute) end_ = end;
  }

  std::int64_t time_of(const Op& op) {
    if (std::holds_alternative<program::HostSync>(op.shape)) return 0;
    if (program::is_transfer(op) && !waits_) return 0;
    if (const auto* c = std::get_if<program::Collective>(&op.shape)) return transfers_.collective(op, *c);
    if (const auto* legs = std::get_if<program::PointToPoint>(&op.shape)) return transfers_.messages(op, *legs);
    return kernel_time(costs_, role_, op);
  }

  template <class Add>
  void leave(const Add& add) {
    if (unit_ != kNoUnit) add(unit_, backward_, end_);
    unit_ = kNoUnit;
    streams_.clear();
    events_.clear();
  }

  const program::Role& role_;
  const Units& units_;
  TransferTimes& transfers_;
  const cost::CostModel& costs_;
  const bool waits_;
  std::int64_t unit_ = kNoUnit, end_ = 0;
  bool backward_ = false;
  std::map<program::StreamId, std::int64_t> streams_;
  std::map<program::EventId, std::int64_t> events_;
};

UnitFloor* unit_at(LayerFloor& floor, std::int64_t unit) {
  if (unit == kNoUnit) return nullptr;
  if (unit == kFirst) return &floor.first;
  const auto index = static_cast<std::size_t>(unit);
  return index < floor.layers.size() ? &floor.layers[index] : &floor.last;
}

// Gradients and optimizer states lie in buckets; each unit has of them as it has of the parameters.
void add_memory(const program::Role& role, const Units& units, bool all_trained, LayerFloor& floor) {
  struct Range {
    program::BufferId base;
    std::int64_t first, end;
    bool holds(const Range& part) const { return base == part.base && first <= part.first && part.end <= end; }
  };
  std::vector<Range> counted;
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;
  for (const program::Buffer& buffer : role.buffers) {
    if (buffer.on_host) continue;
    if (buffer.cls == program::BufferClass::gradient && !buffer.is_view() &&
        buffer.lifetime == program::Lifetime::persistent)
      gradients += buffer.bytes();
    // Means of rows and columns are not as many as parameters, and no shard has fewer.
    const bool means = buffer.name.starts_with("means.") || buffer.name.starts_with("row_means.") ||
                       buffer.name.starts_with("col_means.");
    if (buffer.cls == program::BufferClass::optimizer && !buffer.is_view() && !means) optimizer += buffer.bytes();
    UnitFloor* const unit = unit_at(floor, units.of(buffer.name));
    if (unit == nullptr) continue;
    if (buffer.cls == program::BufferClass::parameter && buffer.lifetime == program::Lifetime::persistent) {
      if (buffer.is_view()) {  // which may be a part of one counted already
        const Range own{buffer.base, buffer.offset, buffer.offset + buffer.elements()};
        if (std::any_of(counted.begin(), counted.end(), [&](const Range& whole) { return whole.holds(own); })) continue;
        counted.push_back(own);
      }
      unit->parameters += buffer.bytes();
      parameters += buffer.bytes();
    }
    if (buffer.cls == program::BufferClass::activation && !buffer.is_view() &&
        buffer.lifetime == program::Lifetime::micro_batch)
      unit->kept += buffer.bytes();
  }
  if (parameters == 0 || !all_trained) return;
  const auto share = [&](std::int64_t of, UnitFloor& unit) {
    return static_cast<std::int64_t>(static_cast<double>(of) * static_cast<double>(unit.parameters) /
                                     static_cast<double>(parameters));
  };
  const auto give = [&](UnitFloor& unit) {
    unit.gradients = share(gradients, unit);
    unit.optimizer = share(optimizer, unit);
  };
  give(floor.first), give(floor.last);
  for (UnitFloor& unit : floor.layers) give(unit);
}

// What kernels of a micro-batch take in energy. Of packed documents attention takes what a rank's own do, as in
// kernel_time().
void add_energy(const program::Role& role, const program::Body& body, const Units& units, const cost::Power& power,
                LayerFloor& floor) {
  for (const Op& op : body.ops) {
    UnitFloor* const unit = unit_at(floor, units.of(op.name));
    if (unit == nullptr || !run::is_counted(role, op)) continue;
    const auto* const attention = std::get_if<program::Attention>(&op.shape);
    if (attention != nullptr && attention->document > 0) continue;
    const cost::KernelEnergy energy = cost::kernel_energy(power, role, op);
    unit->kernels.products += energy.flops.value, unit->kernels.memory += energy.bytes.value;
  }
}

// A stage's chunks, each a run of layers, in the model's order.
struct Part {
  std::int64_t forward = 0, backward = 0, kept = 0, parameters = 0, gradients = 0, optimizer = 0;
  std::int64_t last_forward = 0;  // of its last layer

  void add(const UnitFloor& unit) {
    forward += unit.forward_ps, backward += unit.backward_ps, kept += unit.kept;
    parameters += unit.parameters, gradients += unit.gradients, optimizer += unit.optimizer;
  }
};

std::vector<Part> parts_of(const LayerFloor& floor, const plan::Plan& plan) {
  std::vector<Part> parts;
  std::size_t layer = 0;
  for (const std::int64_t count : plan.layers_per_stage) {
    Part& part = parts.emplace_back();
    for (std::int64_t l = 0; l < count && layer < floor.layers.size(); ++l) {
      part.last_forward = floor.layers[layer].forward_ps;
      part.add(floor.layers[layer++]);
    }
  }
  parts.front().add(floor.first);
  parts.back().add(floor.last);
  return parts;
}

// What the first stage's data-parallel stream does in a step. Of experts, whose groups are others, of shards within
// groups and of what lies on the host it knows nothing.
Time data_floor(const Part& stage, std::int64_t layers, const plan::Scenario& scenario, CollectiveTimes& collectives) {
  const plan::Plan& p = scenario.plan;
  const plan::Training& t = scenario.training;
  const auto bytes_of = [](plan::Precision precision) -> std::int64_t {
    return precision == plan::Precision::fp32 ? 4 : precision == plan::Precision::fp8 ? 1 : 2;
  };
  if (scenario.model.experts > 0 || p.replicas > 1 || p.offload_optimizer || p.offload_parameters || t.narrow())
    return {};
  const plan::RankGrid grid = scenario.grid();
  std::vector<Axis> axes;
  for (const Axis axis : {Axis::context, Axis::expert, Axis::data})
    if (grid.size(axis) > 1) axes.push_back(axis);
  if (axes.empty()) return {};
  const std::vector<int> members = grid.members(0, axes);
  using program::CollectiveKind;
  const std::int64_t elements = stage.gradients / bytes_of(t.grad_dtype), micro_batches = t.micro_batches(p);
  const Bytes reduced(elements * bytes_of(t.reduce_dtype)), gathered(elements * bytes_of(t.precision));
  if (p.zero == 0) return collectives.of(CollectiveKind::all_reduce, members, reduced);
  Time time = collectives.of(CollectiveKind::reduce_scatter, members, reduced) * (p.zero >= 2 ? micro_batches : 1);
  if (p.zero < 3) return time + collectives.of(CollectiveKind::all_gather, members, gathered);
  // The first and the last layers may stay between a forward and its backward, or from one to the next.
  if (layers <= 2) return time;
  const Bytes again(gathered.count() / layers * (layers - 2));
  return time + collectives.of(CollectiveKind::all_gather, members, again) * (2 * micro_batches);
}

// Of the first stage.
std::int64_t stage_layers(const plan::Plan& plan, const plan::PipelineSchedule& schedule) {
  std::int64_t layers = 0;
  for (std::size_t i = 0; i < plan.layers_per_stage.size(); ++i)
    if (schedule.stage_of(static_cast<int>(i), static_cast<int>(plan.pipeline)) == 0)
      layers += plan.layers_per_stage[i];
  return layers;
}

std::int64_t shard(std::int64_t bytes, bool sharded, std::int64_t shards) {
  return sharded ? bytes / std::max<std::int64_t>(shards, 1) : bytes;
}

// With layers 0 to 3, if those between the first and the last are alike; weights in 8 bits have unlike gradients.
std::optional<plan::Scenario> with_few_layers(const plan::Scenario& scenario) {
  constexpr std::int64_t kFew = 4;
  if (scenario.model.layers <= kFew || scenario.model.has_decoder() || scenario.model.one_branch() ||
      scenario.training.narrow())
    return {};
  const std::vector<std::vector<std::int64_t>> all = lower::kinds_of_layers(scenario);
  if (std::any_of(all.begin() + 1, all.end() - 1, [&](const auto& kind) { return kind != all[1]; })) return {};
  plan::Scenario few = scenario;
  few.model.layers = kFew;
  const std::vector<std::vector<std::int64_t>> kinds = lower::kinds_of_layers(few);
  if (kinds != std::vector{all.front(), all[1], all[1], all.back()}) return {};
  return few;
}

// Of the scenario's layers, on each kind of device.
std::vector<LayerFloor> floors_of(const plan::Scenario& scenario, const run::Machine& machine) {
  const plan::Scenario one = on_one_stage(scenario);
  const program::Program program = lower::lower(one);
  const program::Role& role = program.roles.front();
  const plan::RankGrid grid = one.grid();
  const Units units(role, scenario.model);
  const bool waits = !scenario.plan.overlap_expert_exchange && !uneven(*machine.cluster);
  TransferTimes transfers(program, grid, {grid.rank(role.ranks.first())}, machine.collectives.model());
  std::vector<LayerFloor> floors;
  for (int kind = 0; kind < machine.kinds(); ++kind) {
    LayerFloor& floor = floors.emplace_back();
    floor.layers.resize(static_cast<std::size_t>(scenario.model.layers));
    UnitPaths paths(role, units, transfers, machine.costs_of(kind), waits);
    std::set<program::BodyId> seen;
    for (const program::Slot& slot : role.slots) {
      if (slot.micro_batch < 0 || !seen.insert(slot.body).second) continue;
      const program::Body& body = role.bodies[static_cast<std::size_t>(slot.body)];
      paths.walk(body, [&](std::int64_t number, bool backward, std::int64_t ps) {
        UnitFloor* const unit = unit_at(floor, number);
        (backward ? unit->backward_ps : unit->forward_ps) += ps;
      });
      if (counts_kernels(scenario, machine))
        add_energy(role, body, units, machine.costs_of(kind).device().power, floor);
    }
    add_memory(role, units, !scenario.training.lora(), floor);
  }
  return floors;
}

}  // namespace

std::vector<LayerFloor> layer_floors(const plan::Scenario& scenario, const run::Machine& machine, Lowered lowered) {
  if (!scenario.model.is_transformer() || scenario.model.layers == 0)
    return std::vector<LayerFloor>(static_cast<std::size_t>(machine.kinds()));
  // One micro-batch is walked, which says nothing of others with other loads.
  if (scenario.model.family == model::Family::moe && plan::ExpertLoads(scenario).vary())
    return std::vector<LayerFloor>(static_cast<std::size_t>(machine.kinds()));
  const std::optional<plan::Scenario> few =
      lowered == Lowered::alike_once ? with_few_layers(scenario) : std::optional<plan::Scenario>();
  if (!few) return floors_of(scenario, machine);
  std::vector<LayerFloor> floors = floors_of(*few, machine);
  for (LayerFloor& floor : floors) {
    if (floor.layers[1] != floor.layers[2]) return floors_of(scenario, machine);
    floor.layers.insert(floor.layers.begin() + 1, static_cast<std::size_t>(scenario.model.layers) - floor.layers.size(),
                        UnitFloor(floor.layers[1]));
  }
  return floors;
}

bool uneven(const cluster::Cluster& cluster) {
  std::map<cluster::ResourceKind, Bandwidth> rates;
  for (const cluster::Resource& r : cluster.resources())
    if (rates.try_emplace(r.kind, r.capacity).first->second != r.capacity) return true;
  if (cluster.device_names().size() > 1) return true;
  const int node = cluster.devices_per_node();
  for (int device = 0; device < cluster.devices(); ++device)
    if (cluster.node_of(device) != device / node) return true;
  return cluster.devices() > node && cluster.devices() % node != 0;
}

Time CollectiveTimes::of(program::CollectiveKind kind, const std::vector<int>& members, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  const auto [known, added] = known_.try_emplace({kind, bytes.count(), members});
  if (added) known->second = model_.collective(kind, members, bytes).alone();
  return known->second;
}

namespace {

// Of a stage what its layers take on each kind of device that it is on: the least of them, and the most.
struct StageWork {
  std::int64_t least = INT64_MAX, most = 0;
  std::int64_t fill = INT64_MAX;  // least: of a first slot, and of a last one
};

// Times of the model's parts on each kind of device.
class PartsOfKinds {
 public:
  PartsOfKinds(const std::vector<LayerFloor>& of_kinds, const plan::Scenario& scenario)
      : plan_(scenario.plan), schedule_(plan::schedule_of(plan_.schedule, plan_.pipeline)) {
    for (const LayerFloor& floor : of_kinds) parts_.push_back(parts_of(floor, plan_));
    // The first and the last slots of a stage are of the model's first parts, one a stage, where a backward is whole.
    drains_ = !schedule_.parts_backward() && !plan_.overlap_expert_exchange && plan_.pipeline > 1;
  }

  const std::vector<Part>& first() const { return parts_.front(); }

  StageWork of_stage(int stage, const std::vector<int>& kinds) const {
    StageWork work;
    for (const int kind : kinds) {
      const std::vector<Part>& parts = parts_[static_cast<std::size_t>(kind)];
      std::int64_t sum = 0;
      if (schedule_.bidirectional()) {  // half of the micro-batches go through each of its two parts
        for (const std::size_t i :
             {static_cast<std::size_t>(stage), parts.size() - 1 - static_cast<std::size_t>(stage)})
          sum += (parts[i].forward + parts[i].backward) / 2;
        work.least = std::min(work.least, sum), work.most = std::max(work.most, sum), work.fill = 0;
        continue;
      }
      for (std::size_t i = 0; i < parts.size(); ++i)
        if (schedule_.stage_of(static_cast<int>(i), static_cast<int>(plan_.pipeline)) == stage)
          sum += parts[i].forward + parts[i].backward;
      work.least = std::min(work.least, sum), work.most = std::max(work.most, sum);
      const Part& own = parts[static_cast<std::size_t>(stage)];
      // What a backward begins with by computing it again needs no gradient yet.
      const std::int64_t at_once = plan_.recompute == plan::Recompute::none ? 0 : own.last_forward;
      work.fill = std::min(work.fill, own.forward + (drains_ ? std::max<std::int64_t>(own.backward - at_once, 0) : 0));
    }
    return work;
  }

  // Of all stages together, each layer on the kind that takes least of it.
  std::int64_t of_all() const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < first().size(); ++i) {
      std::int64_t least = INT64_MAX;
      for (const std::vector<Part>& parts : parts_) least = std::min(least, parts[i].forward + parts[i].backward);
      sum += least;
    }
    return sum;
  }

 private:
  const plan::Plan& plan_;
  const plan::PipelineSchedule& schedule_;
  std::vector<std::vector<Part>> parts_;  // by kind
  bool drains_ = false;
};

// Kinds of devices by stage.
std::vector<std::vector<int>> kinds_of_stages(const plan::Scenario& scenario, const run::Machine& machine) {
  std::vector<std::vector<int>> kinds(static_cast<std::size_t>(scenario.plan.pipeline), {0});
  if (machine.kinds() == 1) return kinds;
  kinds.clear();
  for (run::StageDevices& stage : run::devices_of_stages(*machine.cluster, scenario.grid()))
    kinds.push_back(std::move(stage.kinds));
  return kinds;
}

// Whether two parts of the model follow one another on the stage, so that what is between them is there once.
bool turns(const plan::PipelineSchedule& schedule, int stage, int stages) {
  return !schedule.bidirectional() && stages > 1 && schedule.stage_of(stages - 1, stages) == stage &&
         schedule.stage_of(stages, stages) == stage;
}

// Bytes of parameters, gradients and optimizer states that a rank keeps of those of a stage.
std::int64_t states_kept(std::int64_t parameters, std::int64_t gradients, std::int64_t optimizer,
                         const plan::Scenario& scenario) {
  const plan::Plan& p = scenario.plan;
  const std::int64_t shards = p.context * p.data / p.replicas;
  std::int64_t bytes = 0;
  // Shards that are the fp32 parameters are what `optimizer` has beside 16-bit ones.
  const bool counted_there = p.zero == 3 && scenario.framework.fp32_shards;
  if (!p.offload_parameters && !counted_there) bytes += shard(parameters, p.zero >= 3, shards);
  if (!p.offload_optimizer) bytes += shard(gradients, p.zero >= 2, shards) + shard(optimizer, p.zero >= 1, shards);
  return bytes;
}

// Whether all layers keep what they keep in one micro-batch of one stage: else some are recomputed, or what an
// operation keeps depends on who reads it, or it goes to the host.
bool keep_alike(const plan::Plan& p) {
  return p.recompute_layers == 0 && p.recompute_every <= 1 && p.recompute != plan::Recompute::ops &&
         !p.offloads_activations();
}

// What the fullest stage keeps at least, however the layers are split: a stage of n layers with w bytes each has n <= M
// / w if none has more than M bytes, and of all stages n add up to the layers L, so M >= L / sum of 1 / w.
std::int64_t least_fullest(const LayerFloor& floor, const plan::Scenario& scenario, PassesHeld& passes_held) {
  const plan::Plan& p = scenario.plan;
  const plan::PipelineSchedule& schedule = plan::schedule_of(p.schedule, p.pipeline);
  std::int64_t states = INT64_MAX, kept = INT64_MAX, most_kept = 0;
  for (const UnitFloor& layer : floor.layers) {
    most_kept = std::max(most_kept, layer.kept);
    states = std::min(states, states_kept(layer.parameters, layer.gradients, layer.optimizer, scenario));
    kept = std::min(kept, layer.kept);
  }
  const bool holds = keep_alike(p) && !schedule.bidirectional() && !p.overlap_expert_exchange;
  const auto passes = static_cast<int>(std::min<std::int64_t>(scenario.training.micro_batches(p), INT32_MAX));
  double shares = 0;
  for (int stage = 0; stage < static_cast<int>(p.pipeline); ++stage) {
    const plan::PipelinePlace place{stage, static_cast<int>(p.pipeline), static_cast<int>(p.chunks), false,
                                    scenario.framework.alternates_in_one_round};
    const int held = holds ? passes_held.of(schedule, place, passes).micro_batches : 0;
    const std::int64_t bytes = states + held * kept;
    if (bytes == 0) return 0;
    shares += 1 / static_cast<double>(bytes);
  }
  // Rounded down by far more than sums of doubles are off. What a stage's last layer gives may be sent and not kept.
  const auto least = static_cast<std::int64_t>(static_cast<double>(floor.layers.size()) / shares * (1 - 1e-9));
  return std::max<std::int64_t>(least - most_kept, 0);
}

// What the stage that takes longest needs of a micro-batch at least, however the layers are split: as least_fullest, of
// times; and of a stage's chunks none is without layers, but perhaps the last. `slowest`: each stage goes as fast as
// the slowest kind of device that it is on.
std::int64_t least_longest(const std::vector<LayerFloor>& of_kinds, const std::vector<std::vector<int>>& kinds,
                           std::int64_t chunks, bool slowest) {
  std::vector<std::int64_t> layer;  // by kind, the shortest
  for (const LayerFloor& floor : of_kinds) {
    std::int64_t& least = layer.emplace_back(INT64_MAX);
    for (const UnitFloor& unit : floor.layers) least = std::min(least, unit.forward_ps + unit.backward_ps);
  }
  double shares = 0, longest = 0;
  for (const std::vector<int>& of_stage : kinds) {
    std::int64_t ps = layer[static_cast<std::size_t>(of_stage.front())];
    for (const int kind : of_stage) {
      const std::int64_t own = layer[static_cast<std::size_t>(kind)];
      ps = slowest ? std::max(ps, own) : std::min(ps, own);
    }
    if (ps == 0) return 0;
    shares += 1 / static_cast<double>(ps);
    longest = std::max(longest, static_cast<double>((chunks - 1) * ps));
  }
  longest = std::max(longest, static_cast<double>(of_kinds.front().layers.size()) / shares);
  return static_cast<std::int64_t>(longest * (1 - 1e-9));
}

}  // namespace

PlanFloor plan_floor(const std::vector<LayerFloor>& of_kinds, const plan::Scenario& scenario,
                     const run::Machine& machine, CollectiveTimes& collectives, PassesHeld& passes_held) {
  PlanFloor floor;
  if (of_kinds.front().layers.empty()) return floor;
  const plan::Plan& p = scenario.plan;
  const PartsOfKinds work(of_kinds, scenario);
  const std::vector<Part>& parts = work.first();
  const plan::PipelineSchedule& schedule = plan::schedule_of(p.schedule, p.pipeline);
  const auto stages = static_cast<int>(p.pipeline);
  const std::int64_t micro_batches = scenario.training.micro_batches(p);
  const bool meets =
      scenario.training.clip > 0 && !scenario.data.takes_time();  // else a stage may begin its step before the others
  const bool mixed = machine.kinds() > 1;
  // Between meetings every rank does what its stage does, also on the slowest kind; with experts loads may be unlike,
  // and with local steps workers do not meet.
  const bool slowest = meets && scenario.model.experts == 0 && !p.steps_apart();
  const std::vector<std::vector<int>> kinds = kinds_of_stages(scenario, machine);
  const std::int64_t passes_of_all = micro_batches * scenario.cluster.gpus / p.pipeline;
  const auto times = static_cast<double>(passes_of_all);
  floor.kernels.add(of_kinds.front().first.kernels, times);
  floor.kernels.add(of_kinds.front().last.kernels, times);
  for (const UnitFloor& unit : of_kinds.front().layers) floor.kernels.add(unit.kernels, times);
  if (p.layers_by_time) {
    const std::int64_t longest = schedule.bidirectional() ? 0 : least_longest(of_kinds, kinds, p.chunks, slowest);
    floor.step = Time::from_ps(micro_batches * std::max(work.of_all() / stages, longest));
    floor.bytes = least_fullest(of_kinds.front(), scenario, passes_held);
    return floor;
  }
  std::int64_t before = 0;
  for (int stage = 0; stage < stages; ++stage) {
    Part all;
    int chunks = 0;
    std::int64_t kept = INT64_MAX;  // of several chunks the one that keeps least
    const auto add = [&](const Part& part) {
      ++chunks;
      kept = std::min(kept, part.kept);
      all.parameters += part.parameters, all.gradients += part.gradients, all.optimizer += part.optimizer;
    };
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (schedule.stage_of(static_cast<int>(i), stages) == stage) add(parts[i]);
    const StageWork own = work.of_stage(stage, kinds[static_cast<std::size_t>(stage)]);
    const std::int64_t step = micro_batches * (slowest ? own.most : own.least) + (meets ? before : 0);
    floor.step = std::max(floor.step, Time::from_ps(step));
    if (stage == 0 && (meets || !mixed))
      floor.step = std::max(floor.step, data_floor(all, stage_layers(p, schedule), scenario, collectives));
    before += own.fill;

    if (schedule.bidirectional()) add(parts[static_cast<std::size_t>(stages - 1 - stage)]);
    const plan::PipelinePlace place{stage, stages, chunks, false, scenario.framework.alternates_in_one_round};
    const auto passes = static_cast<int>(std::min<std::int64_t>(micro_batches, INT32_MAX));
    int held = 0;
    if (keep_alike(p)) {
      if (!schedule.parts_backward())
        held = schedule.held(place, passes);
      else if (!p.overlap_expert_exchange && !turns(schedule, stage, stages))
        held = passes_held.of(schedule, place, passes).passes;
    }
    const std::int64_t bytes =
        std::max(0, held - 1) * kept + states_kept(all.parameters, all.gradients, all.optimizer, scenario);
    floor.bytes = std::max(floor.bytes, bytes);
  }
  return floor;
}

}  // namespace rehearse::search
