// The intermediate representation that is both simulated and performed. A plan is lowered to a Program: per role (a
// pipeline stage), bodies of operations on streams over named buffers, and the order of slots in which the bodies run.
// Its size grows with layers and stages, never with micro-batches or ranks.
//
// Program order. A rank's host issues, step after step, the slots in order and in each slot the body's ops in order,
// each to its stream. Streams are queues as on a CUDA device: an op starts when the op before it on its stream is done
// and its waits are met.
//
// Events follow CUDA's rule: a wait is for the latest record of that event *before the wait in program order* (earlier
// slots and steps included); if there was none yet, the wait is met. So a rank alone cannot deadlock; only ranks
// waiting for one another in transfers can (static_check.h). An event is recorded by exactly one op of one body.
//
// Buffers have instances by their lifetime; an operand names a buffer and, for micro-batch buffers, which micro-batch's
// instance relative to the slot's own. Views share their base's memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/axis.h"
#include "sim/program/ids.h"
#include "sim/program/op.h"

namespace rehearse::program {

enum class BufferClass : unsigned char { parameter, gradient, optimizer, activation, workspace, communication };
inline constexpr int kBufferClasses = 6;

// persistent: one instance, allocated before the first step, kept across steps (parameters, optimizer states, gradient
// sums). step: one instance a step. micro_batch: one per micro-batch (what forward saves for backward). slot: one per
// slot, gone by its end. Non-persistent instances live from the first op that writes them (in program order) to the op
// that releases them.
enum class Lifetime : unsigned char { persistent, step, micro_batch, slot };

// How the Performer fills a persistent buffer before the first step; what is drawn depends only on (seed, name of the
// parameter, global index), so every split starts alike. `global_shape` is the whole parameter; this rank holds the
// slice [coordinate(tensor) * n / t, ...) of dimension `tensor_dim` (-1: all of it), and of dimension 0, experts, the
// slice of its place among the ranks that differ from it on `spread` only.
struct Init {
  enum class Kind : unsigned char { none, zeros, ones, normal, uniform, first, decay, step } kind = Kind::none;
  // normal: standard deviation; uniform: half width; first: the first element, the others are 0. Of a Mamba-2 mixer's
  // heads, as Megatron-Core draws them (megatron/core/ssm/mamba_mixer.py): decay is log a, a uniform in [1, 16]; step
  // is what softplus makes a number of whose logarithm is uniform, in [0.001, 0.1].
  double scale = 0;
  std::vector<std::int64_t> global_shape;
  int tensor_dim = -1;
  AxisSet spread = {};
  // Of a part of a parameter that other plans hold in one: its name, global_shape being its shape; this one's first
  // element in it.
  std::string whole = {};
  std::int64_t first = 0;
  // Above 0: dimension 0, key-value heads, is split over the tensor group too, so many ranks in a row having the same
  // one; tensor_dim is split over these. (Of a part, both are of the part; `first` is within a head.)
  int key_ranks = 0;
};

struct Buffer {
  std::string name;  // "layer3.mlp.up.weight"; parameters carry their global name, the same under every plan
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  BufferClass cls = BufferClass::activation;
  Lifetime lifetime = Lifetime::slot;
  // View: elements [offset + n * shard_stride, + elements) of base, which is no view itself, on the rank that is n-th
  // among those that differ from it on shard_axes only; with `turn` n is that of the rank so many places further on,
  // around. A base with views of several turns is cut into as many parts as there are such ranks: orders of its parts
  // are found one by one.
  BufferId base = -1;
  std::int64_t offset = 0, shard_stride = 0;
  AxisSet shard_axes = {};  // of a persistent shard without a base: of those that hold the others
  Init init;
  // In the memory of the node's host, which its ranks share, and not in the device's; a view's is its base's.
  bool on_host = false;
  int turn = 0, parts = 0;  // parts: into which turns cut the base; 0: this view is no such part

  bool is_view() const { return base >= 0; }
  // Where a view begins in its base, on a rank that is first among those on shard_axes.
  std::int64_t begin() const { return is_view() ? offset + turn * shard_stride : 0; }
  std::int64_t elements() const;
  std::int64_t bytes() const { return elements() * size_of(dtype); }
};

struct Operand {
  BufferId buffer = -1;
  int micro_batch_delta = 0;  // instance of slot.micro_batch + delta; only for Lifetime::micro_batch
};

// copy: between the memories of host and device. host: of HostSync alone. cpu: kernels on the host's cores.
enum class StreamKind : unsigned char { compute, tensor, context, expert, data, pipeline, copy, host, cpu };
struct Stream {
  std::string name;
  StreamKind kind = StreamKind::compute;
};

struct Event {
  std::string name;
};

// What an op belongs to, for the breakdown of a step.
enum class Phase : unsigned char { forward, recompute, backward, grad_reduce, param_gather, optimizer, pipeline };

// What other kernels move for an op besides its operands, in bytes, where a framework makes in several kernels what is
// one op here: what they hand each other, and copies that one kernel does without. The result is the same.
struct Passes {
  std::int64_t read = 0, written = 0;

  bool any() const { return read > 0 || written > 0; }
};

struct Op {
  std::string name;  // "layer3.mlp.up.forward"; unique in its body
  OpShape shape;
  DType dtype = DType::f32;  // of the arithmetic (gemm inputs) or of the elements sent
  Phase phase = Phase::forward;
  StreamId stream = 0;
  std::vector<Operand> reads, writes;
  std::vector<EventId> waits;
  EventId records = -1;           // recorded when the op is done
  std::vector<Operand> releases;  // instances freed after this op, in program order
  // What the host launches for it, in launches (a copy of as many pieces, one by one). The work is the same.
  std::int64_t launches = 1;
  Passes passes;
  // A framework makes it inside a neighbour's kernel: nothing is launched for it, and of memory it moves `passes`
  // alone. The result is the same.
  bool fused = false;
  int micro_batch_delta = 0;  // it is of micro-batch slot.micro_batch + delta, in a body of two micro-batches
  // Steps of a run, from 0, in which it does something; in others it is passed over, as ops of Body::every are. A
  // simulation is of the steps after all that begin: what ends (until_step) is passed over in it.
  static constexpr std::int64_t kNoEnd = -1;
  std::int64_t from_step = 0, until_step = kNoEnd;
  bool ends() const { return until_step != kNoEnd; }
  bool acts_in(std::int64_t step) const { return step >= from_step && (!ends() || step < until_step); }
};

// `every`: what the body does is done in every n-th step alone, the last of each round of as many
// (plan.local_steps has one such body, behind the optimizer's). In the other steps its slots are passed over: ops wait,
// record and release as they always do, but launch nothing, take no time, move nothing and change nothing.
struct Body {
  std::string name;  // "forward", "backward.last", "optimizer"
  std::vector<Op> ops;
  std::int64_t every = 1;
};

struct Slot {
  BodyId body = 0;
  int micro_batch = -1;  // -1: none (optimizer)
};

// Ranks by their coordinates: on each axis those listed; on an axis with none listed all.
struct RankSet {
  std::array<std::vector<int>, kAxes> only;

  bool contains(const Coordinates& rank) const;
  // The least coordinates, which are those of the lowest rank.
  Coordinates first() const;
  // The ranks of one pipeline stage.
  static RankSet of_stage(int stage);
};

struct Role {
  std::string name;  // "stage3"
  RankSet ranks;     // that run it; every rank has one role
  int pipeline = 0;  // the stage these are in, by which results name the role
  std::vector<Buffer> buffers;
  std::vector<Stream> streams;
  std::vector<Event> events;
  std::vector<Body> bodies;
  std::vector<Slot> slots;  // one step
};

// The ranks that agree with us on every axis not named, and whose pipeline coordinate, if restricted, is listed. Order:
// the axes' coordinates, rank order's fastest axis first.
enum class GroupKind : unsigned char { tensor, context, expert, data, pipeline, embedding, world };
struct Group {
  std::string name;
  GroupKind kind = GroupKind::tensor;
  std::vector<Axis> axes;
  std::vector<int> pipeline_only;  // empty: no restriction
  // On the tensor axis only those of one block of so many consecutive coordinates; 0: all.
  int tensor_block = 0;
};

struct Program {
  std::string name;
  int micro_batches = 1;  // a step, per replica
  std::vector<Group> groups;
  std::vector<std::vector<std::int64_t>> parts;  // of all-to-alls of unequal parts (op.h, Collective): elements
  std::vector<Role> roles;
};

// Steps after which everything repeats: the most that a body is `every` of; 1: all steps are alike.
std::int64_t steps_per_round(const Program& program);

// The role of a rank with these coordinates; a rank without one is a broken invariant.
RoleId role_of(const Program& program, const Coordinates& rank);

// Where an op's operands lie: all in device memory, all in the host's, or a copy from one to the other.
enum class Within : unsigned char { device, host, between };
Within within(const Role& role, const Op& op);

// Whether an op is a transfer (Collective, PointToPoint).
inline bool is_transfer(const Op& op) {
  return std::holds_alternative<Collective>(op.shape) || std::holds_alternative<PointToPoint>(op.shape);
}

}  // namespace rehearse::program
