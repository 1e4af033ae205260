// A stage's bodies: begin, forward, backward (the last micro-batch's also reduces), step; and their order.
#include "sim/lower/stage_lowering.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/lower/model/image.h"
#include "sim/lower/model/layer_part.h"

namespace rehearse::lower {

using plan::ScheduleSlot;
using plan::SlotKind;
using program::Slot;

namespace {
// Between ranks that hold experts: rows of tokens, or their gradients.
bool trades_experts_rows(const program::Role& role, const program::Op& op) {
  const auto* collective = std::get_if<program::Collective>(&op.shape);
  return collective != nullptr && collective->kind == program::CollectiveKind::all_to_all &&
         role.streams[static_cast<std::size_t>(op.stream)].kind == program::StreamKind::expert;
}
}  // namespace

StageLowering::StageLowering(const Context& context, int stage, const std::vector<LayerRange>& layers)
    : context_(context),
      decoder_(decoder_context(context)),
      stage_(stage),
      builder_("stage" + std::to_string(stage), stage),
      parameters_(context, builder_),
      transfers_(context, builder_,
                 context.profile().batched_point_to_point && schedule().may_batch_transfers() && !overlaps()) {
  const plan::FrameworkProfile& profile = context.profile();
  builder_.set_fills({context.scenario.training.fill_uninitialized, profile.fused_norm, profile.extension_products});
  builder_.set_unrolled_casts(profile.unrolled_casts);
  builder_.set_generated_transposes(profile.fp8_casts_again);
  builder_.set_row_scales(context.scenario.training.fp8_rows());
  const bool mxfp8 =
      context.scenario.training.eight_bits() && context.scenario.training.fp8_recipe == plan::Fp8Recipe::mxfp8;
  memory_.encoder = &context_, memory_.builder = &builder_;
  builder_.set_fp8_product_launches(
      std::llround(profile.fp8_product_launches + (mxfp8 ? profile.fp8_scale_launches : 0)));
  const auto stages = static_cast<int>(context.stages);
  if (schedule().bidirectional()) {
    add_chunks_of_copies(layers);
    return;
  }
  const int parts = stages * static_cast<int>(layers.size());
  const auto stage_of = [&](int part) { return schedule().stage_of(part, stages); };
  for (int part = 0; part < parts; ++part) {
    if (stage_of(part) != stage) continue;
    const std::size_t c = chunks_.size();
    Chunk& chunk = chunks_.emplace_back();
    chunk.index = static_cast<int>(c);
    chunk.layers = layers[c];
    chunk.first = part == 0;
    chunk.last = part + 1 == parts;
    chunk.from_here = !chunk.first && stage_of(part - 1) == stage;
    chunk.into_here = !chunk.last && stage_of(part + 1) == stage;
    chunk.up = stages > 1 && stage_of(part / stages * stages) != 0;
  }
}

// Of two copies of the model one part each, in the model's order: the part of our number goes down the stages.
void StageLowering::add_chunks_of_copies(const std::vector<LayerRange>& layers) {
  const auto stages = static_cast<int>(context_.stages);
  const int other = stages - 1 - stage_;
  for (const int part : {std::min(stage_, other), std::max(stage_, other)}) {
    Chunk& chunk = chunks_.emplace_back();
    chunk.index = static_cast<int>(chunks_.size()) - 1;
    chunk.layers = layers[static_cast<std::size_t>(chunk.index)];
    chunk.first = part == 0;
    chunk.last = part + 1 == stages;
    chunk.up = part != stage_;
  }
}

std::string StageLowering::named(const std::string& name, const Chunk& chunk) const {
  return chunks_.size() == 1 ? name : name + ".chunk" + std::to_string(chunk.index);
}

// What layer `layer` takes as input, per micro-batch.
std::vector<std::int64_t> StageLowering::boundary_shape(std::int64_t layer) const {
  const model::Model& m = context_.model();
  // What the first of a decoder's layers beside an encoder takes is the encoder's output.
  if (m.is_transformer()) return {(layer > m.encoder_layers ? decoder_ : context_).local_tokens, m.hidden};
  if (m.is_list()) return batch_shape(context_, list_extent_before(m, layer));
  const auto convolutions = static_cast<std::int64_t>(m.convolutions.size());
  if (layer > convolutions || m.family == model::Family::mlp) {
    const std::int64_t index = layer - convolutions - (m.family == model::Family::mlp ? 0 : 1);
    return {context_.batch, m.widths[static_cast<std::size_t>(index)]};
  }
  const Image image = image_before(m, layer);
  return {context_.batch, image.channels, image.size, image.size};
}

// Every output is kept per micro-batch, because the unit after it reads it in backward; the stage's own output only as
// long as it takes to send it.
void StageLowering::declare_buffers(Chunk& chunk) {
  const std::int64_t first = chunk.layers.first, after = first + chunk.layers.count;
  if (chunk.from_here)
    chunk.input.whole = chunk.input.slice = chunks_[static_cast<std::size_t>(chunk.index) - 1].output;
  else if (!chunk.first)
    chunk.input = transfers_.declare_boundary(named("stage.input", chunk), boundary_shape(first));
  if (chunk.into_here)
    chunk.output_gradient.whole = chunk.output_gradient.slice = builder_.activation(
        named("stage.output_gradient", chunk), context_.compute, boundary_shape(after), Lifetime::micro_batch);
  else if (!chunk.last)
    chunk.output_gradient = transfers_.declare_boundary(named("stage.output_gradient", chunk), boundary_shape(after));
  if (context_.model().has_decoder()) declare_memory(chunk);
  BufferId x = chunk.input.whole;
  for (std::size_t u = 0; u < chunk.units.size(); ++u) {
    const bool sent = u + 1 == chunk.units.size() && chunk.sends();
    chunk.kept.emplace_back();
    chunk.unit_inputs.push_back(x);
    // What a stage received stays.
    if (context_.plan().offload_activations && u > 0 && chunk.units[u]->recomputes()) keep_on_host(chunk, u, x);
    x = declare_static_input(chunk, u, x);
    x = chunk.units[u]->declare_buffers(x, sent && !transfers_.batched() ? Lifetime::slot : Lifetime::micro_batch);
  }
  chunk.output = x;
}

// The encoder's output crosses every boundary behind the decoder's first layer.
void StageLowering::declare_memory(Chunk& chunk) {
  const std::int64_t encoder = context_.model().encoder_layers, after = chunk.layers.first + chunk.layers.count;
  if (chunk.layers.first > encoder) {
    chunk.memory = transfers_.declare_boundary("stage.memory", boundary_shape(0));
    memory_.value = chunk.memory.whole;
  }
  if (after > encoder && chunk.sends())
    chunk.memory_gradient = transfers_.declare_boundary("stage.memory_gradient", boundary_shape(0));
}

bool StageLowering::is_graph(const Chunk& chunk, std::size_t unit) const {
  return context_.plan().cuda_graphs == plan::CudaGraphs::layer && layer_of(chunk, unit) >= 0;
}

// A layer's graph reads its input where it was captured, into which what the unit before gave is copied; that stays
// where its own graph wrote it (Transformer Engine pytorch/graph.py, make_graphed_callables).
BufferId StageLowering::declare_static_input(Chunk& chunk, std::size_t unit, BufferId input) {
  Chunk::Static& copy = chunk.graphs.emplace_back();
  if (!is_graph(chunk, unit)) return input;
  copy.from = input;
  copy.input = builder_.activation(builder_.buffer(input).name + ".static", builder_.buffer(input).dtype,
                                   builder_.buffer(input).shape, Lifetime::micro_batch);
  return copy.input;
}

// A copy into a graph's buffer, which the host launches itself.
void StageLowering::copy_into_graph(BufferId from, BufferId to) {
  const program::Buffer& b = builder_.buffer(to);
  builder_.op(b.name + ".copy", program::Elementwise{program::ElementwiseFn::copy, b.elements()}, b.dtype, {{from}},
              {{to}});
}

void StageLowering::forward_of(Chunk& chunk, std::size_t unit) {
  const NativeProducts native(builder_, is_head(chunk, unit));
  if (!is_graph(chunk, unit)) return chunk.units[unit]->forward(false);
  copy_into_graph(chunk.graphs[unit].from, chunk.graphs[unit].input);
  const RoleBuilder::Mark mark = builder_.mark();
  chunk.units[unit]->forward(false);
  builder_.capture(mark);
}

BufferId StageLowering::backward_of(Chunk& chunk, std::size_t unit, BufferId gradient, bool needed) {
  const NativeProducts native(builder_, is_head(chunk, unit));
  if (!is_graph(chunk, unit)) return chunk.units[unit]->backward(gradient, needed);
  const program::Buffer& b = builder_.buffer(gradient);
  const BufferId own = builder_.workspace(builder_.here(b.name + ".static"), b.dtype, b.shape);
  copy_into_graph(gradient, own);
  const RoleBuilder::Mark mark = builder_.mark();
  gradient = chunk.units[unit]->backward(own, needed);
  builder_.capture(mark);
  return gradient;
}

void StageLowering::keep_on_host(Chunk& chunk, std::size_t unit, BufferId on_device) {
  program::Buffer copy = builder_.buffer(on_device);
  copy.name += ".on_host";
  const BufferId on_host = builder_.add_buffer(std::move(copy));
  builder_.set_on_host(on_host);
  chunk.kept[unit].push_back({on_device, on_host});
}

// What the unit's forward, emitted since then, keeps for its backward, and what it read: its output is the next one's
// to keep. Transformer Engine sends all that modules save for backward (pytorch/cpu_offload.py,
// get_cpu_offload_context).
void StageLowering::keep_activations_on_host(Chunk& chunk, std::size_t unit, const RoleBuilder::Mark& since) {
  const std::int64_t layer = layer_of(chunk, unit);
  if (layer < 0 || layer >= context_.plan().offload_layers) return;
  const BufferId input = chunk.unit_inputs[unit];
  const BufferId output = unit + 1 < chunk.units.size() ? chunk.unit_inputs[unit + 1] : chunk.output;
  std::set<BufferId> kept = builder_.written_since(since);
  kept.insert(input);
  kept.erase(output);
  for (const BufferId id : kept)
    if (builder_.buffer(id).lifetime == Lifetime::micro_batch) keep_on_host(chunk, unit, id);
}

void StageLowering::copy_out(const Chunk& chunk, std::size_t unit) {
  for (const Chunk::Kept& kept : chunk.kept[unit]) {
    const program::Buffer& b = builder_.buffer(kept.on_device);
    builder_.op_on("to_host", program::StreamKind::copy, b.name + ".to_host",
                   program::Elementwise{program::ElementwiseFn::copy, b.elements()}, b.dtype, {{kept.on_device}},
                   {{kept.on_host}});
  }
}

// Copies what of `unit` is on the host back, not before what has been computed so far.
void StageLowering::copy_back(const Chunk& chunk, int unit) {
  if (unit < 0) return;
  const OpRef before = builder_.last_compute_op();
  for (const Chunk::Kept& kept : chunk.kept[static_cast<std::size_t>(unit)]) {
    const program::Buffer& b = builder_.buffer(kept.on_device);
    const std::string name = b.name + ".to_device";
    const std::int64_t elements = b.elements();
    const DType type = b.dtype;
    const OpRef copy = builder_.op_on("to_device", program::StreamKind::copy, name,
                                      program::Elementwise{program::ElementwiseFn::copy, elements}, type,
                                      {{kept.on_host}}, {{kept.on_device}});
    if (before.valid())
      builder_.after(copy, before);
    else
      builder_.after_compute(copy);
  }
}

// A backward body has what comes back from the host in buffers of its own.
void StageLowering::come_back(const Chunk& chunk, BodyId body) {
  std::set<BufferId> away;
  for (const std::vector<Chunk::Kept>& kept : chunk.kept)
    for (const Chunk::Kept& one : kept) away.insert(one.on_device);
  builder_.replace_for_slot(body, away, ".back." + std::to_string(body));
}

void StageLowering::emit_begin() {
  begin_ = builder_.begin_body("begin");
  if (!context_.plan().forward_only) parameters_.emit_zero_gradients();
  builder_.set_phase(Phase::forward);
  for (Chunk& chunk : chunks_)
    for (auto& unit : chunk.units) unit->begin_step();
}

// ZeRO-3: a unit's parameters are gathered while the unit before it computes, not earlier, so at most two units are
// whole. `unit` counts within the chunk. `previous` is the unit computed two before (its end frees the memory), -1 if
// that was in an earlier slot.
void StageLowering::gather_for(const Chunk& chunk, int unit, int previous) {
  if (!parameters_.gathers() || unit < 0 || unit >= static_cast<int>(chunk.units.size())) return;
  const OpRef before = builder_.last_compute_op();
  const int ops_before = builder_.last_op().op;
  parameters_.gather(chunk.first_unit + unit);
  const int ops_after = builder_.last_op().op;
  for (int op = ops_before + 1; op <= ops_after; ++op) {
    const OpRef gather{builder_.current_body(), op};
    if (previous >= 0)
      builder_.after(gather, before);
    else
      builder_.after_compute(gather);
  }
  gather_alone(before, ops_before);
}

// ShardGather::alone: what was gathered since op `ops_before` is behind all compute; the host waits for it.
void StageLowering::gather_alone(OpRef before, int ops_before) {
  if (context_.profile().shard_gather != plan::ShardGather::alone || builder_.last_op().op == ops_before) return;
  builder_.after({builder_.current_body(), ops_before + 1}, before);
}

void StageLowering::emit_forward(Chunk& chunk) {
  chunk.forward = chunk.forward_first = builder_.begin_body(named("forward", chunk));
  parameters_.begin_forward(true);
  parameters_.fp8_scales().begin(chunk.index, true);
  builder_.set_phase(Phase::forward);
  gather_for(chunk, 0, -1);
  transfers_.set_way(chunk.up);
  if (chunk.receives()) {
    transfers_.receive(chunk.inputs(), true);
    for (const Boundary& boundary : chunk.inputs()) transfers_.unpack(boundary, true);
  }
  const plan::Data& data = context_.scenario.data;
  bool loads = chunk.first && data.takes_time() && data.workers > 0;
  OpRef load;  // the first unit's first op
  const bool ahead = context_.profile().shard_gather == plan::ShardGather::ahead ||
                     context_.profile().shard_gather == plan::ShardGather::after_reduce;
  for (int u = 0; u < static_cast<int>(chunk.units.size()); ++u) {
    if (ahead)
      gather_for(chunk, u + 1, u - 1);
    else if (u > 0)
      gather_for(chunk, u, -1);
    if (u == 0) load = {chunk.forward, builder_.last_op().op + 1};
    const RoleBuilder::Mark mark = builder_.mark();
    forward_of(chunk, static_cast<std::size_t>(u));
    keep_activations_on_host(chunk, static_cast<std::size_t>(u), mark);
    copy_out(chunk, static_cast<std::size_t>(u));
    // The next micro-batch is taken while this one is computed, not earlier, as a loop over the loader does.
    if (!loads || !builder_.last_compute_op().valid()) continue;
    builder_.after(load, builder_.last_compute_op());
    loads = false;
  }
  parameters_.fp8_scales().emit_update();
  if (!chunk.sends()) return;
  std::vector<BufferId> sent{transfers_.packed(chunk.output, named("stage.output.sent", chunk))};
  if (chunk.memory_gradient.whole >= 0) sent.push_back(transfers_.packed(memory_.value, "stage.memory.sent"));
  transfers_.send(sent, true);
}

void StageLowering::emit_backward(Chunk& chunk, int which, bool only, bool parted) {
  const std::string name = which == kLast ? ".last" : which == kFirst ? ".first" : "";
  Backward& bodies = chunk.backward[which][parted ? 1 : 0];
  if (parted)
    std::tie(bodies.input, bodies.weight) =
        builder_.begin_parted_bodies(named("backward_input" + name, chunk), named("backward_weight" + name, chunk));
  else
    bodies.input = builder_.begin_body(named("backward" + name, chunk));
  builder_.set_phase(Phase::backward);
  parameters_.begin_forward(false);
  parameters_.begin_backward(chunk.index, which == kFirst || only, which == kLast);
  parameters_.fp8_scales().begin(chunk.index, false);
  const int n = static_cast<int>(chunk.units.size());
  memory_.gradient = chunk.memory_gradient.whole;
  if (table_shared_ && chunk.last) gather_for(chunk, table_unit_, -1);
  if (context_.plan().recompute != plan::Recompute::none)
    for (const int unit : bias_units_) gather_for(chunk, unit, -1);
  gather_for(chunk, n - 1, -1);
  copy_back(chunk, n - 1);
  transfers_.set_way(chunk.up);
  if (chunk.sends()) transfers_.receive(chunk.gradients(), false);
  BufferId gradient = chunk.output_gradient.whole;
  const bool ahead = context_.profile().shard_gather == plan::ShardGather::ahead;
  for (int u = n - 1; u >= 0; --u) {
    const auto gather_next = [&](int previous) {
      if (u > 0 && chunk.units[static_cast<std::size_t>(u) - 1]->backward_reads_parameters())
        gather_for(chunk, u - 1, previous);
    };
    if (ahead) gather_next(u + 1 < n ? u + 1 : -1);
    copy_back(chunk, u - 1);
    Unit& unit = *chunk.units[static_cast<std::size_t>(u)];
    if (unit.recomputes()) {
      builder_.set_phase(Phase::recompute);
      unit.forward(true);
      const OpRef before = builder_.last_compute_op();
      const int ops_before = builder_.last_op().op;
      parameters_.gather_again(chunk.first_unit + u);
      gather_alone(before, ops_before);
      builder_.set_phase(Phase::backward);
    }
    // Not before the last layer's recomputation, whose collectives would queue behind it on the tensor stream.
    if (u == n - 1 && chunk.sends())
      for (const Boundary& boundary : chunk.gradients()) transfers_.unpack(boundary, false);
    // An embedding asks for its output's gradient, unless it is frozen.
    const bool embedding = context_.model().is_transformer() && !context_.scenario.training.lora();
    const bool needed = !chunk.first || u > 1 || (u == 1 && embedding);
    gradient = backward_of(chunk, static_cast<std::size_t>(u), gradient, needed);
    if (!ahead) gather_next(-1);
  }
  parameters_.fp8_scales().emit_update();
  come_back(chunk, bodies.input);
  chunk.units.back()->end_micro_batch();
  if (chunk.first) return;
  if (chunk.from_here)
    return builder_.replace(bodies.input, gradient,
                            chunks_[static_cast<std::size_t>(chunk.index) - 1].output_gradient.whole);
  send_gradients(chunk, bodies.input, gradient);
}

// To the stage before: of what came from there.
void StageLowering::send_gradients(Chunk& chunk, BodyId body, BufferId gradient) {
  std::vector<BufferId> sent;
  const auto add = [&](const std::string& name, BufferId whole) {
    if (transfers_.batched()) builder_.set_lifetime(whole, Lifetime::micro_batch);
    sent.push_back(transfers_.packed(whole, name + std::to_string(body)));
  };
  add("stage.input_gradient.sent.", gradient);
  if (chunk.memory.whole >= 0) add("stage.memory_gradient.sent.", memory_.gradient);
  transfers_.send(sent, false);
}

// As many as the schedule has slots for; of a chunk's last micro-batch last, which leaves its buckets reduced.
void StageLowering::emit_backwards() {
  const auto order = schedule().slots(place(), static_cast<int>(context_.micro_batches));
  const Ends ends = ends_of(order);
  std::set<std::tuple<std::size_t, int, bool>> backwards;  // chunk, which of its, in two parts
  for (const ScheduleSlot& slot : order)
    if (const auto chunk = static_cast<std::size_t>(slot.chunk); !slot.forward())
      backwards.emplace(chunk, which_backward(slot, ends), slot.kind != SlotKind::backward);
  // A parameter that two chunks have, or a backward in two parts, would not know the first.
  REHEARSE_CHECK(!context_.profile().takes_first_gradient || (chunks_.size() == 1 && context_.stages == 1),
                 "framework {} in stages", context_.profile().name);
  const bool one = context_.micro_batches == 1;
  for (const auto& [chunk, which, parted] : backwards) emit_backward(chunks_[chunk], which, one, parted);
  builder_.keep_for_weight_parts();
}

void StageLowering::emit_step() {
  step_ = builder_.begin_body("step");
  // The gradients are for servers (sim/engine/parameter_servers.h), or there are none.
  if (context_.plan().served() || context_.plan().forward_only) return;
  parameters_.emit_step();
  if (!context_.plan().steps_apart()) return;
  outer_ = builder_.begin_body("outer");
  builder_.run_every(context_.plan().local_steps);
  parameters_.emit_outer_step();
}

int StageLowering::which_backward(const ScheduleSlot& slot, const Ends& ends) const {
  const auto chunk = static_cast<std::size_t>(slot.chunk);
  if (slot.micro_batch == ends.last[chunk]) return kLast;
  return context_.profile().takes_first_gradient && slot.micro_batch == ends.first[chunk] ? kFirst : kOther;
}

BodyId StageLowering::body_of(const ScheduleSlot& slot, const Ends& ends) const {
  const auto index = static_cast<std::size_t>(slot.chunk);
  const Chunk& chunk = chunks_[index];
  if (slot.forward()) return slot.micro_batch == ends.forward[index] ? chunk.forward_first : chunk.forward;
  const Backward& backward = chunk.backward[which_backward(slot, ends)][slot.kind == SlotKind::backward ? 0 : 1];
  return slot.kind == SlotKind::backward_weight ? backward.weight : backward.input;
}

StageLowering::Ends StageLowering::ends_of(const std::vector<ScheduleSlot>& order) const {
  const std::vector<int> none(chunks_.size(), -1);
  Ends ends{none, none, none};
  for (const ScheduleSlot& slot : order) {
    const auto chunk = static_cast<std::size_t>(slot.chunk);
    if (slot.forward() && ends.forward[chunk] < 0) ends.forward[chunk] = slot.micro_batch;
    if (slot.kind != SlotKind::backward && slot.kind != SlotKind::backward_weight) continue;
    if (ends.first[chunk] < 0) ends.first[chunk] = slot.micro_batch;
    ends.last[chunk] = slot.micro_batch;
  }
  return ends;
}

// As the schedule has them; of a step of forwards alone these.
std::vector<ScheduleSlot> StageLowering::order_of(int micro_batches) const {
  std::vector<ScheduleSlot> order = schedule().slots(place(), micro_batches);
  if (!context_.plan().forward_only) return order;
  std::erase_if(order, [](const ScheduleSlot& slot) { return !slot.forward(); });
  return order;
}

std::vector<Slot> StageLowering::slots(int micro_batches) {
  const auto order = order_of(micro_batches);
  const Ends ends = ends_of(order);
  std::vector<Slot> slots;
  if (!builder_.empty(begin_)) slots.push_back({begin_, -1});
  const auto add_exchange = [&](BodyId before, const ScheduleSlot* sent, const ScheduleSlot* received) {
    if (!transfers_.batched() || context_.stages == 1) return;
    std::vector<BufferId> targets;
    if (received != nullptr)
      for (const Boundary& b : received->forward() ? chunks_.front().inputs() : chunks_.front().gradients())
        if (b.slice >= 0) targets.push_back(b.slice);
    const BodyId body = transfers_.exchange(before, sent, received, targets);
    if (body >= 0) slots.push_back({body, (sent != nullptr ? sent : received)->micro_batch});
  };
  add_exchange(-1, nullptr, &order.front());
  for (std::size_t i = 0; i < order.size(); ++i) {
    check_interrupt();
    const BodyId body = body_of(order[i], ends);
    if (overlaps() && order[i].with_next) {
      const int delta = order[i + 1].micro_batch - order[i].micro_batch;
      const auto [it, added] = merged_.try_emplace({body, body_of(order[i + 1], ends), delta}, -1);
      if (added) it->second = builder_.merge_bodies(body, std::get<1>(it->first), delta, trades_experts_rows);
      slots.push_back({it->second, order[i++].micro_batch});
      continue;
    }
    slots.push_back({body, order[i].micro_batch});
    add_exchange(body, &order[i], i + 1 < order.size() ? &order[i + 1] : nullptr);
  }
  if (!context_.plan().served() && !context_.plan().forward_only) slots.push_back({step_, -1});
  if (outer_ >= 0) slots.push_back({outer_, -1});
  return slots;
}

// What the schedule says that shows every neighbourhood of slots, or more, until every body of two runs in it.
std::vector<Slot> StageLowering::sample_slots(const std::vector<Slot>& all, int micro_batches) {
  std::set<BodyId> bodies;
  for (const Slot& slot : all) bodies.insert(slot.body);
  int least = schedule().sample_micro_batches(place(), micro_batches);
  // Copies out and back meet where a forward is followed by its own backward, which one round of micro-batches does not
  // show; nor does it show a backward right behind a forward that is not the first.
  const bool later = std::any_of(chunks_.begin(), chunks_.end(),
                                 [](const Chunk& chunk) { return chunk.forward != chunk.forward_first; });
  if (context_.plan().offloads_activations() || later) least = std::max(least, 2 * static_cast<int>(context_.stages));
  if (context_.profile().takes_first_gradient)
    least = std::max(least, 4);  // a backward that is neither, before another
  for (int n = least;; n += static_cast<int>(context_.stages)) {
    std::vector<Slot> sample = slots(std::min(n, micro_batches));
    if (!overlaps() || n >= micro_batches) return sample;
    std::set<BodyId> missing = bodies;
    for (const Slot& slot : sample) missing.erase(slot.body);
    if (missing.empty()) return sample;
  }
}

std::vector<Slot> StageLowering::slots_of(int stage, int micro_batches) {
  if (transfers_.batched() || overlaps()) return {};  // with bodies between slots, or of two, that are the stage's own
  const int own = std::exchange(stage_, stage);
  std::vector<Slot> all = slots(micro_batches);
  stage_ = own;
  if (std::any_of(all.begin(), all.end(), [](const Slot& slot) { return slot.body < 0; })) all.clear();
  return all;
}

std::vector<Slot> StageLowering::emit() {
  for (Chunk& chunk : chunks_) make_units(chunk);
  parameters_.layout();
  for (Chunk& chunk : chunks_) declare_buffers(chunk);
  emit_begin();
  const bool casts_once = context_.scenario.training.narrow() && parameters_.keeps_fp8_weights();
  for (Chunk& chunk : chunks_) {
    emit_forward(chunk);
    if (!casts_once || context_.micro_batches == 1) continue;
    chunk.forward =
        builder_.copy_body(chunk.forward_first, named("forward.later", chunk), ParameterStore::casts_weight);
    transfers_.sends_alike(chunk.forward, chunk.forward_first);
  }
  if (!context_.plan().forward_only) emit_backwards();
  emit_step();
  return slots(static_cast<int>(context_.micro_batches));
}

void StageLowering::add_loads(std::vector<Slot>& slots) {
  std::vector<std::unique_ptr<StageLowering>> lowered;
  std::vector<const RoleBuilder*> builders;
  std::vector<LayerRange> layers;
  for (const Chunk& chunk : chunks_) layers.push_back(chunk.layers);
  for (const Context& context : *context_.other_loads) {
    check_interrupt();
    lowered.push_back(std::make_unique<StageLowering>(context, stage_, layers));
    const std::vector<Slot> same = lowered.back()->emit();
    REHEARSE_CHECK(same.size() == slots.size(), "stage {} has {} and {} slots", stage_, same.size(), slots.size());
    builders.push_back(&lowered.back()->builder_);
  }
  builder_.take_turns(builders, slots);
}

program::Role StageLowering::build(const std::vector<int>& alike, std::vector<std::vector<Slot>>* theirs) && {
  std::vector<Slot> all = emit();
  if (context_.other_loads != nullptr) {
    add_loads(all);
    const std::vector<Slot> every = all;
    return std::move(builder_).finish(every, std::move(all));
  }
  const int micro_batches = static_cast<int>(context_.micro_batches);
  const std::vector<Slot> sample = sample_slots(all, micro_batches);
  for (const int stage : alike) theirs->push_back(slots_of(stage, micro_batches));
  if (context_.plan().cuda_graphs == plan::CudaGraphs::step) builder_.capture_all_but(step_);
  return std::move(builder_).finish(sample, std::move(all));
}

}  // namespace rehearse::lower
