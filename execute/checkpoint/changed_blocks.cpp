// See changed_blocks.h.
#include "execute/checkpoint/changed_blocks.h"

#include <algorithm>

namespace rehearse::execute {

std::vector<StateSpan> ChangedBlocks::take(const StateHeader& header, const StatePayload& payload) {
  const bool first = digests_.empty();
  std::vector<StateSpan> changed;
  std::size_t block = 0;
  for (const StateBuffer& buffer : header.buffers) {
    const std::int64_t end = buffer.offset + buffer.elements * size_of(buffer.type);
    for (std::int64_t at = buffer.offset; at < end; at += kChangedBlock, ++block) {
      const std::int64_t bytes = std::min(kChangedBlock, end - at);
      const StateDigest digest = digest_of(payload(at, bytes), bytes);
      if (first)
        digests_.push_back(digest);
      else if (digests_[block] == digest)
        continue;
      digests_[block] = digest;
      if (!changed.empty() && changed.back().offset + changed.back().bytes == at)
        changed.back().bytes += bytes;
      else
        changed.push_back({at, bytes});
    }
  }
  return changed;
}

}  // namespace rehearse::execute
