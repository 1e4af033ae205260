// Times from the ranks' accounts, everything else from the program itself, by the same counts a simulation uses.
#include "execute/measure.h"

#include <algorithm>
#include <numeric>

#include "execute/timeline.h"
#include "sim/base/check.h"
#include "sim/program/describe.h"
#include "sim/program/memory_plan.h"
#include "sim/program/work.h"

namespace rehearse::execute {

using program::GroupKind;
using program::Op;
using program::Role;
using result::Share;

namespace {

constexpr std::size_t kWarmUpSteps = 2;

Blame blame_for_group(GroupKind kind, bool several_roles) {
  switch (kind) {
    case GroupKind::tensor:
      return {Share::exposed_tensor, Share::exposed_tensor};
    case GroupKind::context:
      return {Share::exposed_context, Share::exposed_context};
    case GroupKind::expert:
      return {Share::exposed_expert, Share::exposed_expert};
    case GroupKind::data:
      return {Share::exposed_data, Share::exposed_data};
    case GroupKind::pipeline:
      return {Share::bubble, Share::exposed_pipeline};
    case GroupKind::embedding:
      return {several_roles ? Share::bubble : Share::exposed_data, Share::exposed_pipeline};
    case GroupKind::world:
      return {several_roles ? Share::bubble : Share::other, Share::other};
  }
  return {};
}

GroupKind group_of(program::StreamKind stream) {
  switch (stream) {
    case program::StreamKind::tensor:
      return GroupKind::tensor;
    case program::StreamKind::data:
      return GroupKind::data;
    case program::StreamKind::pipeline:
      return GroupKind::pipeline;
    default:
      return GroupKind::world;
  }
}

std::int64_t total(const Shares& shares) {
  return std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

double hardware_flops(const program::Program& program, int ranks_per_role) {
  double sum = 0;
  for (const Role& role : program.roles)
    for (const program::Slot& slot : role.slots)
      for (const Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops)
        if (!program::is_transfer(op)) sum += program::work_of(role, op).flops * ranks_per_role;
  return sum;
}

result::OpName name_op(const program::Program& program, const Role& role, const program::Body& body, const Op& op,
                       const plan::RankGrid& grid) {
  static constexpr const char* kPhases[] = {"forward",      "recompute", "backward", "grad_reduce",
                                            "param_gather", "optimizer", "pipeline"};
  result::OpName name;
  name.body = body.name;
  name.op = op.name;
  name.kind = program::kind_name(op.shape);
  name.phase = kPhases[static_cast<int>(op.phase)];
  name.stream = role.streams[static_cast<std::size_t>(op.stream)].name;
  name.shape = program::shape_text(role, op);
  if (const auto* collective = std::get_if<program::Collective>(&op.shape)) {
    const program::Group& g = program.groups[static_cast<std::size_t>(collective->group)];
    const int rank = grid.members(0, {Axis::pipeline})[static_cast<std::size_t>(role.pipeline)];
    name.bytes = program::collective_bytes(op);
    name.dtype = program::name_of(op.dtype);
    name.group = g.name;
    name.elements = collective->elements;
    name.group_size = static_cast<std::int32_t>(grid.members(rank, g.axes, g.pipeline_only).size());
  } else if (const auto* legs = std::get_if<program::PointToPoint>(&op.shape)) {
    for (const program::Leg& leg : legs->legs) name.bytes += program::leg_bytes(op, leg);
    name.group_size = 2;
  } else if (!std::holds_alternative<program::HostSync>(op.shape)) {
    const program::Work work = program::work_of(role, op);
    name.bytes = work.bytes_read + work.bytes_written;
    name.flops = work.flops;
  }
  return name;
}

result::StageMemory memory_of(const Role& role) {
  using program::BufferClass;
  const program::MemoryPeak peak = program::memory_peak(role);
  const auto at = [&](BufferClass c) { return peak.at_peak[static_cast<std::size_t>(c)]; };
  result::StageMemory m;
  m.stage = role.pipeline;
  m.parameters = at(BufferClass::parameter);
  m.gradients = at(BufferClass::gradient);
  m.optimizer = at(BufferClass::optimizer);
  m.activations = at(BufferClass::activation);
  m.workspace = at(BufferClass::workspace);
  m.communication = at(BufferClass::communication);
  m.framework = program::plan_memory(role, kArenaAlignment).arena_bytes - peak.peak_bytes;  // gaps of the arena
  m.peak = peak.peak_bytes + m.framework;
  m.where = peak.where;
  return m;
}

}  // namespace

Blame blame_for(const program::Program& program, const Role& role, const Op& op) {
  const bool several_roles = program.roles.size() > 1;
  if (const auto* c = std::get_if<program::Collective>(&op.shape))
    return blame_for_group(program.groups[static_cast<std::size_t>(c->group)].kind, several_roles);
  if (program::is_transfer(op)) return blame_for_group(GroupKind::pipeline, several_roles);
  const program::StreamKind stream = role.streams[static_cast<std::size_t>(op.stream)].kind;
  if (stream == program::StreamKind::host) return {Share::host, Share::host};
  const Share moving = blame_for_group(group_of(stream), several_roles).moving;
  return {moving, moving};
}

void add_times(const StepShares& shares, const plan::Scenario& scenario, result::Result& out) {
  const std::size_t steps = shares.front().size();
  std::vector<std::pair<std::int64_t, std::size_t>> slowest;  // duration, step
  for (std::size_t s = std::min(kWarmUpSteps, steps - 1); s < steps; ++s) {
    std::int64_t longest = 0;
    for (const auto& rank : shares) longest = std::max(longest, total(rank[s]));
    slowest.emplace_back(longest, s);
  }
  std::sort(slowest.begin(), slowest.end());
  const auto [duration, step] = slowest[(slowest.size() - 1) / 2];

  Shares sum{};
  for (const auto& rank : shares) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += rank[step][i];
    sum[static_cast<std::size_t>(Share::other)] += duration - total(rank[step]);
  }
  std::int64_t left = duration;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    out.breakdown_ps[i] = sum[i] / static_cast<std::int64_t>(shares.size());
    left -= out.breakdown_ps[i];
  }
  *std::max_element(out.breakdown_ps.begin(), out.breakdown_ps.end()) += left;

  out.step_time_ps = duration;
  const double seconds = Time::from_ps(duration).seconds();
  const auto& t = scenario.training;
  const double per_step = static_cast<double>(t.global_batch * (scenario.model.is_transformer() ? t.seq_len : 1));
  out.tokens_per_s = seconds > 0 ? per_step / seconds : 0;
  out.tokens_per_s_per_gpu = out.tokens_per_s / static_cast<double>(out.ranks);
  out.interval_low_s = Time::from_ps(slowest.front().first).seconds();
  out.interval_high_s = Time::from_ps(slowest.back().first).seconds();
}

void add_program(const program::Program& program, const plan::Scenario& scenario, const plan::RankGrid& grid,
                 bool names, result::Result& out) {
  const auto& t = scenario.training;
  out.model_flops = model::model_flops(scenario.model, t.global_batch, t.seq_len);
  out.hardware_flops = hardware_flops(program, grid.ranks() / static_cast<int>(program.roles.size()));
  out.flop_formula = model::flop_formula();
  for (const Role& role : program.roles) {
    out.stages.push_back(memory_of(role));
    for (const program::Slot& slot : role.slots)
      out.ops += static_cast<std::int64_t>(role.bodies[static_cast<std::size_t>(slot.body)].ops.size()) *
                 (grid.ranks() / static_cast<int>(program.roles.size())) * out.steps;
    if (!names) continue;
    auto& bodies = out.names[role.pipeline];
    for (const program::Body& body : role.bodies) {
      auto& ops = bodies.emplace_back();
      for (const Op& op : body.ops) ops.push_back(name_op(program, role, body, op, grid));
    }
    for (const program::Slot& slot : role.slots) out.micro_batch_of_slot[role.pipeline].push_back(slot.micro_batch);
  }
}

}  // namespace rehearse::execute
