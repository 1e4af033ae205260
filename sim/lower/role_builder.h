// Builds one role: buffers, streams and bodies of ops in program order. What an op must wait for and when a buffer is
// free are not written by hand: finish() derives both from the operands, over the slot order (order_role.cpp). Lowering
// code adds an ordering of its own only where timing, not data, asks for one (after, after_compute).
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/program/program.h"

namespace rehearse::lower {

using program::BodyId;
using program::BufferId;
using program::DType;
using program::Lifetime;
using program::Operand;
using program::Phase;

// What a stream takes before a launch waits (stackoverflow.com/questions/53970187).
inline constexpr std::int64_t kQueuedLaunches = 1000;

// The place of an op: which body, which index in it.
struct OpRef {
  BodyId body = -1;
  int op = -1;
  bool valid() const { return body >= 0; }
  friend auto operator<=>(const OpRef&, const OpRef&) = default;
};

class RoleBuilder {
 public:
  RoleBuilder(std::string name, int pipeline);
  int pipeline() const { return role_.pipeline; }  // the stage

  // Buffers. Names are unique; asking for a name again is an error.
  BufferId add_buffer(program::Buffer buffer);
  BufferId activation(const std::string& name, DType dtype, std::vector<std::int64_t> shape, Lifetime lifetime);
  BufferId workspace(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                     Lifetime lifetime = Lifetime::slot);
  BufferId add_loss(std::int64_t parts = 1);  // f32 [parts], kept across the step for whoever reads it
  void set_shard_axes(BufferId id, AxisSet axes) { role_.buffers[static_cast<std::size_t>(id)].shard_axes = axes; }
  // Before views of it are made.
  void set_on_host(BufferId id) { role_.buffers[static_cast<std::size_t>(id)].on_host = true; }
  // A buffer of a slot is not free before the device has done its last use and the host, which is as far ahead as the
  // queue of launches allows, knows it.
  void hold(BufferId id) { held_.insert(id); }
  void set_lifetime(BufferId id, Lifetime lifetime) { role_.buffers[static_cast<std::size_t>(id)].lifetime = lifetime; }
  BufferId view(const std::string& name, BufferId base, std::int64_t offset, std::vector<std::int64_t> shape);
  // The 1/parts slice of `base` that belongs to our place among the ranks that differ from us on `axes` only.
  BufferId slice(const std::string& name, BufferId base, int parts, AxisSet axes);
  // Of `base`, rows [parts * n, width], the parts [n, width] by turn: ours among the ranks that differ from us on
  // `axes` only, then the next one's, and so on around.
  std::vector<BufferId> turns(BufferId base, int parts, AxisSet axes);
  const program::Buffer& buffer(BufferId id) const { return role_.buffers[static_cast<std::size_t>(id)]; }

  // Bodies. Ops go to the current body with the current phase; names get a suffix so that they are unique in the body.
  BodyId begin_body(const std::string& name);
  // A backward in two bodies: what weight_part() emits goes into the second, all else into the first, which is current.
  // Buffers of a slot that the second reads become buffers of the micro-batch.
  std::pair<BodyId, BodyId> begin_parted_bodies(const std::string& input_part, const std::string& weight_part);
  bool parted() const { return weight_body_ >= 0; }
  // Calls `emit` with the body of the weight part as the current one; without parted bodies just calls it.
  template <class Emit>
  void weight_part(Emit&& emit) {
    const BodyId body = body_;
    if (parted()) body_ = weight_body_;
    std::forward<Emit>(emit)();
    body_ = body;
  }
  // A weight part runs in a later slot of the same micro-batch: what the input part leaves for it lives until then.
  // Call it when all parted bodies are there, before bodies are merged.
  void keep_for_weight_parts();
  // Another body with the ops of this one but for those that `without` says; buffers are the same.
  BodyId copy_body(BodyId from, const std::string& name, bool (*without)(const program::Role&, const program::Op&));
  // Where the body names buffer `from`, which no view is of, it now names `to`, of the same elements.
  void replace(BodyId body, BufferId from, BufferId to);
  // Where the body names one of `bases`, or a view of one, it now names a buffer of its own like it, which lives for a
  // slot.
  void replace_for_slot(BodyId body, const std::set<BufferId>& bases, const std::string& suffix);
  // Another body with the ops of two, each in its order, by turns a part of `second`, then one of `first`: a part ends
  // behind the op, or the ops in a row, for which `ends` holds. It runs in a slot of first's micro-batch; second's is
  // `delta` from that. What both keep for the length of a slot they have each of their own.
  BodyId merge_bodies(BodyId first, BodyId second, int delta, bool (*ends)(const program::Role&, const program::Op&));
  // Micro-batches have in turn the bodies of this builder and of `others`, which have the same bodies, ops and buffers
  // but for sizes of ops and views: micro-batch m those of number m % (1 + others). `slots`, which name this builder's
  // bodies, then name those.
  void take_turns(const std::vector<const RoleBuilder*>& others, std::vector<program::Slot>& slots);
  // The current body runs in every n-th step (program::Body::every).
  void run_every(std::int64_t steps) { role_.bodies[static_cast<std::size_t>(body_)].every = steps; }
  BodyId current_body() const { return body_; }
  // The name with the current body's number: buffers that each body has of its own.
  std::string here(const std::string& name) const { return name + "." + std::to_string(body_); }
  bool empty(BodyId body) const { return role_.bodies[static_cast<std::size_t>(body)].ops.empty(); }
  void set_phase(Phase phase) { phase_ = phase; }
  Phase phase() const { return phase_; }

  OpRef op(const std::string& name, program::OpShape shape, DType dtype, const std::vector<Operand>& reads,
           const std::vector<Operand>& writes, program::StreamKind stream = program::StreamKind::compute);
  // The same on a named stream (several pipeline streams).
  OpRef op_on(const std::string& stream, program::StreamKind kind, const std::string& name, program::OpShape shape,
              DType dtype, const std::vector<Operand>& reads, const std::vector<Operand>& writes);

  // Ops from now on act in these steps of a run alone (program::Op::from_step). What ends is launched in no step that
  // is simulated.
  void set_steps(std::int64_t from, std::int64_t until = program::Op::kNoEnd) {
    from_step_ = from, until_step_ = until;
  }

  // What was added last takes so many launches.
  void takes_launches(std::int64_t launches) {
    role_.bodies[static_cast<std::size_t>(body_)].ops.back().launches = launches;
  }
  // The same for each of `pieces`, products of experts.
  void takes_launches_each(std::int64_t pieces) {
    program::Op& op = role_.bodies[static_cast<std::size_t>(body_)].ops.back();
    op.launches *= pieces;
    std::get<program::GroupedGemm>(op.shape).each = pieces > 1;
  }
  // From now on an 8-bit product takes so many.
  void set_fp8_product_launches(std::int64_t launches) { fp8_product_launches_ = launches; }
  // From now on 8-bit products are program::Gemm::row_scales, or are not.
  void set_row_scales(bool row_scales) { row_scales_ = row_scales; }
  // From now on casts of 16 bits to fp32 are program::Elementwise::unrolled, or are not.
  void set_unrolled_casts(bool unrolled) { unrolled_casts_ = unrolled; }
  // The same of 8-bit casts that write a transpose.
  void set_generated_transposes(bool generated) { generated_transposes_ = generated; }
  // From now on what kernels write into tensors of a slot or micro-batch is filled first, once a body
  // (training.fill_uninitialized): by norms, attention, casts and dropout, and by `products`.
  struct Fills {
    bool any = false, norms = false, products = false;
  };
  void set_fills(const Fills& fills) { fills_ = fills; }
  const Fills& fills() const { return fills_; }
  // Where the current body, and that of its weight parts, ends.
  struct Mark {
    BodyId body = -1, weight_body = -1;
    std::size_t ops = 0, weight_ops = 0;
  };
  Mark mark() const;
  // The buffers, none of them a view, that the current body's ops since then write.
  std::set<BufferId> written_since(const Mark& since) const;
  // What was computed, or traded between ranks of one layer, since then in those bodies is launched as a graph: with
  // the last of each body's ops.
  void capture(const Mark& since);
  // All bodies but `rest`, the step's last, are one graph. Its launch is counted with the first op of that: what is
  // launched with it comes after none of the step.
  void capture_all_but(BodyId rest);
  // What was added last is made by so many kernels in the place of one, which move `passes` besides.
  void takes_kernels(std::int64_t kernels, const program::Passes& passes) {
    program::Op& op = role_.bodies[static_cast<std::size_t>(body_)].ops.back();
    op.launches += kernels - 1;
    op.passes.read += passes.read;
    op.passes.written += passes.written;
  }

  // Bytes that what was added last writes.
  std::int64_t written_last() const {
    std::int64_t bytes = 0;
    for (const Operand& w : role_.bodies[static_cast<std::size_t>(body_)].ops.back().writes)
      bytes += buffer(w.buffer).bytes();
    return bytes;
  }

  // What was added last is made inside a neighbour's kernel, which moves `passes` for it.
  void takes_no_kernel(const program::Passes& passes) {
    program::Op& op = role_.bodies[static_cast<std::size_t>(body_)].ops.back();
    op.fused = true, op.launches = 0, op.passes = passes;
  }

  OpRef last_op() const {
    return {body_, static_cast<int>(role_.bodies[static_cast<std::size_t>(body_)].ops.size()) - 1};
  }
  OpRef last_compute_op() const {
    return drafts_[static_cast<std::size_t>(body_)].last_compute;
  }  // of the current body
  // `op` also waits for `earlier` (the latest instance before it in program order).
  void after(OpRef op, OpRef earlier);
  // `op` also waits for the end of whatever the compute stream was given before this slot.
  void after_compute(OpRef op) { after_compute_.push_back(op); }

  // Derives waits and releases from the operands over `slots` (a step short enough to analyse that shows every
  // neighbourhood of bodies), then gives the role with the full slot order.
  program::Role finish(const std::vector<program::Slot>& sample_slots, std::vector<program::Slot> slots) &&;

 private:
  // What is known of a body while ops are added to it.
  struct Draft {
    std::unordered_map<std::string, int> names;  // how often each was given
    OpRef last_compute;
    std::set<BufferId> written;  // bases
  };

  bool fills(const program::OpShape& shape) const;
  void fill_new(const std::string& name, const program::OpShape& shape, const std::vector<Operand>& reads,
                const std::vector<Operand>& writes);

  Fills fills_;
  std::int64_t fp8_product_launches_ = 1;
  bool row_scales_ = false, unrolled_casts_ = false, generated_transposes_ = false;
  std::int64_t from_step_ = 0, until_step_ = program::Op::kNoEnd;
  program::StreamId stream_id(const std::string& name, program::StreamKind kind);
  // The orderings by hand of ops of `from` hold for their copies, too: `copied` gives a copy's place, op -1 without
  // one.
  template <class Copied>
  void copy_orderings(BodyId from, Copied copied);
  void note_last_compute();
  std::vector<program::Op> ops_with_own_views(const RoleBuilder& other, BodyId body);
  void order_turns(const std::map<std::pair<std::size_t, BodyId>, BodyId>& made, std::size_t turns);
  BufferId base_of(BufferId id) const;
  std::set<BufferId> used_by(BodyId body) const;
  std::map<BufferId, BufferId> copies_of(const std::set<BufferId>& bases, const std::string& suffix);
  std::map<BufferId, BufferId> own_slot_buffers(BodyId first, BodyId second, const std::string& suffix);
  // Where the body names a buffer of these, it now names the other.
  void substitute(BodyId body, const std::map<BufferId, BufferId>& by);

  program::Role role_;
  std::unordered_map<std::string, BufferId> buffer_ids_;
  std::map<std::string, program::StreamId> stream_ids_;
  std::vector<Draft> drafts_;  // by body
  BodyId body_ = -1, weight_body_ = -1;
  std::vector<std::pair<BodyId, BodyId>> parted_;
  Phase phase_ = Phase::forward;
  std::vector<std::pair<OpRef, OpRef>> after_;
  std::vector<OpRef> after_compute_;
  std::set<BufferId> held_;
};

// While it lives products are PyTorch's own, as a head's are whatever layers multiply with (Megatron-Core,
// core/tensor_parallel/layers.py, linear_with_grad_accumulation_and_async_allreduce).
class NativeProducts {
 public:
  NativeProducts(RoleBuilder& builder, bool native) : builder_(builder), outside_(builder.fills()) {
    if (native) builder.set_fills({outside_.any, outside_.norms, false});
  }
  ~NativeProducts() { builder_.set_fills(outside_); }
  NativeProducts(const NativeProducts&) = delete;
  NativeProducts& operator=(const NativeProducts&) = delete;

 private:
  RoleBuilder& builder_;
  RoleBuilder::Fills outside_;
};

// order_role.cpp: adds to the role the waits that order every conflicting access of two streams (and `extra`: op, what
// it waits for), and the releases of non-persistent instances after their last use, of `held` ones a
// queue of launches later or at their slot's end.
void order_role(program::Role& role, const std::vector<program::Slot>& slots,
                const std::vector<std::pair<OpRef, OpRef>>& extra, const std::set<BufferId>& held);

}  // namespace rehearse::lower
