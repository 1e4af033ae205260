// Lowering, top to bottom: the scenario's sizes and groups (make_context), then a role for each pipeline stage, or
// where ranks of its expert groups have unlike loads one for each place in these. A stage
// is a run of units (embedding, blocks, head) whose ops go into bodies. One file a strategy:
//
//   model/       the units: embedding, block (norm, attention, mlp or experts, residual), head; of encoders, and of
//                decoders beside one, those of their own; conv, linear, loss of
//                cnn and mlp
//   parallel/    tensor, sequence, context, experts, pipeline (transfers between stages), data (reductions), zero
//                (shards), lora (adapters); parameters in buckets, the optimizer, the outer step of local steps
//   stage_lowering.*                 bodies and slots of a stage
//   role_builder.*, order_role.cpp   waits and releases, derived from operands
#include "sim/lower/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"
#include "sim/lower/parallel/fp8.h"
#include "sim/lower/stage.h"
#include "sim/lower/stage_lowering.h"
#include "sim/plan/documents.h"
#include "sim/plan/schedule/schedule.h"
#include "sim/plan/table_shards.h"

namespace rehearse::lower {

using program::Group;
using program::GroupKind;

DType dtype_of(plan::Precision precision) {
  switch (precision) {
    case plan::Precision::fp32:
      return DType::f32;
    case plan::Precision::bf16:
    case plan::Precision::fp8:  // of all but linear layers' products
    case plan::Precision::nvfp4:
      return DType::bf16;
    case plan::Precision::fp16:
      return DType::f16;
  }
  return DType::f32;
}

double Context::loss_weight() const {
  return 1 / (static_cast<double>(scenario.training.global_batch) * static_cast<double>(seq));
}

namespace {

// Of the model's part `part`, in its order.
int stage_of(const plan::Plan& plan, std::int64_t part) {
  return plan::schedule_of(plan.schedule, plan.pipeline)
      .stage_of(static_cast<int>(part), static_cast<int>(plan.pipeline));
}

// Tables that several stages of an encoder and its decoder have: of tokens, which both embed and perhaps the head
// multiplies with, and of positions or of the biases of scores.
template <class Add>
void add_shared_tables(const plan::Scenario& scenario, Groups& groups, const Add& add) {
  const model::Model& m = scenario.model;
  const auto last = static_cast<int>(scenario.plan.pipeline) - 1;
  const int encoder_end = stage_of_layer(scenario.plan, m.encoder_layers - 1);
  const int decoder = stage_of_layer(scenario.plan, m.encoder_layers);
  std::vector<int> tokens{0};
  for (const int stage : {decoder, m.tied_embeddings ? last : decoder})
    if (stage != tokens.back()) tokens.push_back(stage);
  const auto between = [](int first, int end) {
    std::vector<int> stages(static_cast<std::size_t>(end - first + 1));
    std::iota(stages.begin(), stages.end(), first);
    return stages;
  };
  const auto add_of = [&](const char* name, std::vector<int> stages) {
    return stages.size() < 2 ? -1 : add({name, GroupKind::embedding, {Axis::pipeline}, std::move(stages)});
  };
  groups.embedding = add_of("embedding", tokens);
  if (m.shares_positions()) {
    if (decoder != 0) groups.positions = add_of("positions", {0, decoder});
    return;
  }
  groups.encoder_bias = add_of("encoder_bias", between(0, encoder_end));
  groups.decoder_bias = add_of("decoder_bias", between(decoder, last));
}

// Of each stage and the one that has the same two parts of the model.
template <class Add>
void add_copies(int stages, Groups& groups, const Add& add) {
  groups.copies.resize(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages / 2; ++stage) {
    const int other = stages - 1 - stage;
    groups.copies[static_cast<std::size_t>(stage)] = groups.copies[static_cast<std::size_t>(other)] =
        add({fmt::format("copies{}", stage), GroupKind::data, {Axis::pipeline}, {stage, other}});
  }
}

Groups add_groups(const plan::Scenario& scenario, program::Program& program) {
  const plan::Plan& p = scenario.plan;
  Groups groups;
  const auto add = [&](Group group) {
    program.groups.push_back(std::move(group));
    return static_cast<program::GroupId>(program.groups.size()) - 1;
  };
  if (p.tensor > 1) groups.tensor = add({"tensor", GroupKind::tensor, {Axis::tensor}, {}});
  if (const model::Model& m = scenario.model; m.kv_heads > 1 && m.kv_heads < p.tensor && m.kv_heads < m.heads)
    groups.key_head = add({"key_head", GroupKind::tensor, {Axis::tensor}, {}, static_cast<int>(p.tensor / m.kv_heads)});
  if (p.context > 1) groups.context = add({"context", GroupKind::context, {Axis::context}, {}});
  // The axes that make shards, and with the replicas' axis all ranks that have the same weights.
  std::vector<Axis> shards;
  const std::int64_t expert_replicas = p.expert_replicas(), expert_data = p.data / p.replicas / expert_replicas;
  for (const auto& [axis, size] :
       {std::pair{Axis::context, p.context}, {Axis::expert, expert_replicas}, {Axis::data, expert_data}})
    if (size > 1) shards.push_back(axis);
  if (!shards.empty()) groups.data = add({"data", GroupKind::data, shards, {}});
  if (p.replicas > 1) groups.replica = add({"replica", GroupKind::data, {Axis::replica}, {}});
  if (scenario.model.sync_batch_norm && p.data > 1) {
    std::vector<Axis> axes = shards;
    if (p.replicas > 1) axes.push_back(Axis::replica);
    groups.batch_norm = p.replicas > 1 ? add({"batch_norm", GroupKind::data, axes, {}}) : groups.data;
  }
  const bool twice = plan::schedule_of(p.schedule, p.pipeline).bidirectional();
  if (twice) add_copies(static_cast<int>(p.pipeline), groups, add);
  if (p.pipeline > 1 && scenario.model.has_decoder())
    add_shared_tables(scenario, groups, add);
  else if (p.pipeline > 1 && !twice && scenario.model.is_transformer() && scenario.model.table_on_two_stages() &&
           !scenario.training.lora())
    if (const int head = stage_of(p, p.pipeline * p.chunks - 1); head != 0)
      groups.embedding = add({"embedding", GroupKind::embedding, {Axis::pipeline}, {0, head}});
  if (p.expert > 1) {
    std::vector<Axis> axes;
    if (p.whole_experts()) axes.push_back(Axis::tensor);
    if (p.context > 1) axes.push_back(Axis::context);
    if (expert_replicas > 1) axes.push_back(Axis::expert);
    groups.expert = add({"expert", GroupKind::expert, axes, {}});
    if (expert_data > 1) groups.expert_data = add({"expert_data", GroupKind::data, {Axis::data}, {}});
  }
  if (scenario.model.aux_loss > 0) {
    std::vector<Axis> axes;
    if (p.sequence_parallel && p.tensor > 1) axes.push_back(Axis::tensor);
    if (p.context > 1) axes.push_back(Axis::context);
    if (!axes.empty())
      groups.routing = add({"routing", p.context > 1 ? GroupKind::context : GroupKind::tensor, axes, {}});
  }
  // Transformer Engine's amax group as Megatron-Core makes it: all ranks of a stage (parallel_state.py,
  // get_amax_reduction_group).
  if (scenario.training.eight_bits() && scenario.training.fp8_recipe == plan::Fp8Recipe::delayed) {
    std::vector<Axis> axes;
    if (p.tensor > 1) axes.push_back(Axis::tensor);
    axes.insert(axes.end(), shards.begin(), shards.end());
    if (p.replicas > 1) axes.push_back(Axis::replica);
    if (!axes.empty()) groups.amax = add({"amax", GroupKind::world, axes, {}});
  }
  if (scenario.training.ignored_token >= 0 && scenario.cluster.gpus > 1)
    groups.targets = add({"targets",
                          GroupKind::world,
                          {Axis::tensor, Axis::context, Axis::expert, Axis::data, Axis::replica, Axis::pipeline},
                          {}});
  // Without sharding, ranks with the same weights hold the same gradients.
  const bool sharded = p.zero > 0 && !shards.empty();
  if (p.tensor * p.pipeline > 1 || sharded) {
    Group norm{"norm", GroupKind::world, {Axis::tensor, Axis::pipeline}, {}};
    if (sharded) norm.axes = {Axis::tensor, Axis::context, Axis::expert, Axis::data, Axis::pipeline};
    groups.norm = add(std::move(norm));
  }
  if (scenario.training.optimizer == plan::OptimizerKind::lamb && (p.tensor > 1 || sharded)) {
    Group parts{"lamb", GroupKind::world, {}, {}};
    if (p.tensor > 1) parts.axes.push_back(Axis::tensor);
    if (sharded) parts.axes.insert(parts.axes.end(), shards.begin(), shards.end());
    groups.lamb = add(std::move(parts));
  }
  if (scenario.training.optimizer == plan::OptimizerKind::adafactor) {
    const auto add_parts = [&](const char* name, bool split, const std::vector<Axis>& axes) {
      Group parts{name, GroupKind::world, {}, {}};
      if (split) parts.axes.push_back(Axis::tensor);
      if (sharded) parts.axes.insert(parts.axes.end(), axes.begin(), axes.end());
      return parts.axes.empty() ? -1 : add(std::move(parts));
    };
    groups.adafactor = add_parts("adafactor", p.tensor > 1, shards);
    if (p.expert > 1)
      groups.adafactor_experts = add_parts("adafactor_experts", p.tensor > 1 && !p.whole_experts(),
                                           expert_data > 1 ? std::vector{Axis::data} : std::vector<Axis>{});
  }
  if (plan::shards_tables(scenario)) {
    groups.tables = add({"tables", GroupKind::expert, {Axis::data}, {}});
    if (!sharded) groups.expert_norm = add({"tables_norm", GroupKind::world, {Axis::data}, {}});
  }
  if (p.expert > 1 && !sharded) {
    // The sum over tensor and pipeline comes after.
    Group norm{"expert_norm", GroupKind::world, {Axis::context, Axis::expert}, {}};
    if (p.context * expert_replicas > 1) groups.expert_norm = add(std::move(norm));
  }
  return groups;
}

}  // namespace

int stage_of_layer(const plan::Plan& plan, std::int64_t layer) {
  int stage = 0;
  for (std::int64_t end = 0; stage < static_cast<int>(plan.layers_per_stage.size()); ++stage)
    if (layer < (end += plan.layers_per_stage[static_cast<std::size_t>(stage)])) return stage;
  REHEARSE_CHECK(false, "layer {} is on none of {} stages", layer, stage);
}

Context decoder_context(const Context& encoder) {
  Context c = encoder;
  if (!c.model().has_decoder()) return c;
  c.causal = true;
  c.seq = c.model().decoder_tokens(encoder.seq);
  c.tokens = c.batch * c.seq;
  c.local_tokens = c.sequence_parallel ? c.tokens / c.tensor : c.tokens;
  return c;
}

Context make_context(const plan::Scenario& scenario, program::Program& program) {
  const plan::Plan& p = scenario.plan;
  const plan::Training& t = scenario.training;
  Context c{scenario, add_groups(scenario, program)};
  c.tensor = p.tensor;
  c.shards = p.context * p.data / p.replicas;
  c.expert_tensor = p.whole_experts() ? 1 : p.tensor;
  c.expert_shards = p.data / p.replicas / p.expert_replicas();
  c.stages = p.pipeline;
  c.chunks = p.chunks;
  c.micro_batches = t.micro_batches(p);
  c.batch = p.micro_batch;
  c.causal = scenario.model.is_causal() && !scenario.model.has_decoder();
  c.seq = scenario.model.is_transformer() ? t.seq_len : 1;
  c.tokens = c.batch * c.seq / p.context;
  c.sequence_parallel = p.sequence_parallel && p.tensor > 1;
  c.local_tokens = c.sequence_parallel ? c.tokens / p.tensor : c.tokens;
  c.vocab = scenario.model.is_transformer() ? plan::padded_vocab(scenario.model, p, scenario.framework) : 0;
  c.document = plan::equal_document_length(t);
  c.compute = dtype_of(t.precision);
  c.residual = scenario.framework.autocast ? DType::f32 : c.compute;
  c.gradient = dtype_of(t.grad_dtype);
  c.reduce = dtype_of(t.reduce_dtype);
  c.moments = t.moments == plan::MomentsKind::int8   ? DType::u8
              : t.moments == plan::MomentsKind::bf16 ? DType::bf16
                                                     : DType::f32;
  c.master = t.precision != plan::Precision::fp32 && !scenario.plan.served();
  return c;
}

namespace {

// A role's ranks: a stage's, or of these the ones that have a place in the expert group.
program::RankSet ranks_of(const Context& context, const program::Program& program, int stage, bool by_place) {
  program::RankSet ranks = program::RankSet::of_stage(stage);
  if (context.groups.tables >= 0)
    ranks.only[static_cast<std::size_t>(Axis::data)] = {static_cast<int>(context.table_place)};
  if (!by_place) return ranks;
  const plan::RankGrid grid = context.scenario.grid();
  const std::vector<Axis>& axes = program.groups[static_cast<std::size_t>(context.groups.expert)].axes;
  const int member = grid.members(0, axes).at(context.expert_place);
  for (const Axis axis : axes) ranks.only[static_cast<std::size_t>(axis)] = {grid.coordinate(member, axis)};
  if (context.loads->groups() > 1) {
    const int group = static_cast<int>(context.expert_group), of_shard = grid.size(Axis::data);
    ranks.only[static_cast<std::size_t>(Axis::data)] = {group % of_shard};
    ranks.only[static_cast<std::size_t>(Axis::replica)] = {group / of_shard};
  }
  return ranks;
}

// Of tables that ranks have for themselves: what a rank sends each owner, and gets back.
void add_table_parts(Context& context, program::Program& program) {
  const model::Layer& tables = *model::tables_of(context.model().layer_list);
  context.first_table = plan::first_tables(tables.rows, static_cast<std::size_t>(context.plan().data));
  std::vector<std::int64_t> ids, vectors;
  for (std::size_t rank = 0; rank + 1 < context.first_table.size(); ++rank) {
    std::int64_t lookups = 0;
    for (std::size_t f = context.first_table[rank]; f < context.first_table[rank + 1]; ++f)
      lookups += tables.lookups_of(f);
    ids.push_back(context.batch * lookups);
    vectors.push_back(context.batch * tables.width *
                      static_cast<std::int64_t>(context.first_table[rank + 1] - context.first_table[rank]));
  }
  for (auto& [part, of] : {std::pair{&context.table_parts.ids, &ids}, {&context.table_parts.vectors, &vectors}}) {
    *part = static_cast<std::int32_t>(program.parts.size());
    program.parts.push_back(*of);
  }
}

// Elements of the rows that experts trade: tokens', in 8 bits too, and weights.
std::vector<std::int64_t> widths_of_rows(const Context& context) {
  const plan::Training& t = context.scenario.training;
  std::vector<std::int64_t> widths{context.model().hidden};
  if (t.fp8_dispatch) widths.push_back(Fp8Format(context).size(context.model().hidden, context.model().hidden));
  if (context.plan().weigh_in_experts && !context.model().weigh_expert_inputs) widths.push_back(1);
  return widths;
}

// Of every layer whose experts' ranks have unlike rows.
void add_parts(const plan::ExpertLoads& loads, Context& context, program::Program& program) {
  const model::Model& m = context.model();
  for (const std::int64_t width : widths_of_rows(context)) {
    std::vector<std::int32_t>& of_width = context.parts[width];
    of_width.assign(static_cast<std::size_t>(m.blocks()), -1);
    for (std::int64_t layer = m.dense_layers; layer < m.blocks(); ++layer) {
      if (!m.has_experts(layer)) continue;
      const plan::LayerLoads& of_layer = loads.of(layer, context.load, context.expert_group);
      std::vector<std::int64_t> parts = of_layer.sent.empty() ? of_layer.parts : of_layer.sent;
      for (std::int64_t& part : parts) part *= width;
      const auto known = std::find(program.parts.begin(), program.parts.end(), parts);
      of_width[static_cast<std::size_t>(layer)] = static_cast<std::int32_t>(known - program.parts.begin());
      if (known == program.parts.end()) program.parts.push_back(std::move(parts));
    }
  }
}

// Of ranks with the loads of one expert group: the context of the first load that its micro-batches have in turn, and
// those of the others.
struct ExpertGroup {
  Context first;
  std::vector<Context> others;
};

// The contexts of the loads after the first that micro-batches have in turn.
std::vector<Context> contexts_of_other_loads(const plan::ExpertLoads& loads, const Context& first,
                                             program::Program& program) {
  std::vector<Context> others;
  if (!loads.vary()) return others;
  for (std::int64_t load = 1; load < loads.patterns(); ++load) {
    Context& other = others.emplace_back(first);
    other.load = load;
    add_parts(loads, other, program);
  }
  return others;
}

}  // namespace

namespace {

// Of each stage its chunks' layers.
std::vector<std::vector<LayerRange>> chunks_of_stages(const Context& context) {
  const auto& layers = context.plan().layers_per_stage;
  REHEARSE_CHECK(static_cast<std::int64_t>(layers.size()) == context.stages * context.chunks,
                 "{} stages of {} chunks, {} layer counts", context.stages, context.chunks, layers.size());
  std::vector<std::vector<LayerRange>> chunks(static_cast<std::size_t>(context.stages));
  std::int64_t first_layer = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const int stage = stage_of(context.plan(), static_cast<std::int64_t>(i));
    chunks[static_cast<std::size_t>(stage)].push_back({first_layer, layers[i]});
    first_layer += layers[i];
  }
  if (!plan::schedule_of(context.plan().schedule, context.stages).bidirectional()) return chunks;
  const std::vector<std::vector<LayerRange>> down = chunks;
  for (std::size_t stage = 0; stage < chunks.size(); ++stage) {
    const std::size_t other = chunks.size() - 1 - stage;
    chunks[stage] = {down[std::min(stage, other)].front(), down[std::max(stage, other)].front()};
  }
  return chunks;
}

// What a layer's ops and buffers depend on, but for its number.
void add_kind_of_layer(const Context& context, std::int64_t layer, std::vector<std::int64_t>& kind) {
  const model::Model& m = context.model();
  kind.push_back(m.has_experts(layer) ? 0 : 1);
  kind.push_back(m.branch(layer));
  kind.push_back(m.rotates_nothing(layer) ? 1 : 0);
  kind.push_back(m.is_transformer() ? m.chunk(layer, context.seq) : 0);
  kind.push_back(context.fp8(layer) ? 1 : 0);
  kind.push_back(m.is_transformer() ? m.window(layer, context.seq) : 0);
  kind.push_back(m.rotates_by_local_base(layer) ? 1 : 0);
  const auto parts = context.parts.find(m.hidden);
  kind.push_back(parts != context.parts.end() ? parts->second[static_cast<std::size_t>(layer)] : -1);
}

// What decides which bodies a stage has: where it lies, and of its layers all but their numbers.
std::vector<std::int64_t> kind_of(const Context& context, std::size_t stage, const std::vector<LayerRange>& chunks,
                                  bool alike) {
  const model::Model& m = context.model();
  const bool alone = !alike || !m.is_transformer() || m.has_decoder() || context.other_loads != nullptr || stage == 0 ||
                     !context.groups.copies.empty() || stage + 1 == static_cast<std::size_t>(context.stages);
  std::vector<std::int64_t> kind{alone ? static_cast<std::int64_t>(stage) : -1};
  for (const LayerRange& chunk : chunks) {
    kind.push_back(chunk.count);
    for (std::int64_t layer = chunk.first; layer < chunk.first + chunk.count; ++layer)
      add_kind_of_layer(context, layer, kind);
  }
  return kind;
}

}  // namespace

std::vector<std::vector<std::int64_t>> kinds_of_layers(const plan::Scenario& scenario) {
  program::Program program;
  Context context = make_context(scenario, program);
  const plan::ExpertLoads loads(scenario);
  context.loads = &loads;
  if (!loads.even()) add_parts(loads, context, program);
  std::vector<std::vector<std::int64_t>> kinds(static_cast<std::size_t>(scenario.model.layers));
  for (std::size_t layer = 0; layer < kinds.size(); ++layer)
    add_kind_of_layer(context, static_cast<std::int64_t>(layer), kinds[layer]);
  return kinds;
}

DistinctStages lower_distinct(const plan::Scenario& scenario, bool alike) {
  DistinctStages out;
  program::Program& program = out.program;
  Context context = make_context(scenario, program);
  const plan::ExpertLoads loads(scenario);
  context.loads = &loads;
  if (!loads.even()) add_parts(loads, context, program);
  if (context.groups.tables >= 0) add_table_parts(context, program);
  const std::vector<Context> other_loads = contexts_of_other_loads(loads, context, program);
  if (!other_loads.empty()) context.other_loads = &other_loads;
  program.micro_batches = static_cast<int>(context.micro_batches);
  const std::vector<std::vector<LayerRange>> chunks = chunks_of_stages(context);
  std::map<std::vector<std::int64_t>, std::vector<int>> kinds;
  for (std::size_t stage = 0; stage < chunks.size(); ++stage)
    kinds[kind_of(context, stage, chunks[stage], alike)].push_back(static_cast<int>(stage));
  out.role_of.resize(chunks.size());
  out.slots.resize(chunks.size());
  std::deque<std::vector<int>> open;
  for (auto& [kind, stages] : kinds) open.push_back(std::move(stages));
  for (; !open.empty(); open.pop_front()) {
    check_interrupt();
    const int stage = open.front().front();
    const std::vector<int> others(open.front().begin() + 1, open.front().end());
    std::vector<std::vector<program::Slot>> theirs;
    program::Role role = StageLowering(context, stage, chunks[static_cast<std::size_t>(stage)]).build(others, &theirs);
    role.ranks = program::RankSet::of_stage(stage);
    const auto take = [&](int of, std::vector<program::Slot> slots) {
      out.role_of[static_cast<std::size_t>(of)] = program.roles.size();
      out.slots[static_cast<std::size_t>(of)] = std::move(slots);
    };
    take(stage, role.slots);
    for (std::size_t i = 0; i < others.size(); ++i)
      if (theirs[i].empty())
        open.push_back({others[i]});
      else
        take(others[i], std::move(theirs[i]));
    program.roles.push_back(std::move(role));
  }
  return out;
}

program::Program lower(const plan::Scenario& scenario) {
  if (scenario.plan.layers_by_time)
    throw InputError(Diagnostic{"", 0, 0, "plan.layers_per_stage",
                                "by_time is chosen where the costs of devices are known, which they are not here",
                                "auto, or the list that rehearse simulate prints"});
  program::Program program;
  program.name = scenario.name;
  Context context = make_context(scenario, program);
  const plan::ExpertLoads loads(scenario);
  context.loads = &loads;
  const bool by_place = scenario.purpose == plan::Purpose::simulate && !loads.even();
  program.micro_batches = static_cast<int>(context.micro_batches);
  const std::vector<std::vector<LayerRange>> chunks = chunks_of_stages(context);
  const bool by_tables = context.groups.tables >= 0;
  if (by_tables) add_table_parts(context, program);
  const std::size_t places = by_place ? static_cast<std::size_t>(scenario.plan.expert) : 1;
  const std::size_t owners = by_tables ? context.first_table.size() - 1 : 1;
  std::deque<ExpertGroup> expert_groups;
  for (std::int64_t group = 0; group < (by_place ? loads.groups() : 1); ++group) {
    ExpertGroup& own = expert_groups.emplace_back(ExpertGroup{context, {}});
    own.first.expert_group = group;
    if (!by_place) continue;
    add_parts(loads, own.first, program);
    own.others = contexts_of_other_loads(loads, own.first, program);
    if (!own.others.empty()) own.first.other_loads = &own.others;
  }
  // Models with experts have no tables of sparse features, nor the other way round.
  for (std::size_t stage = 0; stage < chunks.size(); ++stage)
    for (ExpertGroup& group : expert_groups)
      for (std::size_t place = 0; place < places * owners; ++place) {
        check_interrupt();
        (by_tables ? group.first.table_place : group.first.expert_place) = place;
        for (Context& other : group.others) other.expert_place = group.first.expert_place;
        program::Role role = StageLowering(group.first, static_cast<int>(stage), chunks[stage]).build();
        role.ranks = ranks_of(group.first, program, static_cast<int>(stage), by_place);
        if (by_place) role.name += fmt::format(".expert{}", place);
        if (expert_groups.size() > 1) role.name += fmt::format(".group{}", group.first.expert_group);
        if (by_tables) role.name += fmt::format(".tables{}", place);
        program.roles.push_back(std::move(role));
      }
  return program;
}

}  // namespace rehearse::lower
