// See blame.h.
#include "sim/account/blame.h"

namespace rehearse::account {

using program::GroupKind;
using program::StreamKind;
using result::Share;

Share exposed(GroupKind kind) {
  switch (kind) {
    case GroupKind::tensor:
      return Share::exposed_tensor;
    case GroupKind::context:
      return Share::exposed_context;
    case GroupKind::expert:
      return Share::exposed_expert;
    case GroupKind::data:
      return Share::exposed_data;
    case GroupKind::pipeline:
    case GroupKind::embedding:
      return Share::exposed_pipeline;
    case GroupKind::world:
      return Share::other;
  }
  return Share::other;
}

Share exposed(Axis axis) {
  switch (axis) {
    case Axis::tensor:
      return Share::exposed_tensor;
    case Axis::context:
      return Share::exposed_context;
    case Axis::expert:
      return Share::exposed_expert;
    case Axis::data:
      return Share::exposed_data;
    case Axis::pipeline:
      return Share::exposed_pipeline;
  }
  return Share::other;
}

Share share_of_op(const program::Program& program, const program::Role& role, const program::Op& op) {
  if (const auto* c = std::get_if<program::Collective>(&op.shape))
    return exposed(program.groups.at(static_cast<std::size_t>(c->group)).kind);
  if (const auto* p = std::get_if<program::PointToPoint>(&op.shape); p != nullptr && !p->legs.empty())
    return exposed(p->legs.front().axis);
  switch (role.streams.at(static_cast<std::size_t>(op.stream)).kind) {
    case StreamKind::tensor:
      return Share::exposed_tensor;
    case StreamKind::data:
      return Share::exposed_data;
    case StreamKind::pipeline:
      return Share::exposed_pipeline;
    case StreamKind::host:
      return Share::host;
    case StreamKind::compute:
    case StreamKind::copy:
      return Share::other;
  }
  return Share::other;
}

}  // namespace rehearse::account
