#include "sim/lower/parallel/fp8_scales.h"

#include <algorithm>

#include "sim/base/check.h"

namespace rehearse::lower {

using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::StreamKind;

void Fp8Scales::declare(std::int64_t tensors) {
  if (!context_.delayed_scaling()) return;
  // Transformer Engine keeps three of each forward product and two of each backward one (input, weight, output;
  // gradients of output and input), and a block has four; all of a stage are as many at least.
  constexpr std::int64_t kOfBlock = 20;
  const std::int64_t n = std::max(kOfBlock * context_.model().layers / context_.stages, performed() ? tensors : 0);
  const auto table = [&](const std::string& name, std::int64_t elements) {
    return builder_.add_buffer({name,
                                DType::f32,
                                {elements},
                                program::BufferClass::workspace,
                                Lifetime::persistent,
                                -1,
                                0,
                                0,
                                {},
                                {program::Init::Kind::zeros, 0, {}, -1}});
  };
  amax_ = table("fp8_amax", n);
  if (!performed()) return;
  history_ = table("fp8_amax.history", n * (program::kFp8History + 1));
  window_ = table("fp8_amax.window", n);
}

BufferId Fp8Scales::slot(const std::string& tensor, BufferId table, const std::string& what) {
  const std::int64_t n = slots_.try_emplace(tensor, static_cast<std::int64_t>(slots_.size())).first->second;
  REHEARSE_CHECK(n < builder_.buffer(table).elements(), "{} tensors are cast, one of them {}", n + 1, tensor);
  const auto [made, is_new] = views_.try_emplace({table, n}, -1);
  if (is_new) made->second = builder_.view(tensor + what, table, n, {1});
  return made->second;
}

BufferId Fp8Scales::window_of(const std::string& tensor) {
  if (forward_) in_forward_[tensor] = chunk_;
  const auto found = in_forward_.find(tensor);
  const bool again = !forward_ && found != in_forward_.end() && found->second == chunk_;
  if (!again || !kept_.contains(chunk_)) return slot(tensor, window_, ".fp8_window");
  return slot(tensor, kept_.at(chunk_), ".fp8_window.of_forward");
}

void Fp8Scales::of_cast(const std::string& tensor, const std::vector<BufferId>& copies, std::vector<Operand>& reads,
                        std::vector<Operand>& writes) {
  cast_in_ = builder_.current_body();
  if (!performed()) {
    if (amax_ >= 0) writes.push_back({amax_});
    return;
  }
  if (!has_scales()) return;
  if (amax_ >= 0) {
    reads.push_back({window_of(tensor)});
    writes.push_back({slot(tensor, amax_, ".fp8_largest")});
  }
  // Lifetimes are ordered from the longest.
  const auto lives = [&](BufferId id) { return builder_.buffer(id).lifetime; };
  const BufferId longest =
      *std::min_element(copies.begin(), copies.end(), [&](BufferId a, BufferId b) { return lives(a) < lives(b); });
  const program::Buffer copy = builder_.buffer(longest);
  const auto [made, is_new] = inverses_.try_emplace(longest, -1);
  if (is_new) {
    program::Buffer inverse{copy.name + ".inverse", DType::f32, {1}, copy.cls, copy.lifetime, -1, 0, 0, {}, copy.init};
    if (inverse.cls == program::BufferClass::parameter) inverse.cls = program::BufferClass::workspace;
    made->second = builder_.add_buffer(std::move(inverse));
  }
  const BufferId scale = inverses_.at(longest);
  for (const BufferId of : copies) inverses_[of] = scale;
  writes.push_back({scale});
}

void Fp8Scales::share(BufferId copy, BufferId other) {
  if (const auto found = inverses_.find(other); found != inverses_.end()) inverses_[copy] = found->second;
}

void Fp8Scales::of_product(std::vector<Operand>& reads) const {
  if (!performed() || !has_scales()) return;
  for (const std::size_t i : {0U, 1U}) {
    const BufferId of = reads.at(i).buffer;
    const program::Buffer& b = builder_.buffer(of);
    if (!is_narrow(b.dtype)) return;
    const auto found = inverses_.find(b.is_view() ? b.base : of);
    REHEARSE_CHECK(found != inverses_.end(), "{} has no scale", b.name);
    reads.push_back({found->second});
  }
}

// Transformer Engine 2.x, pytorch/fp8.py: reduce_and_update_fp8_tensors, when the outermost context of a forward ends
// and when the first module's backward does; one all-reduce of all largest values, then one kernel for all scales.
// Where nothing was cast, as in a chunk of the embedding alone, there is nothing to reduce.
void Fp8Scales::emit_update() {
  if (amax_ < 0 || cast_in_ != builder_.current_body()) return;
  const std::int64_t n = builder_.buffer(amax_).elements();
  if (context_.groups.amax >= 0) {
    Collective reduce{CollectiveKind::all_reduce, context_.groups.amax, n};
    reduce.reduce = program::ReduceOp::max;
    builder_.op_on("amax", StreamKind::data, "fp8_amax.all_reduce", reduce, DType::f32, {{amax_}}, {{amax_}});
  }
  std::vector<Operand> tables{{amax_}};
  if (performed()) tables = {{amax_}, {history_}, {window_}};
  std::vector<Operand> written = tables;
  if (performed() && forward_ && !context_.plan().forward_only) {
    kept_[chunk_] = builder_.activation(builder_.here("fp8_amax.window"), DType::f32, {n}, Lifetime::micro_batch);
    written.push_back({kept_[chunk_]});
  }
  builder_.op("fp8_scale_update", Elementwise{ElementwiseFn::fp8_scale_update, n}, DType::f32, tables, written);
}

}  // namespace rehearse::lower
