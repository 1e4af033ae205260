// A T5 trained on one device, written plainly: matrices of doubles, one example at a time, and a tape that records each
// operation with its derivative. It shares nothing with lowering, programs or kernels. Parameters have the global names
// and shapes of a lowered program ("layer0.attention.qkv.weight" is [heads, 3 * head_dim, hidden]); weights are [out,
// in]. Left out: dropout.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/numerics/plain_tape.h"

namespace rehearse::numerics {

struct T5Shape {
  std::int64_t encoder_layers = 0, decoder_layers = 0, hidden = 0, heads = 0, head_dim = 0, ffn_hidden = 0, vocab = 0,
               buckets = 0, distance = 0;
  bool gated = false, tied = true;
  // Megatron's: LayerNorms, biases, and a table of so many positions in the place of biases by distance; 0: no table.
  bool biased = false, layer_norms = false;
  std::int64_t positions = 0;
};

struct T5Example {
  std::vector<std::int32_t> tokens, decoder_tokens, targets;
};

class PlainT5 : public PlainParameters {
 public:
  using Data = std::function<T5Example(std::int64_t step, std::int64_t index)>;

  PlainT5(const T5Shape& shape, const Initial& initial);

  // The mean over all targets; replaces the parameters' gradients by its own.
  double loss_and_gradients(const std::vector<T5Example>& batch);
  // The loss of each step before its update.
  std::vector<double> train(std::int64_t steps, std::int64_t global_batch, const AdamWSettings& settings,
                            const Data& data);

 private:
  double example(const T5Example& example, double weight);

  T5Shape shape_;
};

// The bucket of a key that stands `behind` tokens behind the query, as the paper's authors' words have it: distances
// up to half of a direction's buckets one by one, then as many again in logarithmic steps up to `farthest`.
std::int64_t t5_bucket(std::int64_t behind, std::int64_t buckets, std::int64_t farthest, bool both);

}  // namespace rehearse::numerics
