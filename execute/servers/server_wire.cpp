// See server_wire.h.
#include "execute/servers/server_wire.h"

#include "sim/base/half.h"

namespace rehearse::execute {

ShardBytes::ShardBytes(const program::Role& worker, const std::vector<account::ServerParameter>& parameters, int server,
                       program::BufferId account::ServerParameter::*which) {
  for (const account::ServerParameter& p : parameters) {
    if (p.server != server) continue;
    const DType type = worker.buffers[static_cast<std::size_t>(p.*which)].dtype;
    parts_.push_back({type, p.first, p.elements, bytes_});
    bytes_ += p.elements * size_of(type);
  }
}

void ShardBytes::pack(std::span<const float> numbers, char* to) const {
  for (const Part& p : parts_) from_float(p.type, numbers.data() + p.first, p.elements, to + p.offset);
}

void ShardBytes::unpack(const char* from, std::span<float> numbers) const {
  for (const Part& p : parts_) to_float(p.type, from + p.offset, p.elements, numbers.data() + p.first);
}

}  // namespace rehearse::execute
