// What the page's script reads: the bars of every timeline and the losses, packed. Internal to the report page.
//
// The bytes are: length of the header (uint32, little-endian), the header (JSON, padded with spaces to a multiple of
// 4), then for each run and row of the header five uint32 arrays of as many entries as the row has bars: start minus
// the bar before's (the first bar's: minus first_s), duration, text, micro-batch + 1, ops. Times count the row's own
// unit, the smallest power of ten picoseconds in which they fit 32 bits: a second's bubble and a microsecond's kernel
// are each as exact as can be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/html/timeline.h"

namespace rehearse::reports::html {

struct Series {
  std::string label;
  const result::StoredResult* run = nullptr;
  Timeline timeline;
};

std::string payload(const std::vector<Series>& series);  // as above
std::string gzip(std::string_view bytes);                // RFC 1952; equal bytes give equal bytes
std::string base64(std::string_view bytes);              // RFC 4648, section 4

}  // namespace rehearse::reports::html
