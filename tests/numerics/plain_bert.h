// A BERT trained on one device, written plainly: matrices of doubles, one sequence at a time, and a tape that records
// each operation with its derivative. It shares nothing with lowering, programs or kernels. Parameters have the global
// names and shapes of a lowered program ("layer0.attention.qkv.weight" is [heads, 3 * head_dim, hidden]: a head's
// query, key and value); weights are [out, in]. Left out: dropout.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/numerics/plain_tape.h"

namespace rehearse::numerics {

struct BertShape {
  std::int64_t layers = 0, hidden = 0, heads = 0, head_dim = 0, ffn_hidden = 0, vocab = 0, max_seq_len = 0,
               segments = 2;
};

// A sequence as it is shown, and what is to be found: the tokens at `places`, and whether the second segment is from
// elsewhere (1).
struct BertExample {
  std::vector<std::int32_t> tokens, segments, places, targets;
  std::int32_t label = 0;
};

class PlainBert : public PlainParameters {
 public:
  using Data = std::function<BertExample(std::int64_t step, std::int64_t index)>;

  PlainBert(const BertShape& shape, const Initial& initial);

  // The mean over all predicted tokens plus the mean over all sequences; replaces the parameters' gradients by its own.
  double loss_and_gradients(const std::vector<BertExample>& batch);
  // The loss of each step before its update.
  std::vector<double> train(std::int64_t steps, std::int64_t global_batch, const AdamWSettings& settings,
                            const Data& data);

 private:
  double example(const BertExample& example, double token_weight, double sequence_weight);

  BertShape shape_;
};

}  // namespace rehearse::numerics
