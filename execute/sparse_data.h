// Examples without end for lists of layers that read tokens or sparse features, and for yes or no, made from the seed
// so that there is something to learn. Dense features are uniform in [-1, 1). A sparse feature's rows, and tokens, are
// drawn with a probability in proportion to about 1 / (1 + number), as clicks and words are. Output k of an example is
//   s_k = (sum of w_k(feature or token, row) over the rows) / sqrt(rows) + (W_k x) / sqrt(width) + 0.1 e,
// w and W uniform in [-1, 1) and the seed's, e likewise and the example's. Numbers are s_k, a yes is s_k > 0, and the
// class is the k of the largest.
#pragma once

#include <cstdint>
#include <memory>

#include "execute/data.h"

namespace rehearse::execute {

// Whether examples of this model are these.
bool reads_sparse_data(const model::Model& model);
std::unique_ptr<Data> make_sparse_data(const model::Model& model, std::int64_t seed);

}  // namespace rehearse::execute
