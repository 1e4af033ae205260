// Gradients as they go over the wire (sim/base/gradient_code.h). Values are selected by one thread, chunks quantised by
// several; every chunk is one thread's, and what is drawn at random is drawn by place, so no result depends on the
// number of threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "kernels/cpu/cpu_kernels.h"
#include "sim/base/random.h"

namespace rehearse::kernels::cpu {
namespace {

enum class Drawn : std::uint64_t { places = 0x706c61636573, rounding = 0x726f756e64 };

std::uint64_t draw_key(const GradientDraw& d, Drawn what) {
  const std::uint64_t of_bucket = mix_key(mix_key(d.seed, static_cast<std::uint64_t>(what)), d.site);
  return mix_key(mix_key(of_bucket, d.step), what == Drawn::rounding ? d.member : 0);
}

std::uint32_t word(std::uint64_t key, std::int64_t i) {
  return Philox::draw(key, static_cast<std::uint64_t>(i) / 4)[static_cast<std::size_t>(i % 4)];
}

// The `kept` places with the least of `rank_of`, of equal ones the first, in ascending order.
template <class RankOf>
void least(const GradientCode& c, const RankOf& rank_of, std::vector<std::uint64_t>& all,
           std::vector<std::int32_t>& places) {
  const auto n = static_cast<std::size_t>(c.elements), k = static_cast<std::size_t>(c.kept);
  all.resize(n);
  for (std::size_t i = 0; i < n; ++i) all[i] = std::uint64_t{rank_of(i)} << 32 | i;
  if (k < n) std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(k), all.end());
  places.resize(k);
  for (std::size_t j = 0; j < k; ++j) places[j] = static_cast<std::int32_t>(all[j] & 0xFFFFFFFFU);
  std::sort(places.begin(), places.end());
}

std::uint32_t magnitude(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits & 0x7FFFFFFFU;
}

struct Packed {
  Packed(const GradientCode& c, std::uint8_t* bytes)
      : codes(bytes),
        scales(reinterpret_cast<float*>(bytes + c.code_bytes())),
        places(reinterpret_cast<std::int32_t*>(scales + c.scales())) {}
  std::uint8_t* codes;
  float* scales;
  std::int32_t* places;
};

struct PackedIn {
  PackedIn(const GradientCode& c, const std::uint8_t* bytes)
      : codes(bytes),
        scales(reinterpret_cast<const float*>(bytes + c.code_bytes())),
        places(reinterpret_cast<const std::int32_t*>(scales + c.scales())) {}
  const std::uint8_t* codes;
  const float* scales;
  const std::int32_t* places;
};

float decoded(const GradientCode& c, const PackedIn& p, std::int64_t j) {
  if (!c.quantised()) return reinterpret_cast<const float*>(p.codes)[j];
  const std::int64_t at = j * c.bits;
  const int code = p.codes[at / 8] >> (at % 8) & ((1 << c.bits) - 1);
  const std::int64_t chunk = j / c.chunk;
  if (c.bits == 1) return code != 0 ? p.scales[chunk] : -p.scales[chunk];
  return p.scales[2 * chunk + 1] + static_cast<float>(code) * p.scales[2 * chunk];
}

void put_code(const GradientCode& c, std::uint8_t* codes, std::int64_t j, int code) {
  const std::int64_t at = j * c.bits;
  std::uint8_t& byte = codes[at / 8];
  byte = static_cast<std::uint8_t>(at % 8 == 0 ? code : byte | code << (at % 8));
}

// Values [begin, end) of the chunk that has these scales.
void quantise(const GradientCode& c, std::uint64_t key, std::int64_t begin, std::int64_t end, const float* v,
              std::uint8_t* codes, float* scales) {
  if (c.bits == 1) {
    double sum = 0;
    for (std::int64_t j = begin; j < end; ++j) sum += static_cast<double>(std::abs(v[j]));
    scales[0] = static_cast<float>(sum / static_cast<double>(end - begin));
    for (std::int64_t j = begin; j < end; ++j) put_code(c, codes, j, std::signbit(v[j]) ? 0 : 1);
    return;
  }
  float low = v[begin], high = v[begin];
  bool finite = true;
  for (std::int64_t j = begin; j < end; ++j) {
    finite = finite && std::isfinite(v[j]);
    low = std::min(low, v[j]), high = std::max(high, v[j]);
  }
  const int most = (1 << c.bits) - 1;
  // What is not a number stays none: whoever reads it sees that the step is spoilt.
  scales[0] = finite ? (high - low) / static_cast<float>(most) : std::numeric_limits<float>::quiet_NaN();
  scales[1] = low;
  for (std::int64_t j = begin; j < end; ++j) {
    const float exact = scales[0] > 0 ? (v[j] - low) / scales[0] : 0.0F;
    const float rounded = c.stochastic ? std::floor(exact + Philox::uniform(word(key, j))) : std::nearbyint(exact);
    put_code(c, codes, j, static_cast<int>(std::clamp(rounded, 0.0F, static_cast<float>(most))));
  }
}

}  // namespace

void CpuKernels::compress(const GradientCode& c, const GradientDraw& d, const float* x, float* residual,
                          std::uint8_t* packed) {
  const Packed to(c, packed);
  const std::int64_t n = c.elements, k = c.kept;
  if (residual != nullptr) {
    accumulate(n, x, residual);
    x = residual;
  }
  std::vector<std::int32_t> places;
  std::vector<std::uint64_t> ranked;
  std::vector<float> values;
  const float* v = x;
  if (c.sent != GradientCode::Sent::all) {
    const std::uint64_t key = draw_key(d, Drawn::places);
    if (c.sent == GradientCode::Sent::largest)
      least(
          c, [&](std::size_t i) { return 0x7FFFFFFFU - magnitude(x[i]); }, ranked, places);
    else
      least(
          c, [&](std::size_t i) { return word(key, static_cast<std::int64_t>(i)); }, ranked, places);
    const float factor = c.unbiased ? static_cast<float>(static_cast<double>(n) / static_cast<double>(k)) : 1.0F;
    values.resize(places.size());
    for (std::size_t j = 0; j < places.size(); ++j) values[j] = factor * x[places[j]];
    v = values.data();
    if (c.places() > 0) std::copy(places.begin(), places.end(), to.places);
  }
  if (!c.quantised()) {
    std::memcpy(to.codes, v, static_cast<std::size_t>(k) * sizeof(float));
  } else {
    std::memset(to.codes + (k * c.bits + 7) / 8, 0, static_cast<std::size_t>(c.code_bytes() - (k * c.bits + 7) / 8));
    const std::uint64_t key = draw_key(d, Drawn::rounding);
    parallel(c.chunks(), std::max<std::int64_t>(1, kGrain / c.chunk), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t chunk = first; chunk < last; ++chunk)
        quantise(c, key, chunk * c.chunk, std::min(k, (chunk + 1) * c.chunk), v, to.codes,
                 to.scales + chunk * (c.bits == 1 ? 1 : 2));
    });
  }
  if (residual == nullptr) return;
  const PackedIn sent(c, packed);
  if (places.empty())
    parallel(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) residual[i] -= decoded(c, sent, i);
    });
  else
    for (std::int64_t j = 0; j < k; ++j) residual[places[static_cast<std::size_t>(j)]] -= decoded(c, sent, j);
}

void CpuKernels::compress_corrected(const GradientCode& c, const GradientDraw& d, float mu, const float* x,
                                    float factor, float* momentum, float* residual, std::uint8_t* packed) {
  parallel(c.elements, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) momentum[i] = mu * momentum[i] + factor * x[i];
  });
  compress(c, d, momentum, residual, packed);
  const Packed sent(c, packed);
  for (std::int64_t j = 0; j < c.places(); ++j) momentum[sent.places[j]] = 0;
}

void CpuKernels::decompress(const GradientCode& c, const GradientDraw& d, std::int64_t members,
                            const std::uint8_t* packed, float* x) {
  if (c.sent == GradientCode::Sent::all) {
    parallel(c.elements, kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::fill(x + begin, x + end, 0.0F);
      for (std::int64_t m = 0; m < members; ++m) {
        const PackedIn from(c, packed + m * c.bytes());
        for (std::int64_t i = begin; i < end; ++i) x[i] += decoded(c, from, i);
      }
    });
    return;
  }
  fill(c.elements, 0, x);
  std::vector<std::int32_t> drawn;
  std::vector<std::uint64_t> ranked;
  if (c.sent == GradientCode::Sent::random) {
    const std::uint64_t key = draw_key(d, Drawn::places);
    least(
        c, [&](std::size_t i) { return word(key, static_cast<std::int64_t>(i)); }, ranked, drawn);
  }
  for (std::int64_t m = 0; m < members; ++m) {
    const PackedIn from(c, packed + m * c.bytes());
    const std::int32_t* const places = drawn.empty() ? from.places : drawn.data();
    for (std::int64_t j = 0; j < c.kept; ++j) {
      const std::int32_t at = places[j];
      if (at < 0 || at >= c.elements) throw std::runtime_error("a gradient that was sent has no place in its bucket");
      x[at] += decoded(c, from, j);
    }
  }
}

}  // namespace rehearse::kernels::cpu
