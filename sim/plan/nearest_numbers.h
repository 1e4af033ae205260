// Numbers that would do, for messages about one that does not.
#pragma once

#include <cstdint>
#include <string>

namespace rehearse::plan {

// "9 or 12": the multiples of `step` around `value`, where there are any below.
std::string nearest_multiples(std::int64_t value, std::int64_t step);
// The divisors of `whole` around `value`, up to `most`.
std::string nearest_divisors(std::int64_t whole, std::int64_t value, std::int64_t most);

}  // namespace rehearse::plan
