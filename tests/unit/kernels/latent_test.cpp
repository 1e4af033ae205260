// Latent attention's heads against plain loops, and the way back against differences.
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

using reference::at;

const LatentShape kPlain{.micro_batch = 2, .heads = 3, .seq = 5, .nope = 3, .rope = 4, .value = 2};
const LatentShape kYarn{.micro_batch = 2,
                        .heads = 3,
                        .seq = 5,
                        .nope = 3,
                        .rope = 4,
                        .value = 2,
                        .rotation = {.base = 3, .scaling = RotationScaling::yarn, .factor = 8, .trained = 9}};
constexpr std::int64_t kFirst = 6;  // position of the first row

struct Products {
  Values q, kv, k_rope;
};

// The angle of column i of `rope` is position * base^(-2 (i mod rope / 2) / rope). Of kYarn's two pairs none turns 32
// times in 9 positions, and the second, log(9 / 2 pi) / log 3 * 2 = 0.65, not once: the ramp ends at 1.
double turned(const LatentShape& s, const Values& x, std::int64_t first, std::int64_t i, std::int64_t position) {
  const std::int64_t rope = s.rope, half = rope / 2, pair = i % half;
  const bool divided = s.rotation.scaling == RotationScaling::yarn && pair == 1;
  const double angle = static_cast<double>(position) / (divided ? s.rotation.factor : 1) *
                       std::pow(s.rotation.base, -2.0 * static_cast<double>(pair) / static_cast<double>(rope));
  const double a = x[at(first + pair)], b = x[at(first + half + pair)];
  return i < half ? a * std::cos(angle) - b * std::sin(angle) : b * std::cos(angle) + a * std::sin(angle);
}

// Scores are longer by the square of 0.1 ln(factor) + 1.
Values plain(const LatentShape& s, const Products& p) {
  const double longer =
      s.rotation.scaling == RotationScaling::yarn ? std::pow(0.1 * std::log(s.rotation.factor) + 1, 2) : 1;
  Values packed;
  for (std::int64_t row = 0; row < s.rows(); ++row) {
    const std::int64_t position = kFirst + row / s.micro_batch;
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::int64_t q = (row * s.heads + head) * (s.nope + s.rope),
                         kv = (row * s.heads + head) * (s.nope + s.value);
      for (std::int64_t c = 0; c < s.nope; ++c) packed.push_back(longer * p.q[at(q + c)]);
      for (std::int64_t c = 0; c < s.rope; ++c) packed.push_back(longer * turned(s, p.q, q + s.nope, c, position));
      for (std::int64_t c = 0; c < s.nope; ++c) packed.push_back(p.kv[at(kv + c)]);
      for (std::int64_t c = 0; c < s.rope; ++c) packed.push_back(turned(s, p.k_rope, row * s.rope, c, position));
      for (std::int64_t c = 0; c < s.value; ++c) packed.push_back(p.kv[at(kv + s.nope + c)]);
    }
  }
  return packed;
}

class LatentTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Threads, LatentTest, testing::Values(1, 3));

TEST_P(LatentTest, HeadsEqualThePlainLoops) {
  for (const LatentShape& s : {kPlain, kYarn}) {
    const Floats q = random.normal(s.rows() * s.heads * s.query()),
                 kv = random.normal(s.rows() * s.heads * (s.nope + s.value)), k_rope = random.normal(s.rows() * s.rope);
    Floats packed = poisoned(s.rows() * s.heads * s.packed());
    device->latent_heads(s, kFirst, q.data(), kv.data(), k_rope.data(), packed.data());
    EXPECT_LE(relative_error(packed, plain(s, {doubles(q), doubles(kv), doubles(k_rope)})), kTolerance);
  }
}

TEST_P(LatentTest, BackwardIsTheGradientOfEachOperand) {
  for (const LatentShape& s : {kPlain, kYarn}) {
    const Floats q = random.normal(s.rows() * s.heads * s.query()),
                 kv = random.normal(s.rows() * s.heads * (s.nope + s.value)), k_rope = random.normal(s.rows() * s.rope);
    const Floats d_packed = random.normal(s.rows() * s.heads * s.packed());
    Floats d_q = poisoned(static_cast<std::int64_t>(q.size())), d_kv = poisoned(static_cast<std::int64_t>(kv.size())),
           d_k_rope = poisoned(static_cast<std::int64_t>(k_rope.size()));
    device->latent_heads_backward(s, kFirst, d_packed.data(), d_q.data(), d_kv.data(), d_k_rope.data());
    const Products p{doubles(q), doubles(kv), doubles(k_rope)};
    const auto loss = [&](const Products& of) { return dot(plain(s, of), doubles(d_packed)); };
    expect_gradient([&](const Values& x) { return loss({x, p.kv, p.k_rope}); }, q, doubles(d_q));
    expect_gradient([&](const Values& x) { return loss({p.q, x, p.k_rope}); }, kv, doubles(d_kv));
    expect_gradient([&](const Values& x) { return loss({p.q, p.kv, x}); }, k_rope, doubles(d_k_rope));
  }
}

}  // namespace
}  // namespace rehearse::kernels
