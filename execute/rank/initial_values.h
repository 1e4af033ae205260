// The numbers a model begins with. What is drawn depends only on the run's seed, the parameter's name and the element's
// index in the whole parameter (Philox, sim/base/random.h), so that every split begins alike:
//   key = mix_key(seed, fnv1a(name)), counter = index; uniform: (2 u - 1) * scale, u from the first word; normal:
//   Box-Muller of the first two words (normal_draws.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/program.h"

namespace rehearse::execute {

// Elements [first, first + count) of a whole parameter, in its row-major order.
void draw_values(program::Init::Kind kind, double scale, std::string_view name, std::int64_t seed, std::int64_t first,
                 std::int64_t count, float* out);

// Elements [first, first + count) of this rank's part of the parameter that `buffer` is (its name, init and shape);
// `coordinate` is the rank's on the tensor axis, `place` its place in its expert group.
void draw_part(const program::Buffer& buffer, int coordinate, std::int64_t seed, std::int64_t first, std::int64_t count,
               float* out, int place = 0);

// Of the whole parameter that `buffer` is, or is a part of.
const std::string& parameter_name(const program::Buffer& buffer);

// Where the rank's part of a parameter lies in the whole: extents of consecutive elements.
struct Extent {
  std::int64_t local, global, count;
};
std::vector<Extent> extents_of(const program::Buffer& buffer, int coordinate, int place = 0);

}  // namespace rehearse::execute
