// Scales of whole tensors (recipes delayed and tensorwise, and 4 bits) in programs that are performed. Simulated
// programs leave them out: they are 4 bytes of each copy, and of delayed scaling a history of 4 KiB for each tensor
// that is cast.
//
// A copy has a buffer beside it, f32 [1], of the same lifetime: what its elements are multiplied by. The cast writes it
// and products read it, as their last two operands. Delayed scaling keeps three tables for all tensors that a stage
// casts: the largest value since the last update, those of the last 1,024 updates, and the largest of these, which the
// next cast's scale is made of. (Transformer Engine 2.x, common/recipe: DelayedScaling, amax_history_len = 1024,
// amax_compute_algo = "max", margin = 0; a scale is 1 before there is any history.) What backward casts once more,
// recomputed activations and weights that ZeRO-3 gathers again, has the scale it had in its micro-batch's forward, for
// which each forward keeps the third table (get_old_fp8_meta_tensors_for_recompute of pytorch/fp8.py does that).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/lower/role_builder.h"
#include "sim/lower/stage.h"

namespace rehearse::lower {

class Fp8Scales {
 public:
  Fp8Scales(const Context& context, RoleBuilder& builder) : context_(context), builder_(builder) {}

  // Delayed scaling's tables, for so many tensors; of others nothing.
  void declare(std::int64_t tensors);
  // What a cast of `tensor` reads and writes besides. `copies`: those of its results that there are; the scale lives as
  // long as the one that lives longest.
  void of_cast(const std::string& tensor, const std::vector<BufferId>& copies, std::vector<Operand>& reads,
               std::vector<Operand>& writes);
  // The same of a norm, which simulated has neither.
  void of_norm(const std::string& tensor, BufferId out, std::vector<Operand>& reads, std::vector<Operand>& writes) {
    if (performed()) of_cast(tensor, {out}, reads, writes);
  }
  // `copy` has been made of `other`, element by element.
  void share(BufferId copy, BufferId other);
  // What a product reads besides its first two operands.
  void of_product(std::vector<Operand>& reads) const;
  // Casts from now on are of this chunk's forward, or of its backward.
  void begin(int chunk, bool forward) { chunk_ = chunk, forward_ = forward; }
  // At the end of either.
  void emit_update();

 private:
  // Of whole tensors: alone, or in 4 bits besides those of blocks.
  bool has_scales() const { return !context_.scales_in_copies() || context_.scenario.training.four_bits(); }
  bool performed() const { return context_.scenario.purpose == plan::Purpose::perform; }
  BufferId slot(const std::string& tensor, BufferId table, const std::string& what);
  // What the next cast's scale is made of: now, or where backward casts what forward did then.
  BufferId window_of(const std::string& tensor);

  const Context& context_;
  RoleBuilder& builder_;
  BufferId amax_ = -1, history_ = -1, window_ = -1;
  int chunk_ = 0;
  bool forward_ = true;
  std::map<int, BufferId> kept_;                                 // of a micro-batch's forward, by chunk
  std::map<std::string, int> in_forward_;                        // the chunk of what forward casts
  BodyId cast_in_ = -1;                                          // the last body with a cast
  std::map<std::string, std::int64_t> slots_;                    // by tensor
  std::map<std::pair<BufferId, std::int64_t>, BufferId> views_;  // of a table, by slot
  std::map<BufferId, BufferId> inverses_;                        // by copy
};

}  // namespace rehearse::lower
