// A model of layers with one branch each (model.layer_pattern) trained on one device, written plainly: matrices of
// doubles, one sequence at a time, the tape of plain_tape.h, and Mamba-2 mixers as the recurrence that they are, token
// after token, without chunks. It shares nothing with lowering, programs or kernels. Parameters have the global names
// and shapes of a lowered program ("layer0.mixer.in.weight" is [groups, rows of a group's z, x, B, C and steps,
// hidden]). Left out: dropout, experts, biases.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/numerics/plain_tape.h"

namespace rehearse::numerics {

struct HybridShape {
  std::string pattern;
  std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn_hidden = 0, vocab = 0;
  std::int64_t mamba_heads = 0, mamba_head_dim = 0, groups = 1, state = 0, conv = 4;
  bool tied = false;
};

class PlainHybrid : public PlainParameters {
 public:
  PlainHybrid(const HybridShape& shape, const Initial& initial);

  double loss_and_gradients(const std::vector<Sequence>& batch);
  std::vector<double> train(std::int64_t steps, std::int64_t global_batch, const AdamWSettings& settings,
                            const std::function<Sequence(std::int64_t step, std::int64_t index)>& data);

 private:
  double example(const Sequence& sequence, double weight);
  M mixer(PlainTape& tape, Used& of, const std::string& name, const M& x) const;
  M recurrence(PlainTape& tape, Used& of, const std::string& name, const M& in, const M& xbc) const;
  M attention(PlainTape& tape, Used& of, const std::string& name, const M& x) const;
  std::int64_t group_heads() const { return s_.mamba_heads / s_.groups; }
  std::int64_t inner() const { return group_heads() * s_.mamba_head_dim; }  // of a group
  std::int64_t channels() const { return inner() + 2 * s_.state; }
  std::int64_t width() const { return inner() + channels() + group_heads(); }

  HybridShape s_;
};

}  // namespace rehearse::numerics
