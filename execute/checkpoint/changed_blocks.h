// Which parts of what a rank keeps have changed since its last checkpoint: each buffer in blocks of kChangedBlock
// bytes, of each of which the checksum (XXH3, 128 bits) of then is known. Takes 16 bytes a block, 1.6% of what is kept,
// and a reading of all of it a checkpoint; nothing of training is told to note what it writes.
#pragma once

#include <cstdint>
#include <vector>

#include "execute/checkpoint/state_file.h"

namespace rehearse::execute {

// A row of an embedding table of hidden size 256 in fp32.
inline constexpr std::int64_t kChangedBlock = 1024;

class ChangedBlocks {
 public:
  // The blocks that are not as they were at the call before, neighbours as one; at the first call all of them.
  std::vector<StateSpan> take(const StateHeader& header, const StatePayload& payload);

 private:
  std::vector<StateDigest> digests_;  // in order
};

}  // namespace rehearse::execute
