// How much attention each micro-batch of a rank is, where sequences are packed of documents: what its flash kernels
// take over what they cost for equal documents (program::Attention::document), by rank, step and micro-batch. A
// kernel's time follows its pairs of queries and keys; that short documents use a device's tiles worse than long ones
// is left out.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/noise.h"

namespace rehearse::engine {

struct AttentionLoads {
  std::int32_t steps = 0, micro_batches = 0;
  std::vector<std::int32_t> row_of;       // by rank, in rows; ranks of one row have the same sequences
  std::vector<std::vector<Factor>> rows;  // [step, micro-batch]; none is the same as another

  // Steps after the last begin again with the first.
  Factor of(std::int32_t rank, std::int32_t step, std::int32_t micro_batch) const {
    const auto& row = rows[static_cast<std::size_t>(row_of[static_cast<std::size_t>(rank)])];
    return row[static_cast<std::size_t>(step % steps * micro_batches + micro_batch)];
  }
};

}  // namespace rehearse::engine
