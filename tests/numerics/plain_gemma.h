// A Gemma (1 to 3) trained on one device, written plainly: matrices of doubles, one sequence at a time, and the tape of
// plain_tape.h. It shares nothing with lowering, programs or kernels. Parameters have the global names and shapes of a
// lowered program ("layer0.attention.qkv.weight" is [kv_heads, (heads / kv_heads + 2) * head_dim, hidden]). Each of
// what the three generations have can be there or not. Left out: dropout.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/numerics/plain_tape.h"

namespace rehearse::numerics {

struct GemmaShape {
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn_hidden = 0, vocab = 0;
  std::int64_t window = 0, full_every = 0;  // as GptShape has them
  bool tied = true, scaled_embeddings = false, around_one = false, post_norms = false, head_norms = false;
  double score_cap = 0, logit_cap = 0;
  double score_scale = 1;  // what scores are divided by the root of
  double base = 10000, local_base = 10000;
  // Of layers without a window: linear, llama3 or yarn, by a factor, from so many positions; "": none.
  std::string scaling = {};
  double factor = 1, low = 1, high = 4, trained = 0;
  bool local_scales_alone = false;  // layers with a window have a base of their own, unscaled
};

class PlainGemma : public PlainParameters {
 public:
  using Data = std::function<Sequence(std::int64_t step, std::int64_t index)>;

  PlainGemma(const GemmaShape& shape, const Initial& initial);

  // The mean over all targets; replaces the parameters' gradients by its own.
  double loss_and_gradients(const std::vector<Sequence>& batch);
  // The loss of each step before its update.
  std::vector<double> train(std::int64_t steps, std::int64_t global_batch, const AdamWSettings& settings,
                            const Data& data);

 private:
  double example(const Sequence& sequence, double weight);
  bool local(std::int64_t layer) const {
    return shape_.window > 0 && !(shape_.full_every > 0 && layer % shape_.full_every == shape_.full_every - 1);
  }
  M norm(PlainTape& tape, const M& x, const M& gamma) const;
  M head_norms(PlainTape& tape, const M& qkv, const M& query, const M& key) const;
  M rotated(PlainTape& tape, const M& qkv, double base, bool scaled) const;
  M attention(PlainTape& tape, const M& qkv, std::int64_t window) const;
  M capped(PlainTape& tape, const M& x, double cap) const;

  std::int64_t group() const { return shape_.heads / shape_.kv_heads; }
  // Where in a token's packed qkv head `h`'s query begins, and its key; its value is behind that.
  std::int64_t query_at(std::int64_t h) const { return (h / group() * (group() + 2) + h % group()) * shape_.head_dim; }
  std::int64_t key_at(std::int64_t h) const { return (h / group() * (group() + 2) + group()) * shape_.head_dim; }

  GemmaShape shape_;
};

}  // namespace rehearse::numerics
