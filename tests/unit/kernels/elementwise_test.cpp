// Activations, sums, copies, positions, embeddings and rotations.
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

class ElementwiseTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Threads, ElementwiseTest, testing::Values(1, 3));

TEST_P(ElementwiseTest, ActivationsAndTheirGradients) {
  for (const Unary fn : {Unary::gelu, Unary::relu, Unary::squared_relu}) {
    const Floats x = random.normal(517, 3), dy = random.normal(517);
    Floats y = poisoned(517), dx = y;
    device->activation_forward(fn, 517, x.data(), y.data());
    device->activation_backward(fn, 517, dy.data(), x.data(), dx.data());
    EXPECT_LE(relative_error(y, reference::activation(fn, doubles(x))), kTolerance);
    expect_gradient([&](const Values& v) { return dot(reference::activation(fn, v), doubles(dy)); }, x, doubles(dx));
  }
}

// Its backward reads the output.
TEST_P(ElementwiseTest, TanhAndItsGradient) {
  const Floats x = random.normal(517, 3), dy = random.normal(517);
  Floats y = poisoned(517), dx = y;
  device->activation_forward(Unary::tanh, 517, x.data(), y.data());
  device->activation_backward(Unary::tanh, 517, dy.data(), y.data(), dx.data());
  EXPECT_LE(relative_error(y, reference::hyperbolic_tangent(doubles(x))), kTolerance);
  expect_gradient([&](const Values& v) { return dot(reference::hyperbolic_tangent(v), doubles(dy)); }, x, doubles(dx));
}

// sigmoid's backward reads its output, silu's its input.
TEST_P(ElementwiseTest, SigmoidAndSiluAndTheirGradients) {
  for (const Unary fn : {Unary::sigmoid, Unary::silu}) {
    const auto plain = [fn](Values v) {
      for (double& x : v) x = (fn == Unary::silu ? x : 1) / (1 + std::exp(-x));
      return v;
    };
    const Floats x = random.normal(517, 3), dy = random.normal(517);
    Floats y = poisoned(517), dx = y;
    device->activation_forward(fn, 517, x.data(), y.data());
    device->activation_backward(fn, 517, dy.data(), fn == Unary::silu ? x.data() : y.data(), dx.data());
    EXPECT_LE(relative_error(y, plain(doubles(x))), kTolerance);
    expect_gradient([&](const Values& v) { return dot(plain(v), doubles(dy)); }, x, doubles(dx));
  }
}

// gelu keeps its relative precision where 1 + tanh cancels: gelu(-5) = -2.29e-7 by the formula in double precision.
TEST_P(ElementwiseTest, GeluIsPreciseInTheTail) {
  for (const double x : {-5.0, -3.0, -1e-3, 1e-4, 9.0}) {
    const auto in = static_cast<float>(x);
    float y = 0;
    device->activation_forward(Unary::gelu, 1, &in, &y);
    const double u = std::sqrt(2 / M_PI) * (double{in} + 0.044715 * std::pow(double{in}, 3));
    const double expected = double{in} / (1 + std::exp(-2 * u));
    EXPECT_NEAR(y / expected, 1, 3e-6) << x;
  }
}

TEST_P(ElementwiseTest, ActivationsAtTheEndsOfTheRange) {
  const Floats x = {-1e4f, 1e4f, 0.0f, std::numeric_limits<float>::quiet_NaN()};
  for (const Unary fn : {Unary::gelu, Unary::relu, Unary::squared_relu}) {
    Floats y = poisoned(4);
    device->activation_forward(fn, 4, x.data(), y.data());
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[1], fn == Unary::squared_relu ? 1e8f : 1e4f);
    EXPECT_EQ(y[2], 0.0f);
    EXPECT_TRUE(std::isnan(y[3]));
  }
}

TEST_P(ElementwiseTest, SwigluAndItsGradient) {
  const std::int64_t rows = 19, cols = 17;
  const Floats x = random.normal(rows * 2 * cols, 2), dy = random.normal(rows * cols);
  Floats y = poisoned(rows * cols), dx = poisoned(rows * 2 * cols);
  device->swiglu_forward(rows, cols, x.data(), nullptr, y.data());
  device->swiglu_backward(rows, cols, dy.data(), x.data(), nullptr, dx.data());
  EXPECT_LE(relative_error(y, reference::swiglu(rows, cols, doubles(x))), kTolerance);
  expect_gradient([&](const Values& v) { return dot(reference::swiglu(rows, cols, v), doubles(dy)); }, x, doubles(dx));
}

TEST_P(ElementwiseTest, SwigluOfGateAndUpInOperandsOfTheirOwnIsTheSame) {
  const std::int64_t rows = 19, cols = 17;
  const Floats x = random.normal(rows * 2 * cols, 2), dy = random.normal(rows * cols);
  Floats gate, up;
  for (std::int64_t row = 0; row < rows; ++row) {
    gate.insert(gate.end(), x.begin() + 2 * row * cols, x.begin() + (2 * row + 1) * cols);
    up.insert(up.end(), x.begin() + (2 * row + 1) * cols, x.begin() + (2 * row + 2) * cols);
  }
  Floats y = poisoned(rows * cols), dx = poisoned(rows * 2 * cols), joined_y = y, joined_dx = dx;
  device->swiglu_forward(rows, cols, x.data(), nullptr, joined_y.data());
  device->swiglu_backward(rows, cols, dy.data(), x.data(), nullptr, joined_dx.data());
  device->swiglu_forward(rows, cols, gate.data(), up.data(), y.data());
  device->swiglu_backward(rows, cols, dy.data(), gate.data(), up.data(), dx.data());
  EXPECT_EQ(y, joined_y);
  EXPECT_EQ(dx, joined_dx);
}

TEST_P(ElementwiseTest, SumsAndCopiesAreExact) {
  const std::int64_t n = 50003;
  const Floats a = random.normal(n), b = random.normal(n);
  Floats sum = poisoned(n), copy = sum, filled = sum, scaled = sum, in_place = a, accumulated = b;
  device->add(n, a.data(), b.data(), sum.data());
  device->accumulate(n, a.data(), accumulated.data());
  device->copy(n, a.data(), copy.data());
  device->fill(n, 2.5f, filled.data());
  device->scale(n, 3, a.data(), scaled.data());
  device->scale(n, 3, in_place.data(), in_place.data());
  EXPECT_EQ(copy, a);
  EXPECT_EQ(filled, Floats(at(n), 2.5f));
  EXPECT_EQ(in_place, scaled);
  EXPECT_EQ(accumulated, sum);
  for (std::size_t i = 0; i < at(n); ++i) {
    ASSERT_EQ(sum[i], a[i] + b[i]);
    ASSERT_EQ(scaled[i], 3 * a[i]);
  }
}

// Large enough to be written past the cache, from an address that no vector begins at.
TEST_P(ElementwiseTest, FillsExactlyWhatIsLarge) {
  constexpr std::int64_t n = (1 << 20) + 5;
  Floats y(at(n + 3), -1.0f), expected(at(n + 3), 2.5f);
  expected[0] = expected[at(n + 1)] = expected[at(n + 2)] = -1.0f;
  device->fill(n, 2.5f, y.data() + 1);
  EXPECT_EQ(y, expected);
}

// Masks and codes of 8 bits, places of 32: no byte beside them is written.
TEST_P(ElementwiseTest, FillsTypesWithoutFractionsWithZeros) {
  for (const DType type : {DType::u8, DType::e4m3, DType::e5m2, DType::e2m1, DType::i32}) {
    const std::int64_t n = 1003, bytes = n * size_of(type);
    std::vector<std::uint8_t> y(at(bytes + 8), 7), expected(at(bytes + 8), 7);
    std::fill(expected.begin() + 4, expected.begin() + 4 + bytes, std::uint8_t{0});
    device->fill(n, 0, {y.data() + 4, type});
    EXPECT_EQ(y, expected) << name_of(type);
  }
}

TEST_P(ElementwiseTest, BiasGradientAddsTheColumnSums) {
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 5}, {300, 1100}, {65, 64}}) {
    const Floats dy = random.normal(rows * cols), before = random.normal(cols);
    Floats d_bias = before;
    Values expected = doubles(before);
    for (std::int64_t i = 0; i < rows * cols; ++i) expected[at(i % cols)] += dy[at(i)];
    device->bias_grad(rows, cols, dy.data(), d_bias.data());
    EXPECT_LE(relative_error(d_bias, expected), kTolerance) << cols;
  }
}

// Rows 0, 1, 2 are position 2 of three sequences, rows 3, 4, 5 position 3, ...
TEST_P(ElementwiseTest, PositionsAreAddedByRowAndTheirGradientsSummed) {
  const std::int64_t rows = 3 * 40, cols = 9, first = 2;
  const Floats x = random.normal(rows * cols), table = random.normal(50 * cols), before = random.normal(50 * cols);
  Floats y = poisoned(rows * cols), d_table = before;
  device->add_position(rows, cols, 3, first, x.data(), table.data(), y.data());
  device->position_grad(rows, cols, 3, first, x.data(), d_table.data());
  Values expected = doubles(before);
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const std::size_t of_table = at((first + i / cols / 3) * cols + i % cols);
    ASSERT_EQ(y[at(i)], x[at(i)] + table[of_table]);
    expected[of_table] += x[at(i)];
  }
  EXPECT_LE(relative_error(d_table, expected), kTolerance);
}

// Rows [4, 10) of a table: ids 3 and 10 are another rank's, giving zeros and no gradient; a repeated id sums.
TEST_P(ElementwiseTest, EmbeddingOfAShardOfTheTable) {
  const std::vector<std::int32_t> ids = {4, 3, 9, 10, 4, 0, 7};
  const std::int64_t cols = 70;
  const Floats table = random.normal(6 * cols), dy = random.normal(7 * cols), before = random.normal(6 * cols);
  Floats y = poisoned(7 * cols), d_table = before;
  device->embedding_forward(7, 6, cols, 4, ids.data(), table.data(), y.data());
  device->embedding_backward(7, 6, cols, 4, dy.data(), ids.data(), d_table.data());
  Values expected = doubles(before);
  for (std::int64_t i = 0; i < 7 * cols; ++i) {
    const std::int64_t row = ids[at(i / cols)] - 4;
    const bool mine = row >= 0 && row < 6;
    ASSERT_EQ(y[at(i)], mine ? table[at(row * cols + i % cols)] : 0.0f) << i;
    if (mine) expected[at(row * cols + i % cols)] += dy[at(i)];
  }
  EXPECT_LE(relative_error(d_table, expected), kTolerance);
}

TEST_P(ElementwiseTest, RopeRotatesQueriesAndKeysAndBackwardUndoesIt) {
  for (const AttentionShape& s : {AttentionShape{2, 4, 2, 33, 6}, AttentionShape{1, 3, 3, 700, 16},
                                  AttentionShape{2, 4, 2, 33, 16, true, 0, 4}}) {
    const Floats x = random.normal(s.seq * s.micro_batch * (s.heads + 2 * s.kv_heads) * s.head_dim);
    Floats y = x;
    device->rope(s, 0, false, y.data());
    EXPECT_LE(relative_error(y, reference::rope(s, doubles(x))), kTolerance);
    device->rope(s, 0, true, y.data());
    EXPECT_LE(relative_error(y, doubles(x)), kTolerance);
  }
}

}  // namespace
}  // namespace rehearse::kernels
