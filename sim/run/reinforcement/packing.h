// Rows that whole sequences are packed into, none of which is cut: modified first-fit decreasing (Johnson & Garey 1985,
// "A 71/60 theorem for bin packing", J. Complexity 1), which NeMo RL's recipes pack by
// (policy.sequence_packing.algorithm: modified_first_fit_decreasing; nemo_rl/data/packing/algorithms.py). What is left
// of a row is padding, computed as tokens are, and to attention one sequence more.
#pragma once

#include <cstdint>
#include <vector>

namespace rehearse::run {

struct PackedRows {
  std::int64_t rows = 0;
  double squares = 0;  // of the lengths, tokens, of all sequences and of each row's padding
};

// `lengths` in tokens, each from 1 to `row`, of one row.
PackedRows pack_sequences(const std::vector<std::int64_t>& lengths, std::int64_t row);

}  // namespace rehearse::run
