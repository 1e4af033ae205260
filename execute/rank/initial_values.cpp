// A split parameter is extents of the whole one (all dimensions before the split one give an extent each), so a part is
// drawn extent by extent.
#include "execute/rank/initial_values.h"

#include <algorithm>
#include <cmath>

#include "execute/rank/normal_draws.h"
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
  if (kind == Kind::normal) return normal_values(key, static_cast<std::uint64_t>(first), count, scale, out);
  for (std::int64_t i = 0; i < count; ++i) {
    if (kind == Kind::first) {
      out[i] = first + i == 0 ? static_cast<float>(scale) : 0.0F;
      continue;
    }
    if (kind == Kind::none || kind == Kind::zeros || kind == Kind::ones) {
      out[i] = kind == Kind::ones ? 1.0F : 0.0F;
      continue;
    }
    const double u = (Philox::draw(key, static_cast<std::uint64_t>(first + i))[0] + 1.0) * 0x1p-32;
    if (kind == Kind::decay) {
      out[i] = static_cast<float>(std::log(1 + 15 * u));
    } else if (kind == Kind::step) {
      const double step = 0.001 * std::pow(100.0, u);
      out[i] = static_cast<float>(step + std::log(-std::expm1(-step)));  // log(e^step - 1)
    } else {
      out[i] = static_cast<float>((2 * u - 1) * scale);
    }
  }
}

namespace {

// The rank's part as `outer` extents of `own` elements, `whole` apart in the parameter, the first at `begin`.
struct Layout {
  std::int64_t outer = 1, own = 0, whole = 0, begin = 0;

  Layout(const program::Buffer& buffer, int coordinate, int place) : own(buffer.elements()), whole(own) {
    const program::Init& init = buffer.init;
    begin = init.first;
    if (init.spread.bits() != 0) {  // the experts before ours
      std::int64_t before = static_cast<std::int64_t>(place) * buffer.shape.front();
      for (std::size_t d = 1; d < init.global_shape.size(); ++d) before *= init.global_shape[d];
      begin += before;
    }
    if (init.key_ranks > 0) {  // the key-value heads before ours
      std::int64_t before = static_cast<std::int64_t>(coordinate / init.key_ranks) * buffer.shape.front();
      for (std::size_t d = 1; d < init.global_shape.size(); ++d) before *= init.global_shape[d];
      begin += before;
      coordinate %= init.key_ranks;
      REHEARSE_CHECK(buffer.shape.front() == 1, "{}: of several key-value heads", buffer.name);
    }
    if (init.tensor_dim < 0) return;
    const auto dim = static_cast<std::size_t>(init.tensor_dim);
    REHEARSE_CHECK(dim < buffer.shape.size() && init.global_shape.size() == buffer.shape.size(),
                   "{}: shape and whole shape", buffer.name);
    std::int64_t inner = 1;
    for (std::size_t d = 0; d < buffer.shape.size(); ++d) {
      if (d < dim) outer *= buffer.shape[d];
      if (d > dim) inner *= buffer.shape[d];
    }
    own = buffer.shape[dim] * inner;
    whole = init.global_shape[dim] * inner;
    begin += coordinate * own;
  }
  Extent extent(std::int64_t index) const { return {index * own, index * whole + begin, own}; }
};

}  // namespace

const std::string& parameter_name(const program::Buffer& buffer) {
  return buffer.init.whole.empty() ? buffer.name : buffer.init.whole;
}

std::vector<Extent> extents_of(const program::Buffer& buffer, int coordinate, int place) {
  const Layout layout(buffer, coordinate, place);
  std::vector<Extent> extents;
  for (std::int64_t o = 0; o < layout.outer; ++o) extents.push_back(layout.extent(o));
  return extents;
}

void draw_part(const program::Buffer& buffer, int coordinate, std::int64_t seed, std::int64_t first, std::int64_t count,
               float* out, int place) {
  const Layout layout(buffer, coordinate, place);
  if (layout.own == 0) return;
  for (std::int64_t o = first / layout.own; o < layout.outer && o * layout.own < first + count; ++o) {
    const Extent extent = layout.extent(o);
    const std::int64_t begin = std::max(extent.local, first),
                       end = std::min(extent.local + extent.count, first + count);
    draw_values(buffer.init.kind, buffer.init.scale, parameter_name(buffer), seed, extent.global + begin - extent.local,
                end - begin, out + (begin - first));
  }
}

}  // namespace rehearse::execute
