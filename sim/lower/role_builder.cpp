#include "sim/lower/role_builder.h"

#include <algorithm>
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

BufferId RoleBuilder::add_loss(std::int64_t parts) {
  return add_buffer({"loss",
                     DType::f32,
                     {parts},
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
  return add_buffer({name, b.dtype, std::move(shape), b.cls, b.lifetime, base, offset, 0, {}, {}, b.on_host});
}

BufferId RoleBuilder::slice(const std::string& name, BufferId base, int parts, AxisSet axes) {
  const program::Buffer& b = buffer(base);
  const std::int64_t n = b.elements() / parts;
  REHEARSE_CHECK(n * parts == b.elements(), "{} of {} elements does not split in {}", b.name, b.elements(), parts);
  return add_buffer({name, b.dtype, {n}, b.cls, b.lifetime, base, 0, n, axes, {}, b.on_host});
}

std::vector<BufferId> RoleBuilder::turns(BufferId base, int parts, AxisSet axes) {
  const program::Buffer whole = buffer(base);
  std::vector<std::int64_t> shape = whole.shape;
  REHEARSE_CHECK(!whole.is_view() && shape.front() % parts == 0, "{} does not split in {}", whole.name, parts);
  shape.front() /= parts;
  const std::int64_t elements = whole.elements() / parts;
  std::vector<BufferId> out;
  for (int turn = 0; turn < parts; ++turn)
    out.push_back(add_buffer({whole.name + ".turn" + std::to_string(turn),
                              whole.dtype,
                              shape,
                              whole.cls,
                              whole.lifetime,
                              base,
                              0,
                              elements,
                              axes,
                              {},
                              whole.on_host,
                              turn,
                              parts}));
  return out;
}

BodyId RoleBuilder::begin_body(const std::string& name) {
  role_.bodies.push_back({name, {}});
  drafts_.emplace_back();
  weight_body_ = -1;
  return body_ = static_cast<BodyId>(role_.bodies.size()) - 1;
}

RoleBuilder::Mark RoleBuilder::mark() const {
  const auto ops = [&](BodyId body) { return body < 0 ? 0 : role_.bodies[static_cast<std::size_t>(body)].ops.size(); };
  return {body_, weight_body_, ops(body_), ops(weight_body_)};
}

void RoleBuilder::capture(const Mark& since) {
  const auto in = [&](BodyId body, std::size_t first) {
    if (body < 0) return;
    std::vector<program::Op>& ops = role_.bodies[static_cast<std::size_t>(body)].ops;
    program::Op* last = nullptr;
    for (std::size_t i = first; i < ops.size(); ++i) {
      const StreamKind kind = role_.streams[static_cast<std::size_t>(ops[i].stream)].kind;
      if (kind != StreamKind::compute && kind != StreamKind::tensor && kind != StreamKind::context &&
          kind != StreamKind::expert)
        continue;
      ops[i].launches = 0;
      last = &ops[i];
    }
    if (last != nullptr) last->launches = 1;
  };
  in(since.body, since.ops);
  in(since.weight_body, since.weight_ops);
}

void RoleBuilder::capture_all_but(BodyId rest) {
  for (std::size_t b = 0; b < role_.bodies.size(); ++b)
    if (static_cast<BodyId>(b) != rest)
      for (program::Op& op : role_.bodies[b].ops) op.launches = 0;
  // Of a step of forwards alone nothing is left out, and the graph is what the host launches.
  const auto& bodies = role_.bodies;
  const auto whole = std::find_if(bodies.begin(), bodies.end(), [](const program::Body& b) { return !b.ops.empty(); });
  const std::size_t launching = bodies[static_cast<std::size_t>(rest)].ops.empty()
                                    ? static_cast<std::size_t>(whole - bodies.begin())
                                    : static_cast<std::size_t>(rest);
  ++role_.bodies[launching].ops.front().launches;
}

template <class Copied>
void RoleBuilder::copy_orderings(BodyId from, Copied copied) {
  const auto place = [&](OpRef op) { return op.body != from ? op : copied(op); };
  for (std::size_t i = 0, n = after_.size(); i < n; ++i) {
    const auto [op, earlier] = after_[i];
    if (op.body != from && earlier.body != from) continue;
    if (place(op).op >= 0 && place(earlier).op >= 0) after_.emplace_back(place(op), place(earlier));
  }
  for (std::size_t i = 0, n = after_compute_.size(); i < n; ++i)
    if (after_compute_[i].body == from && place(after_compute_[i]).op >= 0)
      after_compute_.push_back(place(after_compute_[i]));
}

// Of the current body, whose ops are there.
void RoleBuilder::note_last_compute() {
  const auto& ops = role_.bodies[static_cast<std::size_t>(body_)].ops;
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (role_.streams[static_cast<std::size_t>(ops[i].stream)].kind == StreamKind::compute)
      drafts_[static_cast<std::size_t>(body_)].last_compute = {body_, static_cast<int>(i)};
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
  copy_orderings(from, [&](OpRef op) { return OpRef{copy, place[static_cast<std::size_t>(op.op)]}; });
  drafts_.back().names = drafts_[source].names;
  role_.bodies.back().ops = std::move(ops);
  note_last_compute();
  return copy;
}

void RoleBuilder::substitute(BodyId body, const std::map<BufferId, BufferId>& by) {
  for (program::Op& op : role_.bodies[static_cast<std::size_t>(body)].ops)
    for (auto* operands : {&op.reads, &op.writes})
      for (Operand& operand : *operands)
        if (const auto it = by.find(operand.buffer); it != by.end()) operand.buffer = it->second;
}

void RoleBuilder::replace(BodyId body, BufferId from, BufferId to) {
  REHEARSE_CHECK(buffer(from).dtype == buffer(to).dtype && buffer(from).elements() == buffer(to).elements(),
                 "{} is not like {}", buffer(from).name, buffer(to).name);
  substitute(body, {{from, to}});
  REHEARSE_CHECK(!used_by(body).contains(from), "'{}' uses a view of {}",
                 role_.bodies[static_cast<std::size_t>(body)].name, buffer(from).name);
}

void RoleBuilder::replace_for_slot(BodyId body, const std::set<BufferId>& bases, const std::string& suffix) {
  if (bases.empty()) return;
  const std::map<BufferId, BufferId> own = copies_of(bases, suffix);
  for (const auto& [from, to] : own) role_.buffers[static_cast<std::size_t>(to)].lifetime = Lifetime::slot;
  substitute(body, own);
}

std::set<BufferId> RoleBuilder::written_since(const Mark& since) const {
  const auto& ops = role_.bodies[static_cast<std::size_t>(since.body)].ops;
  std::set<BufferId> written;
  for (std::size_t i = since.ops; i < ops.size(); ++i)
    for (const Operand& operand : ops[i].writes) written.insert(base_of(operand.buffer));
  return written;
}

BufferId RoleBuilder::base_of(BufferId id) const {
  return buffer(id).is_view() ? buffer(id).base : id;
}

// The buffers, none of them a view, that ops of the body name, or views of which they do.
std::set<BufferId> RoleBuilder::used_by(BodyId body) const {
  std::set<BufferId> used;
  for (const program::Op& op : role_.bodies[static_cast<std::size_t>(body)].ops)
    for (const auto* operands : {&op.reads, &op.writes})
      for (const Operand& operand : *operands) used.insert(base_of(operand.buffer));
  return used;
}

// A buffer of its own for each of `bases` and for each view of one.
std::map<BufferId, BufferId> RoleBuilder::copies_of(const std::set<BufferId>& bases, const std::string& suffix) {
  std::map<BufferId, BufferId> copies;
  const auto add = [&](BufferId id) {
    program::Buffer copy = buffer(id);
    copy.name += suffix;
    if (copy.is_view()) copy.base = copies.at(copy.base);
    copies[id] = add_buffer(std::move(copy));
  };
  for (const BufferId id : bases) add(id);
  for (BufferId id = 0, n = static_cast<BufferId>(role_.buffers.size()); id < n; ++id)
    if (buffer(id).is_view() && bases.contains(buffer(id).base)) add(id);
  return copies;
}

// Buffers of a slot that both bodies use: second's own of each.
std::map<BufferId, BufferId> RoleBuilder::own_slot_buffers(BodyId first, BodyId second, const std::string& suffix) {
  const std::set<BufferId> of_first = used_by(first);
  std::set<BufferId> shared;
  for (const BufferId id : used_by(second))
    if (of_first.contains(id) && buffer(id).lifetime == Lifetime::slot) shared.insert(id);
  return copies_of(shared, suffix);
}

BodyId RoleBuilder::merge_bodies(BodyId first, BodyId second, int delta,
                                 bool (*ends)(const program::Role&, const program::Op&)) {
  const auto ops_of = [&](BodyId body) -> const std::vector<program::Op>& {
    return role_.bodies[static_cast<std::size_t>(body)].ops;
  };
  const std::string name = role_.bodies[static_cast<std::size_t>(first)].name + "+" +
                           role_.bodies[static_cast<std::size_t>(second)].name + std::to_string(delta);
  const std::map<BufferId, BufferId> own = own_slot_buffers(first, second, "." + name);
  const BodyId merged = begin_body(name);
  std::vector<program::Op> ops;
  std::vector<int> place_first, place_second;
  const auto take_part = [&](BodyId from, std::vector<int>& place) {
    const auto& source = ops_of(from);
    for (bool ended = false; place.size() < source.size();) {
      program::Op op = source[place.size()];
      const bool end = ends(role_, op);
      if (ended && !end) return;
      ended = end;
      if (from == second) {
        op.micro_batch_delta += delta;
        for (auto* operands : {&op.reads, &op.writes})
          for (Operand& operand : *operands) {
            if (const auto it = own.find(operand.buffer); it != own.end()) operand.buffer = it->second;
            if (buffer(operand.buffer).lifetime == Lifetime::micro_batch) operand.micro_batch_delta += delta;
          }
      }
      for (const std::string once = op.name; !drafts_.back().names.emplace(op.name, 1).second;)
        op.name = once + "." + std::to_string(++drafts_.back().names[once]);
      place.push_back(static_cast<int>(ops.size()));
      ops.push_back(std::move(op));
    }
  };
  while (place_first.size() < ops_of(first).size() || place_second.size() < ops_of(second).size()) {
    take_part(second, place_second);
    take_part(first, place_first);
  }
  copy_orderings(first, [&](OpRef op) { return OpRef{merged, place_first[static_cast<std::size_t>(op.op)]}; });
  copy_orderings(second, [&](OpRef op) { return OpRef{merged, place_second[static_cast<std::size_t>(op.op)]}; });
  role_.bodies.back().ops = std::move(ops);
  note_last_compute();
  return merged;
}

std::pair<BodyId, BodyId> RoleBuilder::begin_parted_bodies(const std::string& input_part,
                                                           const std::string& weight_part) {
  const BodyId weights = begin_body(weight_part), inputs = begin_body(input_part);
  weight_body_ = weights;
  return parted_.emplace_back(inputs, weights);
}

void RoleBuilder::keep_for_weight_parts() {
  if (parted_.empty()) return;
  std::set<BufferId> elsewhere;
  for (BodyId body = 0; body < static_cast<BodyId>(role_.bodies.size()); ++body)
    if (std::none_of(parted_.begin(), parted_.end(),
                     [&](const auto& parts) { return parts.first == body || parts.second == body; }))
      elsewhere.merge(used_by(body));
  for (const auto& [inputs, weights] : parted_) {
    std::set<BufferId> left;
    for (const program::Op& op : role_.bodies[static_cast<std::size_t>(inputs)].ops)
      for (const Operand& write : op.writes) left.insert(base_of(write.buffer));
    std::set<BufferId> kept, again;
    for (const program::Op& op : role_.bodies[static_cast<std::size_t>(weights)].ops)
      for (const Operand& read : op.reads)
        if (const BufferId id = base_of(read.buffer); left.contains(id) && buffer(id).lifetime == Lifetime::slot)
          (elsewhere.contains(id) ? again : kept).insert(id);
    // What is computed again has been dropped in forward: what is kept of it is another buffer.
    const std::map<BufferId, BufferId> copies = copies_of(again, ".kept." + std::to_string(inputs));
    for (const BodyId body : {inputs, weights}) substitute(body, copies);
    for (const auto& [from, to] : copies)
      if (!buffer(to).is_view()) kept.insert(to);
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
  static constexpr const char* kNames[] = {"compute",  "tensor", "context", "expert", "data",
                                           "pipeline", "copy",   "host",    "cpu"};
  return op_on(kNames[static_cast<int>(kind)], kind, name, std::move(shape), dtype, reads, writes);
}

OpRef RoleBuilder::op_on(const std::string& stream, StreamKind kind, const std::string& name, program::OpShape shape,
                         DType dtype, const std::vector<Operand>& reads, const std::vector<Operand>& writes) {
  REHEARSE_CHECK(body_ >= 0, "op '{}' outside a body", name);
  if (fills_.any) fill_new(name, shape, reads, writes);
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
  const bool product =
      std::holds_alternative<program::Gemm>(op.shape) || std::holds_alternative<program::GroupedGemm>(op.shape);
  if (product && is_narrow(dtype)) op.launches = fp8_product_launches_;
  if (auto* gemm = std::get_if<program::Gemm>(&op.shape)) gemm->row_scales = row_scales_ && is_fp8(dtype);
  if (auto* cast = std::get_if<program::Elementwise>(&op.shape)) {
    if (cast->fn == program::ElementwiseFn::cast && unrolled_casts_)
      cast->unrolled = dtype == DType::f32 && size_of(buffer(reads.front().buffer).dtype) == 2;
    if (cast->fn == program::ElementwiseFn::fp8_cast_transpose) cast->unrolled = generated_transposes_;
  }
  op.from_step = from_step_, op.until_step = until_step_;
  if (op.ends()) op.launches = 0;
  ops.push_back(std::move(op));
  const OpRef ref{body_, static_cast<int>(ops.size()) - 1};
  if (kind == StreamKind::compute) draft.last_compute = ref;
  return ref;
}

// Kernels of extensions and PyTorch's own that are not "structured" allocate what they write by at::empty and
// empty_like, which fill it under deterministic algorithms (aten/src/ATen/native/cuda/EmptyTensor and
// TensorFactories.cu, fill_empty_deterministic_); structured ones (mm, add, gelu, softmax) and what torch.compile
// makes by at::detail::empty_cuda, which does not.
bool RoleBuilder::fills(const program::OpShape& shape) const {
  if (const auto* g = std::get_if<program::Gemm>(&shape)) return fills_.products && !g->accumulate;
  if (const auto* g = std::get_if<program::GroupedGemm>(&shape)) return fills_.products && !g->accumulate;
  if (const auto* n = std::get_if<program::Norm>(&shape))
    return fills_.norms && n->part != program::NormPart::backward_weight;
  if (const auto* a = std::get_if<program::Attention>(&shape))
    return a->part == program::AttentionPart::flash_forward || a->part == program::AttentionPart::flash_backward ||
           a->part == program::AttentionPart::dropout;
  const auto* e = std::get_if<program::Elementwise>(&shape);
  return e != nullptr && (e->fn == program::ElementwiseFn::cast || e->fn == program::ElementwiseFn::dropout);
}

void RoleBuilder::fill_new(const std::string& name, const program::OpShape& shape, const std::vector<Operand>& reads,
                           const std::vector<Operand>& writes) {
  const bool filled = fills(shape);
  for (const Operand& write : writes) {
    const BufferId base = base_of(write.buffer);
    if (!drafts_[static_cast<std::size_t>(body_)].written.insert(base).second || !filled) continue;
    const program::Buffer& b = buffer(base);
    const bool read =
        std::any_of(reads.begin(), reads.end(), [&](const Operand& r) { return base_of(r.buffer) == base; });
    if (read || b.on_host || b.lifetime == Lifetime::persistent) continue;
    op(name + ".fill", program::Elementwise{program::ElementwiseFn::fill, b.elements()}, b.dtype, {},
       {{base, write.micro_batch_delta}});
  }
}

void RoleBuilder::after(OpRef op, OpRef earlier) {
  if (earlier.valid()) after_.emplace_back(op, earlier);
}

program::Role RoleBuilder::finish(const std::vector<program::Slot>& sample_slots, std::vector<program::Slot> slots) && {
  for (const OpRef op : after_compute_)
    for (const Draft& draft : drafts_)
      if (draft.last_compute.valid()) after_.emplace_back(op, draft.last_compute);
  order_role(role_, sample_slots, after_, held_);
  role_.slots = std::move(slots);
  return std::move(role_);
}

}  // namespace rehearse::lower
