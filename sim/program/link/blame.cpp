// See blame.h.
#include "sim/program/link/blame.h"

#include <algorithm>

#include "sim/base/check.h"

namespace rehearse::program {
namespace {

Blame of_group(GroupKind kind) {
  switch (kind) {
    case GroupKind::tensor:
      return Blame::tensor;
    case GroupKind::context:
      return Blame::context;
    case GroupKind::expert:
      return Blame::expert;
    case GroupKind::data:
      return Blame::data;
    case GroupKind::pipeline:
    case GroupKind::embedding:
      return Blame::pipeline;
    case GroupKind::world:
      return Blame::other;
  }
  return Blame::other;
}

Blame of_axis(Axis axis) {
  switch (axis) {
    case Axis::tensor:
      return Blame::tensor;
    case Axis::context:
      return Blame::context;
    case Axis::expert:
      return Blame::expert;
    case Axis::data:
    case Axis::replica:
      return Blame::data;
    case Axis::pipeline:
      return Blame::pipeline;
  }
  return Blame::other;
}

Blame of_stream(StreamKind kind) {
  switch (kind) {
    case StreamKind::tensor:
      return Blame::tensor;
    case StreamKind::context:
      return Blame::context;
    case StreamKind::expert:
      return Blame::expert;
    case StreamKind::data:
      return Blame::data;
    case StreamKind::pipeline:
      return Blame::pipeline;
    case StreamKind::host:
      return Blame::host;
    case StreamKind::cpu:
      return Blame::optimizer;
    case StreamKind::compute:
    case StreamKind::copy:
      return Blame::other;
  }
  return Blame::other;
}

const Group& group_of(const Program& program, const Collective& collective) {
  return program.groups.at(static_cast<std::size_t>(collective.group));
}

}  // namespace

Blame blame_of(const Program& program, const Role& role, const Op& op) {
  if (const auto* c = std::get_if<Collective>(&op.shape)) return of_group(group_of(program, *c).kind);
  if (const auto* p = std::get_if<PointToPoint>(&op.shape); p != nullptr && !p->legs.empty())
    return of_axis(p->legs.front().axis);
  if (const auto* input = std::get_if<Input>(&op.shape); input != nullptr && input->from != InputFrom::there)
    return Blame::input;
  if (within(role, op) == Within::between) {
    if (op.phase == Phase::optimizer) return Blame::optimizer;
    if (op.phase == Phase::param_gather) return Blame::data;  // shards on their way to be gathered
  }
  return of_stream(role.streams.at(static_cast<std::size_t>(op.stream)).kind);
}

bool within_role(const Program& program, const Op& transfer) {
  if (const auto* p = std::get_if<PointToPoint>(&transfer.shape))
    return std::none_of(p->legs.begin(), p->legs.end(), [](const Leg& leg) { return leg.axis == Axis::pipeline; });
  const auto* c = std::get_if<Collective>(&transfer.shape);
  REHEARSE_CHECK(c != nullptr, "'{}' waits for nobody", transfer.name);
  const std::vector<Axis>& axes = group_of(program, *c).axes;
  return std::find(axes.begin(), axes.end(), Axis::pipeline) == axes.end();
}

}  // namespace rehearse::program
