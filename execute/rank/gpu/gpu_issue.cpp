// What a step of a GPU rank queues, op by op or as a graph.
//
// Between steps nothing is waited for but what the timeline says, if both are issued op by op. A graph begins after
// everything of the step before it and ends before anything of the step after it.
#include <array>
#include <numeric>

#include "execute/rank/expert_rows.h"
#include "execute/rank/gpu/gpu_rank.h"
#include "execute/rank/input_rows.h"
#include "execute/rank/kernel_call.h"
#include "sim/base/check.h"
#include "sim/base/half.h"
#include "sim/program/link/send_slots.h"

namespace rehearse::execute {

using program::Op;

void GpuRank::issue(std::int64_t step) {
  StepStaging& l = staging_of(step);
  l.graphed = replayed(step);
  l.mode = measured(step) ? Mode::measured : Mode::plain;
  *l.values = step_values(run_.scenario.training, step, run_.options.steps);
  if (l.graphed) return issue_graph(step);
  issue_ops(step, l.mode);
}

void GpuRank::issue_graph(std::int64_t step) {
  StepStaging& l = staging_of(step);
  const Gpu::Stream stream = compute().stream;
  for (std::size_t index = 0; index < timeline_.instances.size(); ++index)
    if (input_offset_[index] >= 0) load_input(static_cast<std::int32_t>(index), step);
  if (l.graph < 0) l.graph = gpu_->capture(stream, [&] { issue_ops(step, Mode::captured); });
  if (!staging_of(step - 1).graphed)
    for (const StreamState& s : streams_)
      if (s.stream >= 0 && s.stream != stream)
        gpu_->wait(stream, s.ends[static_cast<std::size_t>((step - 1) % kAhead)]);
  ranges_.begin_graph(step);
  gpu_->launch(l.graph, stream);
  ranges_.end();
  watch_->begin_graph(static_cast<std::size_t>(compute_stream_), stream, has_transfers_);
  gpu_->record(step_ends_[static_cast<std::size_t>(step) % step_ends_.size()], stream);
  gpu_->record(compute().ends[static_cast<std::size_t>(step % kAhead)], stream);
  ++use_.graph_steps;
}

void GpuRank::issue_ops(std::int64_t step, Mode mode) {
  StepStaging& l = staging_of(step);
  if (mode == Mode::measured && l.op_events.empty())
    for (const Instance& i : timeline_.instances) {
      const bool on_device = streams_[static_cast<std::size_t>(i.stream)].stream >= 0;
      l.op_events.emplace_back(on_device ? gpu_->make_event(true) : -1, on_device ? gpu_->make_event(true) : -1);
    }
  begin_step(step, mode);
  for (std::size_t index = 0; index < timeline_.instances.size(); ++index)
    issue_op(static_cast<std::int32_t>(index), step, mode);
  end_step(step, mode);
}

void GpuRank::begin_step(std::int64_t step, Mode mode) {
  const Gpu::Stream stream = compute().stream;
  const auto before = static_cast<std::size_t>((step + kAhead - 1) % kAhead);
  const bool after_graph = step > 0 && mode != Mode::captured && staging_of(step - 1).graphed;
  bool shared = mode == Mode::captured;  // the other streams join the capture
  for (const StreamState& s : streams_) {
    if (s.stream < 0 || s.stream == stream) continue;
    if (after_graph) gpu_->wait(s.stream, compute().ends[before]);
    if (!s.reads_values) continue;
    shared = true;
    if (step > 0 && mode != Mode::captured && !after_graph) gpu_->wait(stream, s.ends[before]);
  }
  gpu_->to_device(stream, values_, staging_of(step).values, sizeof(kernels::StepValues));
  if (!shared) return;
  gpu_->record(values_ready_, stream);
  for (const StreamState& s : streams_)
    if (s.stream >= 0 && s.stream != stream && (s.reads_values || mode == Mode::captured))
      gpu_->wait(s.stream, values_ready_);
}

void GpuRank::end_step(std::int64_t step, Mode mode) {
  const auto k = static_cast<std::size_t>(step % kAhead);
  if (mode != Mode::captured)  // before `ends`, which say that it is there
    gpu_->record(step_ends_[static_cast<std::size_t>(step) % step_ends_.size()], compute().stream);
  for (const StreamState& s : streams_) {
    if (s.stream < 0 || (mode == Mode::captured && &s == &compute())) continue;
    gpu_->record(s.ends[k], s.stream);
    if (mode == Mode::captured) gpu_->wait(compute().stream, s.ends[k]);
  }
  for (const auto& out : send_staging_)
    if (out) gpu_->record(out->ends[k], out->stream);
}

void GpuRank::issue_op(std::int32_t index, std::int64_t step, Mode mode) {
  const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
  const Op& op = timeline_.op(i);
  issuing_ = index;
  const OpRange range(ranges_, index, step);
  if (run_.world.stop().requested()) throw Stopped(std::vector<int>());
  if (run_.options.before_op) run_.options.before_op(rank_, step, op);
  if (std::holds_alternative<program::HostSync>(op.shape)) return host_sync(index, step, mode);
  const auto s = static_cast<std::size_t>(i.stream);
  const Gpu::Stream stream = streams_[s].stream;
  StepStaging& l = staging_of(step);
  issue_waits(i, step, mode);
  if (mode == Mode::measured) gpu_->record(l.op_events[static_cast<std::size_t>(index)].first, stream);
  if (program::is_transfer(op))
    queue_transfer(index, step, mode != Mode::captured);
  else if (input_offset_[static_cast<std::size_t>(index)] >= 0)
    queue_input(index, step, mode);
  else
    queue_kernel(index, step);
  take_to_host(index, step);
  if (mode == Mode::measured) gpu_->record(l.op_events[static_cast<std::size_t>(index)].second, stream);
  if (i.ends_loss && reports_loss_)
    gpu_->to_host(stream, l.losses, arena_ + timeline_.persistent[static_cast<std::size_t>(timeline_.loss)],
                  losses() * static_cast<std::int64_t>(sizeof(float)));
  const Gpu::Event event = instance_event_[static_cast<std::size_t>(index)];
  if (event >= 0) gpu_->record(event, stream);
  constexpr std::int64_t kMarkEvery = 16;
  if (mode != Mode::captured && i.stream == compute_stream_ && i.position % kMarkEvery == 0)
    watch_->mark(s, stream, index);
}

// An event's latest record is the one meant or a later one, which is still earlier in program order: waits are for
// what was issued before. What a graph did before this step, or the step did before a capture, is done.
void GpuRank::issue_waits(const Instance& i, std::int64_t step, Mode mode) {
  StreamState& own = streams_[static_cast<std::size_t>(i.stream)];
  const bool only_this_step = step == 0 || mode == Mode::captured || staging_of(step - 1).graphed;
  for (std::size_t w = i.first_wait; w < i.last_wait; ++w) {
    const Wait& wait = timeline_.waits[w];
    if (wait.position < 1 && only_this_step) continue;
    if (streams_[static_cast<std::size_t>(wait.stream)].stream < 0) continue;  // a host sync: the host has waited
    const std::int64_t per_step = timeline_.per_step(wait.stream), needed = step * per_step + wait.position;
    std::int64_t& known = own.known[static_cast<std::size_t>(wait.stream)];
    if (needed <= known) continue;
    known = needed;
    gpu_->wait(own.stream, event_of(wait));
  }
}

Gpu::Event GpuRank::event_of(const Wait& wait) const {
  const std::int64_t per_step = timeline_.per_step(wait.stream);
  const auto index = static_cast<std::size_t>((wait.position - 1 + per_step) % per_step);
  const std::int32_t other = timeline_.streams[static_cast<std::size_t>(wait.stream)][index];
  return instance_event_[static_cast<std::size_t>(other)];
}

void GpuRank::host_sync(std::int32_t index, std::int64_t step, Mode mode) {
  REHEARSE_CHECK(mode != Mode::captured, "a host sync in a graph");
  const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
  const double begin = host_s();
  for (std::size_t w = i.first_wait; w < i.last_wait; ++w) {
    const Wait& wait = timeline_.waits[w];
    if (streams_[static_cast<std::size_t>(wait.stream)].stream < 0) continue;
    if (wait.position < 1 && (step == 0 || staging_of(step - 1).graphed)) continue;
    await(event_of(wait));
  }
  check_rooms(step);
  if (mode == Mode::measured)
    staging_of(step).host_spans[static_cast<std::size_t>(index)] = {begin - base_host_s_, host_s() - base_host_s_};
}

void GpuRank::load_input(std::int32_t index, std::int64_t step) {
  const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
  const auto& input = std::get<program::Input>(timeline_.op(i).shape);
  std::vector<std::int64_t> examples(static_cast<std::size_t>(run_.scenario.plan.micro_batch));
  std::iota(examples.begin(), examples.end(), staging_of(step).values->first_sequence + layout_.first_sequence(i));
  std::byte* to = staging_of(step).inputs + input_offset_[static_cast<std::size_t>(index)];
  const DType type = layout_.operand(arena_, i.first_place).type;
  if (!is_half(type)) return load_examples(run_, rank_, input, examples, to);
  std::vector<float> loaded(static_cast<std::size_t>(input.elements));
  load_examples(run_, rank_, input, examples, loaded.data());
  from_float(type, loaded.data(), input.elements, to);
}

void GpuRank::queue_input(std::int32_t index, std::int64_t step, Mode mode) {
  if (mode != Mode::captured) load_input(index, step);
  const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
  const kernels::Out to = layout_.operand(arena_, i.first_place);
  gpu_->to_device(streams_[static_cast<std::size_t>(i.stream)].stream, to.data,
                  staging_of(step).inputs + input_offset_[static_cast<std::size_t>(index)],
                  std::get<program::Input>(timeline_.op(i).shape).elements * size_of(to.type));
}

void GpuRank::queue_kernel(std::int32_t index, std::int64_t step) {
  if (given_choices(index, step)) return;
  const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
  const Op& op = timeline_.op(i);
  std::array<kernels::Out, 12> operands{};
  const std::size_t reads = op.reads.size(), writes = op.writes.size();
  REHEARSE_CHECK(reads + writes <= operands.size(), "{} operands", reads + writes);
  for (std::size_t o = 0; o < reads + writes; ++o) operands[o] = layout_.operand(arena_, i.first_place + o);
  call_kernel(op, std::span(operands.data(), reads), std::span(operands.data() + reads, writes),
              {run_.scenario, gpu_->device(streams_[static_cast<std::size_t>(i.stream)].stream),
               run_.grid.coordinate(rank_, Axis::tensor), run_.grid.coordinate(rank_, Axis::context), values_,
               layout_.first_sequence(i), &run_.grid, rank_});
}

// Its ranks know the parts alike, by counts that a host sync has waited for; where there is no room for them all throw.
void GpuRank::trade_counted(std::int32_t index, std::int64_t step, const program::Collective& c, Gpu::Stream stream) {
  const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
  const std::int32_t counts = counts_of_[static_cast<std::size_t>(index)];
  const Op& op = timeline_.op(i);
  const Gpu::Event event = instance_event_[static_cast<std::size_t>(counts)];
  REHEARSE_CHECK(event >= 0, "rank {}: nothing says when the counts of '{}' are on the host", rank_, op.name);
  await(event);
  const Parts parts = parts_of(op, c, rank_, layout_.members(c.group), {routed(counts, step), DType::f32});
  transfers_->all_to_all_parts(c.group, op.dtype, operand(i.first_place), operand(i.first_place + 2), parts,
                               gpu_->native(stream));
}

void GpuRank::queue_transfer(std::int32_t index, std::int64_t step, bool marked) {
  const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
  const Op& op = timeline_.op(i);
  const auto s = static_cast<std::size_t>(i.stream);
  const Gpu::Stream stream = streams_[s].stream;
  const auto* c = std::get_if<program::Collective>(&op.shape);
  if (c != nullptr && layout_.members(c->group).size() == 1) {
    std::byte *in = operand(i.first_place), *out = operand(i.first_place + 1);
    if (in != out) gpu_->copy(stream, out, in, c->elements * size_of(op.dtype));
    return;
  }
  if (sends_from_copy(op)) return send_from_copy(index);
  REHEARSE_CHECK(transfers_ != nullptr, "'{}' of a rank without others", op.name);
  if (marked)
    watch_->begin_transfer(s, stream, index);
  else
    watch_->begin_call(s, index);
  if (c != nullptr && c->counted)
    trade_counted(index, step, *c, stream);
  else if (c != nullptr)
    transfers_->collective(*c, op.dtype, operand(i.first_place), operand(i.first_place + 1), gpu_->native(stream));
  else
    transfers_->exchange(messages(i), op.dtype, gpu_->native(stream));
  if (marked)
    watch_->end_transfer(s, stream);
  else
    watch_->end_call(s);
}

bool GpuRank::sends_from_copy(const Op& op) const {
  return options_.send_slots > 0 && program::sends_alone(op);
}

// The slot is free once what it last held was sent.
void GpuRank::send_from_copy(std::int32_t index) {
  const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
  const auto s = static_cast<std::size_t>(i.stream);
  SendStaging& out = *send_staging_[s];
  const std::size_t slot = out.next++ % out.slots.size();
  std::vector<QueuedMessage> one = messages(i);
  const DType type = timeline_.op(i).dtype;
  gpu_->wait(streams_[s].stream, out.sent[slot]);
  gpu_->copy(streams_[s].stream, out.slots[slot], one.front().data, one.front().elements * size_of(type));
  gpu_->record(out.filled[slot], streams_[s].stream);
  gpu_->wait(out.stream, out.filled[slot]);
  one.front().data = out.slots[slot];
  watch_->begin_transfer(s, out.stream, index);
  transfers_->exchange(one, type, gpu_->native(out.stream));
  watch_->end_transfer(s, out.stream);
  gpu_->record(out.sent[slot], out.stream);
}

std::vector<QueuedMessage> GpuRank::messages(const Instance& i) const {
  const auto& legs = std::get<program::PointToPoint>(timeline_.op(i).shape).legs;
  std::size_t reads = i.first_place, writes = i.first_place + timeline_.op(i).reads.size();
  std::vector<QueuedMessage> all;
  for (const program::Leg& leg : legs)
    all.push_back({leg.send, run_.grid.peer(rank_, leg.axis, leg.offset), leg.channel,
                   operand(leg.send ? reads++ : writes++), leg.elements});
  return all;
}

}  // namespace rehearse::execute
