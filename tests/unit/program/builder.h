// Small programs by hand, for the tests of sim/program: a role grows op by op under names, and a two-stage training
// step that is correct, for tests to break.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/static_check.h"

namespace rehearse::program::testing {

class RoleBuilder {
 public:
  explicit RoleBuilder(std::string name, int pipeline = 0) {
    role.name = std::move(name);
    role.ranks = RankSet::of_stage(pipeline);
    role.pipeline = pipeline;
  }

  StreamId stream(std::string name, StreamKind kind = StreamKind::compute) {
    role.streams.push_back({std::move(name), kind});
    return static_cast<StreamId>(role.streams.size()) - 1;
  }
  EventId event(std::string name) {
    role.events.push_back({std::move(name)});
    return static_cast<EventId>(role.events.size()) - 1;
  }
  BufferId buffer(std::string name, std::vector<std::int64_t> shape, Lifetime lifetime,
                  BufferClass cls = BufferClass::activation, Init::Kind init = Init::Kind::none) {
    Buffer b;
    b.name = std::move(name);
    b.shape = std::move(shape);
    b.lifetime = lifetime;
    b.cls = cls;
    b.init.kind = init;
    role.buffers.push_back(b);
    return static_cast<BufferId>(role.buffers.size()) - 1;
  }
  BufferId view(std::string name, BufferId base, std::int64_t offset, std::int64_t elements) {
    Buffer b = role.buffers[static_cast<std::size_t>(base)];
    b.name = std::move(name);
    b.shape = {elements};
    b.base = base;
    b.offset = offset;
    role.buffers.push_back(b);
    return static_cast<BufferId>(role.buffers.size()) - 1;
  }
  BodyId body(std::string name) {
    role.bodies.push_back({std::move(name), {}});
    return static_cast<BodyId>(role.bodies.size()) - 1;
  }
  // Appends an op to a body; the reference holds until the next one.
  Op& op(BodyId body, std::string name, OpShape shape, StreamId on, std::vector<BufferId> reads = {},
         std::vector<BufferId> writes = {}, std::vector<BufferId> releases = {}) {
    Op o;
    o.name = std::move(name);
    o.shape = std::move(shape);
    o.stream = on;
    for (const BufferId b : reads) o.reads.push_back({b, 0});
    for (const BufferId b : writes) o.writes.push_back({b, 0});
    for (const BufferId b : releases) o.releases.push_back({b, 0});
    auto& ops = role.bodies[static_cast<std::size_t>(body)].ops;
    ops.push_back(std::move(o));
    return ops.back();
  }
  void slot(BodyId body, int micro_batch = -1) { role.slots.push_back({body, micro_batch}); }

  Role role;
};

inline Op& find_op(Role& role, const std::string& name) {
  for (Body& body : role.bodies)
    for (Op& op : body.ops)
      if (op.name == name) return op;
  throw std::out_of_range(name);
}

inline void remove_op(Role& role, const std::string& name) {
  for (Body& body : role.bodies) std::erase_if(body.ops, [&](const Op& op) { return op.name == name; });
}

// A grid with the tensor axis fastest, then context, expert, data, pipeline.
inline GridView grid_view(int tensor, int pipeline, int data = 1, int context = 1) {
  const std::array<int, kAxes> sizes = {tensor, context, 1, data, pipeline, 1};
  std::array<int, kAxes> strides{};
  int ranks = 1;
  for (std::size_t a = 0; a < kAxes; ++a) {
    strides[a] = ranks;
    ranks *= sizes[a];
  }
  const auto coordinate = [=](int rank, std::size_t axis) { return rank / strides[axis] % sizes[axis]; };
  GridView view;
  view.ranks = ranks;
  view.role = [=](int rank) { return coordinate(rank, static_cast<std::size_t>(Axis::pipeline)); };
  view.size = [=](Axis axis) { return sizes[static_cast<std::size_t>(axis)]; };
  view.peer = [=](int rank, Axis axis, int offset) {
    const auto a = static_cast<std::size_t>(axis);
    const int c = coordinate(rank, a);
    return rank + ((c + offset) % sizes[a] + sizes[a]) % sizes[a] * strides[a] - c * strides[a];
  };
  view.members = [=](int rank, const Group& group) {
    std::vector<int> members;
    for (int other = 0; other < ranks; ++other) {
      bool in = true;
      for (std::size_t a = 0; a < kAxes; ++a) {
        bool named = false;
        for (const Axis axis : group.axes) named = named || static_cast<std::size_t>(axis) == a;
        in = in && (named || coordinate(other, a) == coordinate(rank, a));
      }
      const int stage = coordinate(other, static_cast<std::size_t>(Axis::pipeline));
      bool listed = group.pipeline_only.empty();
      for (const int p : group.pipeline_only) listed = listed || p == stage;
      if (in && listed) members.push_back(other);
    }
    return members;
  };
  return view;
}

inline PointToPoint send_to(int offset, std::int64_t elements, int channel = 0) {
  return {{{true, Axis::pipeline, offset, channel, elements}}};
}
inline PointToPoint receive_from(int offset, std::int64_t elements, int channel = 0) {
  return {{{false, Axis::pipeline, offset, channel, elements}}};
}

// Two stages of one linear layer [4, 4] each, two micro-batches of 2 rows, all forwards before all backwards. Transfers
// are on the stream "link"; the gradient norm is summed over both stages on the stream "norm" before the update.
inline Program two_stages() {
  Program program;
  program.name = "two stages";
  program.micro_batches = 2;
  program.groups = {{"world", GroupKind::world, {Axis::tensor, Axis::data, Axis::pipeline}, {}},
                    {"tensor", GroupKind::tensor, {Axis::tensor}, {}}};
  for (int stage = 0; stage < 2; ++stage) {
    RoleBuilder b("stage" + std::to_string(stage), stage);
    const bool first = stage == 0;
    const StreamId compute = b.stream("compute");
    const StreamId link = b.stream("link", StreamKind::pipeline);
    const StreamId norm = b.stream("norm", StreamKind::tensor);
    const BufferId w = b.buffer("weight", {4, 4}, Lifetime::persistent, BufferClass::parameter, Init::Kind::normal);
    const BufferId g = b.buffer("gradient", {4, 4}, Lifetime::persistent, BufferClass::gradient, Init::Kind::zeros);
    const BufferId x = b.buffer("x", {2, 4}, Lifetime::micro_batch);
    const BufferId y = b.buffer("y", {2, 4}, Lifetime::micro_batch);
    const BufferId dy = b.buffer("dy", {2, 4}, Lifetime::micro_batch);
    const BufferId dx = b.buffer("dx", {2, 4}, Lifetime::slot);
    const BufferId sum = b.buffer("sum", {1}, Lifetime::step);
    const EventId arrived = b.event("arrived"), computed = b.event("computed"), summed = b.event("summed"),
                  reduced = b.event("reduced");

    const BodyId forward = b.body("forward");
    const Gemm up{2, 4, 4, 1, false, true, false, false};
    if (first) {
      b.op(forward, "load", Input{InputKind::features, 8}, compute, {}, {x});
      b.op(forward, "up", up, compute, {x, w}, {y}).records = computed;
      b.op(forward, "send forward", send_to(1, 8), link, {y}, {}, {y}).waits = {computed};
    } else {
      b.op(forward, "receive forward", receive_from(-1, 8), link, {}, {x}).records = arrived;
      b.op(forward, "up", up, compute, {x, w}, {y}).waits = {arrived};
    }
    const BodyId backward = b.body("backward");
    const Gemm weight_gradient{4, 4, 2, 1, true, false, true, false};
    if (first) {
      b.op(backward, "receive back", receive_from(1, 8), link, {}, {dy}).records = arrived;
      b.op(backward, "weight gradient", weight_gradient, compute, {dy, x, g}, {g}, {dy, x}).waits = {arrived};
    } else {
      b.op(backward, "loss gradient", Elementwise{ElementwiseFn::scale, 8, 0, 2.0, 0, false, false}, compute, {y}, {dy},
           {y});
      b.op(backward, "input gradient", Gemm{2, 4, 4}, compute, {dy, w}, {dx}).records = computed;
      b.op(backward, "weight gradient", weight_gradient, compute, {dy, x, g}, {g}, {dy, x});
      b.op(backward, "send back", send_to(-1, 8), link, {dx}, {}, {dx}).waits = {computed};
    }
    const BodyId optimizer = b.body("optimizer");
    b.op(optimizer, "clear sum", Elementwise{ElementwiseFn::fill, 1}, compute, {}, {sum});
    b.op(optimizer, "sum squares", SumSquares{16}, compute, {g, sum}, {sum}).records = summed;
    Op& reduce = b.op(optimizer, "norm reduce", Collective{CollectiveKind::all_reduce, 0, 1}, norm, {sum}, {sum});
    reduce.waits = {summed};
    reduce.records = reduced;
    b.op(optimizer, "clip", ClipCoefficient{1}, compute, {sum}, {sum}).waits = {reduced};
    b.op(optimizer, "update", Optimizer{false, false, true, 16}, compute, {g, sum, w}, {w}, {sum});
    b.op(optimizer, "clear gradient", Elementwise{ElementwiseFn::fill, 16}, compute, {}, {g});
    for (int m = 0; m < 2; ++m) b.slot(forward, m);
    for (int m = 0; m < 2; ++m) b.slot(backward, m);
    b.slot(optimizer);
    program.roles.push_back(std::move(b.role));
  }
  return program;
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// All violations, one a line, for failure messages.
inline std::string text_of(const std::vector<Violation>& violations) {
  std::string text;
  for (const Violation& v : violations) text += v.rule + ": " + v.message + "\n";
  return text;
}

}  // namespace rehearse::program::testing
