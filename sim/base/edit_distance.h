// How many letters apart two words are.
#pragma once

#include <cstddef>
#include <string_view>

namespace rehearse {

// Optimal string alignment: letters changed, added, left out, or swapped with the one beside.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace rehearse
