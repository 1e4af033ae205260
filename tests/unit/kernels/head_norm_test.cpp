// Norms of each head's queries and keys in packed qkv, and norms whose weight is what is added to 1, against plain
// loops and differences.
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

constexpr double kEps = 1e-5;

// Of the whole qkv: values are as they were.
Values normed_heads(const HeadNormShape& s, const Values& qkv, const Values& query, const Values& key) {
  Values y = qkv;
  for (std::int64_t head = 0; head < s.rows * s.kv_heads * (s.group + 2); ++head) {
    const std::int64_t place = head % (s.group + 2);
    if (place == s.group + 1) continue;
    Values weight = place == s.group ? key : query;
    for (double& w : weight) w += s.zero_centered ? 1 : 0;
    const auto begin = qkv.begin() + head * s.head_dim;
    const Values one = reference::norm(true, 1, s.head_dim, s.eps, {begin, begin + s.head_dim}, weight, {}).y;
    std::copy(one.begin(), one.end(), y.begin() + head * s.head_dim);
  }
  return y;
}

class HeadNormTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Threads, HeadNormTest, testing::Values(1, 3));

TEST_P(HeadNormTest, QueriesAndKeysAreNormedInPlaceAndGradientsAreTheDifferences) {
  for (const HeadNormShape& s : {HeadNormShape{3, 2, 2, 6, kEps, false}, HeadNormShape{3, 2, 2, 6, kEps, true},
                                 HeadNormShape{5, 1, 4, 8, kEps, true}, HeadNormShape{33, 3, 1, 20, kEps, false}}) {
    SCOPED_TRACE(s.heads());
    const Floats qkv = random.normal(s.packed(), 2), query = random.normal(s.head_dim), key = random.normal(s.head_dim),
                 dy = random.normal(s.packed());
    Floats y = qkv, raw = poisoned(s.heads() * s.head_dim), stats = poisoned(s.heads()), dx = dy;
    device->head_norm_forward(s, query.data(), key.data(), y.data(), raw.data(), stats.data());
    EXPECT_LE(relative_error(y, normed_heads(s, doubles(qkv), doubles(query), doubles(key))), kTolerance);
    const Floats before_q = random.normal(s.head_dim), before_k = random.normal(s.head_dim);
    Floats d_query = before_q, d_key = before_k;
    device->head_norm_backward_weight(s, dx.data(), raw.data(), stats.data(), d_query.data(), d_key.data());
    device->head_norm_backward_input(s, raw.data(), stats.data(), query.data(), key.data(), dx.data());
    const auto loss = [&](const Values& x, const Values& q, const Values& k) {
      return dot(normed_heads(s, x, q, k), doubles(dy));
    };
    expect_gradient([&](const Values& v) { return loss(v, doubles(query), doubles(key)); }, qkv, doubles(dx));
    expect_gradient([&](const Values& v) { return loss(doubles(qkv), v, doubles(key)); }, query,
                    minus(d_query, before_q));
    expect_gradient([&](const Values& v) { return loss(doubles(qkv), doubles(query), v); }, key,
                    minus(d_key, before_k));
  }
}

TEST_P(HeadNormTest, ZeroCenteredNormsAreThoseOfOneMore) {
  const std::int64_t rows = 9, cols = 33;
  const Floats x = random.normal(rows * cols), gamma = random.normal(cols), dy = random.normal(rows * cols),
               residual = random.normal(rows * cols);
  Floats more = gamma;
  for (float& g : more) g += 1;
  Floats y = poisoned(rows * cols), stats = poisoned(rows), dx = y, expected = y, expected_dx = y, other = stats;
  device->zero_centered_norm_forward(rows, cols, kEps, x.data(), gamma.data(), y.data(), stats.data());
  device->norm_forward(true, rows, cols, kEps, x.data(), more.data(), nullptr, expected.data(), other.data());
  EXPECT_EQ(y, expected);
  EXPECT_EQ(stats, other);
  device->zero_centered_norm_backward_input(rows, cols, dy.data(), x.data(), stats.data(), gamma.data(),
                                            residual.data(), dx.data());
  device->norm_backward_input(true, rows, cols, dy.data(), x.data(), stats.data(), more.data(), residual.data(),
                              expected_dx.data());
  EXPECT_EQ(dx, expected_dx);
}

}  // namespace
}  // namespace rehearse::kernels
