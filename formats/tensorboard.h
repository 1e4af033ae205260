// Event files, which TensorBoard shows as curves: scalars by name and step. A file is a list of records, each its
// length as 8 bytes, a checksum of these, an Event of protocol buffers and a checksum of that, all little-endian
// (tensorflow/core/lib/io/record_writer.h; tensorflow/core/util/event.proto, framework/summary.proto).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rehearse::formats {

// CRC-32C (Castagnoli, RFC 3720, appendix B.4): of "123456789" 0xE3069283.
std::uint32_t crc32c(std::string_view bytes);

struct ScalarEvent {
  double wall_time_s = 0;  // since 1970
  std::int64_t step = 0;
  std::vector<std::pair<std::string, double>> scalars;  // written as fp32, as TensorBoard's own writers do
};

// The whole file, whose first event says its version. TensorBoard takes any file whose name has "tfevents" in it.
std::string tensorboard_events(double began_s, const std::vector<ScalarEvent>& events);

}  // namespace rehearse::formats
