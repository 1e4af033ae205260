// A split parameter is runs of the whole one (all dimensions before the split one give a run each), so a part is drawn
// run by run.
#include "execute/initial_values.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "sim/base/check.h"
#include "sim/base/random.h"

namespace rehearse::execute {
namespace {

// FNV-1a, 64 bits (Fowler, Noll, Vo).
std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

}  // namespace

void draw_values(program::Init::Kind kind, double scale, std::string_view name, std::int64_t seed, std::int64_t first,
                 std::int64_t count, float* out) {
  using Kind = program::Init::Kind;
  const std::uint64_t key = mix_key(static_cast<std::uint64_t>(seed), hash_of(name));
  for (std::int64_t i = 0; i < count; ++i) {
    if (kind == Kind::first) {
      out[i] = first + i == 0 ? static_cast<float>(scale) : 0.0F;
      continue;
    }
    if (kind == Kind::none || kind == Kind::zeros || kind == Kind::ones) {
      out[i] = kind == Kind::ones ? 1.0F : 0.0F;
      continue;
    }
    const auto words = Philox::draw(key, static_cast<std::uint64_t>(first + i));
    const double u = (words[0] + 1.0) * 0x1p-32;
    if (kind == Kind::uniform) {
      out[i] = static_cast<float>((2 * u - 1) * scale);
      continue;
    }
    const double angle = 2 * std::numbers::pi * (words[1] * 0x1p-32);
    out[i] = static_cast<float>(scale * std::sqrt(-2 * std::log(u)) * std::cos(angle));
  }
}

std::vector<Run> runs_of(const program::Buffer& buffer, int coordinate) {
  const program::Init& init = buffer.init;
  if (init.tensor_dim < 0) return {{0, 0, buffer.elements()}};
  const auto dim = static_cast<std::size_t>(init.tensor_dim);
  REHEARSE_CHECK(dim < buffer.shape.size() && init.global_shape.size() == buffer.shape.size(),
                 "{}: shape and whole shape", buffer.name);
  std::int64_t outer = 1, inner = 1;
  for (std::size_t d = 0; d < buffer.shape.size(); ++d) {
    if (d < dim) outer *= buffer.shape[d];
    if (d > dim) inner *= buffer.shape[d];
  }
  const std::int64_t own = buffer.shape[dim] * inner, whole = init.global_shape[dim] * inner;
  std::vector<Run> runs;
  for (std::int64_t o = 0; o < outer; ++o) runs.push_back({o * own, o * whole + coordinate * own, own});
  return runs;
}

void draw_part(const program::Buffer& buffer, int coordinate, std::int64_t seed, std::int64_t first, std::int64_t count,
               float* out) {
  for (const Run& run : runs_of(buffer, coordinate)) {
    const std::int64_t begin = std::max(run.local, first), end = std::min(run.local + run.count, first + count);
    if (begin >= end) continue;
    draw_values(buffer.init.kind, buffer.init.scale, buffer.name, seed, run.global + begin - run.local, end - begin,
                out + (begin - first));
  }
}

}  // namespace rehearse::execute
