// A size, or a percentage of a whole that is known only later: "2GiB", "5%".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sim/base/units.h"

namespace rehearse {

struct SizeOrShare {
  Bytes size;
  double percent = 0;           // 0 to below 100; the size is 0 where it is above 0
  Bytes of(Bytes whole) const;  // rounded up
  friend bool operator==(const SizeOrShare&, const SizeOrShare&) = default;
};

// nullopt if it is neither: as parse_bytes, or a number from 0 to below 100 and '%'.
std::optional<SizeOrShare> parse_size_or_share(std::string_view text);
std::string text_of(const SizeOrShare& value);  // "5%", "2147483648B"

}  // namespace rehearse
