#include "sim/lower/role_builder.h"

#include <set>

#include "sim/base/check.h"

namespace rehearse::lower {

using program::BufferClass;
using program::StreamKind;

RoleBuilder::RoleBuilder(std::string name, int pipeline) {
  role_.name = std::move(name);
  role_.ranks = program::RankSet::of_stage(pipeline);
  role_.pipeline = pipeline;
  stream_id("compute", StreamKind::compute);
}

BufferId RoleBuilder::add_buffer(program::Buffer buffer) {
  const auto id = static_cast<BufferId>(role_.buffers.size());
  REHEARSE_CHECK(buffer_ids_.emplace(buffer.name, id).second, "{}: two buffers named '{}'", role_.name, buffer.name);
  role_.buffers.push_back(std::move(buffer));
  return id;
}

BufferId RoleBuilder::activation(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                                 Lifetime lifetime) {
  return add_buffer({name, dtype, std::move(shape), BufferClass::activation, lifetime, -1, 0, 0, {}, {}});
}

BufferId RoleBuilder::workspace(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                                Lifetime lifetime) {
  return add_buffer({name, dtype, std::move(shape), BufferClass::workspace, lifetime, -1, 0, 0, {}, {}});
}

BufferId RoleBuilder::add_loss() {
  return add_buffer({"loss",
                     DType::f32,
                     {1},
                     BufferClass::workspace,
                     Lifetime::persistent,
                     -1,
                     0,
                     0,
                     {},
                     {program::Init::Kind::zeros, 0, {}, -1}});
}

BufferId RoleBuilder::view(const std::string& name, BufferId base, std::int64_t offset,
                           std::vector<std::int64_t> shape) {
  const program::Buffer& b = buffer(base);
  return add_buffer({name, b.dtype, std::move(shape), b.cls, b.lifetime, base, offset, 0, {}, {}});
}

BufferId RoleBuilder::slice(const std::string& name, BufferId base, int parts, AxisSet axes) {
  const program::Buffer& b = buffer(base);
  const std::int64_t n = b.elements() / parts;
  REHEARSE_CHECK(n * parts == b.elements(), "{} of {} elements does not split in {}", b.name, b.elements(), parts);
  return add_buffer({name, b.dtype, {n}, b.cls, b.lifetime, base, 0, n, axes, {}});
}

BodyId RoleBuilder::begin_body(const std::string& name) {
  role_.bodies.push_back({name, {}});
  drafts_.emplace_back();
  weight_body_ = -1;
  return body_ = static_cast<BodyId>(role_.bodies.size()) - 1;
}

BodyId RoleBuilder::copy_body(BodyId from, const std::string& name,
                              bool (*without)(const program::Role&, const program::Op&)) {
  const auto source = static_cast<std::size_t>(from);
  const BodyId copy = begin_body(name);
  std::vector<program::Op> ops;
  std::vector<int> place;  // of each op in the copy, -1: left out
  for (const program::Op& op : role_.bodies[source].ops) {
    const bool kept = !without(role_, op);
    place.push_back(kept ? static_cast<int>(ops.size()) : -1);
    if (kept) ops.push_back(op);
  }
  const auto copied = [&](OpRef op) {
    return op.body != from ? op : OpRef{copy, place[static_cast<std::size_t>(op.op)]};
  };
  for (std::size_t i = 0, n = after_.size(); i < n; ++i) {
    const auto [op, earlier] = after_[i];
    if (op.body != from && earlier.body != from) continue;
    if (copied(op).op >= 0 && copied(earlier).op >= 0) after_.emplace_back(copied(op), copied(earlier));
  }
  for (std::size_t i = 0, n = after_compute_.size(); i < n; ++i)
    if (after_compute_[i].body == from && copied(after_compute_[i]).op >= 0)
      after_compute_.push_back(copied(after_compute_[i]));
  Draft& draft = drafts_.back();
  draft.names = drafts_[source].names;
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (role_.streams[static_cast<std::size_t>(ops[i].stream)].kind == StreamKind::compute)
      draft.last_compute = {copy, static_cast<int>(i)};
  role_.bodies.back().ops = std::move(ops);
  return copy;
}

std::pair<BodyId, BodyId> RoleBuilder::begin_parted_bodies(const std::string& input_part,
                                                           const std::string& weight_part) {
  const BodyId weights = begin_body(weight_part), inputs = begin_body(input_part);
  weight_body_ = weights;
  return parted_.emplace_back(inputs, weights);
}

// The weight part runs in a later slot of the same micro-batch: what the input part leaves for it must live until then.
void RoleBuilder::keep_for_weight_parts() {
  const auto base_of = [&](BufferId id) { return buffer(id).is_view() ? buffer(id).base : id; };
  for (const auto& [inputs, weights] : parted_) {
    std::set<BufferId> left;
    for (const program::Op& op : role_.bodies[static_cast<std::size_t>(inputs)].ops)
      for (const Operand& write : op.writes) left.insert(base_of(write.buffer));
    std::set<BufferId> kept;
    for (const program::Op& op : role_.bodies[static_cast<std::size_t>(weights)].ops)
      for (const Operand& read : op.reads)
        if (left.contains(base_of(read.buffer)) && buffer(base_of(read.buffer)).lifetime == Lifetime::slot)
          kept.insert(base_of(read.buffer));
    for (program::Buffer& b : role_.buffers)
      if (kept.contains(base_of(static_cast<BufferId>(&b - role_.buffers.data())))) b.lifetime = Lifetime::micro_batch;
  }
}

program::StreamId RoleBuilder::stream_id(const std::string& name, StreamKind kind) {
  const auto [it, added] = stream_ids_.emplace(name, static_cast<program::StreamId>(role_.streams.size()));
  if (added) role_.streams.push_back({name, kind});
  return it->second;
}

OpRef RoleBuilder::op(const std::string& name, program::OpShape shape, DType dtype, const std::vector<Operand>& reads,
                      const std::vector<Operand>& writes, StreamKind kind) {
  static constexpr const char* kNames[] = {"compute", "tensor",   "context", "expert",
                                           "data",    "pipeline", "copy",    "host"};
  return op_on(kNames[static_cast<int>(kind)], kind, name, std::move(shape), dtype, reads, writes);
}

OpRef RoleBuilder::op_on(const std::string& stream, StreamKind kind, const std::string& name, program::OpShape shape,
                         DType dtype, const std::vector<Operand>& reads, const std::vector<Operand>& writes) {
  REHEARSE_CHECK(body_ >= 0, "op '{}' outside a body", name);
  auto& ops = role_.bodies[static_cast<std::size_t>(body_)].ops;
  program::Op op;
  Draft& draft = drafts_[static_cast<std::size_t>(body_)];
  const int seen = draft.names[name]++;
  op.name = seen == 0 ? name : name + "." + std::to_string(seen + 1);
  op.shape = std::move(shape);
  op.dtype = dtype;
  op.phase = phase_;
  op.stream = stream_id(stream, kind);
  op.reads = reads;
  op.writes = writes;
  ops.push_back(std::move(op));
  const OpRef ref{body_, static_cast<int>(ops.size()) - 1};
  if (kind == StreamKind::compute) draft.last_compute = ref;
  return ref;
}

void RoleBuilder::after(OpRef op, OpRef earlier) {
  if (earlier.valid()) after_.emplace_back(op, earlier);
}

program::Role RoleBuilder::finish(const std::vector<program::Slot>& sample_slots, std::vector<program::Slot> slots) && {
  keep_for_weight_parts();
  for (const OpRef op : after_compute_)
    for (const Draft& draft : drafts_)
      if (draft.last_compute.valid()) after_.emplace_back(op, draft.last_compute);
  order_role(role_, sample_slots, after_);
  role_.slots = std::move(slots);
  return std::move(role_);
}

}  // namespace rehearse::lower
