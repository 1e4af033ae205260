// A number with the range it may lie in.
#pragma once

namespace rehearse::cost {

struct Range {
  double value = 1, low = 1, high = 1;
};

}  // namespace rehearse::cost
