// Swiglu, positions, rotations and embeddings: kernels over rows.
#include "tests/gpu/kernels/cuda_test.h"

namespace rehearse::kernels::cuda {
namespace {

class CudaRows : public CudaTest {};

// One element, rows that end within a chunk, rows of many chunks, more rows than a block has.
constexpr Shape kRowsShapes[] = {{1, 1}, {3, 17}, {19, 64}, {2, 2056}, {70, 40}};

TEST_F(CudaRows, SwigluAndItsGradient) {
  for (const auto& [x_type, y_type] : kMixes) {
    for (const auto& [rows, cols] : kRowsShapes) {
      const Floats x = normal(rows * 2 * cols, x_type, 2), dy = normal(rows * cols, y_type);
      const Tensor in = given(x, x_type), d = given(dy, y_type);
      const Tensor y = poisoned(rows * cols, y_type), dx = poisoned(rows * 2 * cols, x_type);
      device().swiglu_forward(rows, cols, in.in(), nullptr, y.out());
      device().swiglu_backward(rows, cols, d.in(), in.in(), nullptr, dx.out());
      expect_near(y, reference::swiglu(rows, cols, doubles(x)));
      Values expected(x.size());
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        const std::size_t gate_at = at(i / cols * 2 * cols + i % cols), up_at = gate_at + at(cols);
        const double gate = x[gate_at], up = x[up_at], s = 1 / (1 + std::exp(-gate));
        expected[gate_at] = dy[at(i)] * up * s * (1 + gate * (1 - s));
        expected[up_at] = dy[at(i)] * gate * s;
      }
      expect_near(dx, expected);
      Floats gate, up;
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto begin = x.begin() + 2 * row * cols;
        gate.insert(gate.end(), begin, begin + cols);
        up.insert(up.end(), begin + cols, begin + 2 * cols);
      }
      const Tensor gates = given(gate, x_type), ups = given(up, x_type);
      const Tensor parted_y = poisoned(rows * cols, y_type), parted_dx = poisoned(rows * 2 * cols, x_type);
      device().swiglu_forward(rows, cols, gates.in(), ups.in(), parted_y.out());
      device().swiglu_backward(rows, cols, d.in(), gates.in(), ups.in(), parted_dx.out());
      expect_near(parted_y, reference::swiglu(rows, cols, doubles(x)));
      expect_near(parted_dx, expected);
    }
  }
}

// Weights of both signs and zero; rows of one chunk, of threads of one warp, and of several.
TEST_F(CudaRows, SwigluTimesWeightsOfRowsAndItsGradients) {
  for (const auto& [x_type, y_type] : kMixes) {
    for (const auto& [rows, cols] : {Shape{1, 1}, {3, 17}, {19, 64}, {2, 2056}, {70, 40}, {5, 9000}}) {
      const Floats x = normal(rows * 2 * cols, x_type, 2), dy = normal(rows * cols, y_type);
      Floats weights = normal(rows, DType::f32);
      weights[at(rows / 2)] = 0;
      const Tensor in = given(x, x_type), d = given(dy, y_type), w = given(weights, DType::f32);
      const Tensor y = poisoned(rows * cols, y_type), dx = poisoned(rows * 2 * cols, x_type);
      const Tensor d_weights = poisoned(rows, DType::f32);
      device().weighted_swiglu_forward(rows, cols, in.in(), w.as<float>(), y.out());
      device().weighted_swiglu_backward(rows, cols, d.in(), in.in(), w.as<float>(), dx.out(), d_weights.as<float>());
      Values of_y = reference::swiglu(rows, cols, doubles(x)), of_x(x.size()), of_weights(at(rows), 0.0);
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        const std::int64_t row = i / cols;
        const std::size_t gate_at = at(row * 2 * cols + i % cols), up_at = gate_at + at(cols);
        const double gate = x[gate_at], up = x[up_at], s = 1 / (1 + std::exp(-gate)), weight = weights[at(row)];
        of_weights[at(row)] += dy[at(i)] * of_y[at(i)];
        of_y[at(i)] *= weight;
        of_x[gate_at] = dy[at(i)] * weight * up * s * (1 + gate * (1 - s));
        of_x[up_at] = dy[at(i)] * weight * gate * s;
      }
      expect_near(y, of_y);
      expect_near(dx, of_x);
      expect_near(d_weights, of_weights);
    }
  }
}

// Rows 0, 1, 2 are position 2 of three sequences, rows 3, 4, 5 position 3, ...
TEST_F(CudaRows, PositionsAreAddedByRowAndTheirGradientsSummed) {
  for (const auto& [x_type, table_type] : kMixes) {
    for (const std::int64_t cols : {9, 48}) {
      const std::int64_t rows = 3 * 40, first = 2;
      const Floats x = normal(rows * cols, x_type), table = normal(50 * cols, x_type);
      const Floats before = normal(50 * cols, table_type);
      const Tensor in = given(x, x_type), of = given(table, x_type), y = poisoned(rows * cols, x_type);
      const Tensor d_table = given(before, table_type);
      device().add_position(rows, cols, 3, first, in.in(), of.in(), y.out());
      device().position_grad(rows, cols, 3, first, in.in(), d_table.out());
      Floats sum = x;
      Values expected = doubles(before);
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        const std::size_t of_table = at((first + i / cols / 3) * cols + i % cols);
        sum[at(i)] = x[at(i)] + table[of_table];
        expected[of_table] += static_cast<double>(x[at(i)]);
      }
      EXPECT_EQ(y.bytes(), encoded(sum, x_type));
      expect_near(d_table, expected);
    }
  }
}

TEST_F(CudaRows, RopeRotatesQueriesAndKeysAndBackwardUndoesIt) {
  for (const DType type : kTypes) {
    for (const AttentionShape& s :
         {AttentionShape{2, 4, 2, 33, 6}, AttentionShape{1, 3, 3, 70, 16}, AttentionShape{3, 2, 1, 5, 128},
          AttentionShape{1, 1, 1, 2, 2}, AttentionShape{2, 4, 2, 33, 64, true, 0, 16},
          AttentionShape{2, 4, 2, 33, 20, true, 0, 6}}) {
      const Floats x = normal(s.seq * s.micro_batch * (s.heads + 2 * s.kv_heads) * s.head_dim, type);
      const Tensor y = given(x, type);
      device().rope(s, 0, false, y.out());
      expect_near(y, reference::rope(s, doubles(x)));
      device().rope(s, 0, true, y.out());
      expect_near(y, doubles(x));
    }
  }
}

// Of another base, divided; and yarn's, which multiplies both ways by the same.
TEST_F(CudaRows, RopeTurnsByItsBaseAndFactor) {
  AttentionShape s{2, 4, 2, 33, 16};
  const Floats x = normal(s.seq * s.micro_batch * (s.heads + 2 * s.kv_heads) * s.head_dim, DType::f32);
  s.rotation = {5e5, RotationScaling::linear, 8, 1, 4, 8192};
  const Tensor y = given(x, DType::f32);
  device().rope(s, 0, false, y.out());
  expect_near(y, reference::rope(s, doubles(x)));
  s.rotation.scaling = RotationScaling::yarn;
  const Tensor z = given(x, DType::f32);
  device().rope(s, 0, false, z.out());
  device().rope(s, 0, true, z.out());
  Values longer = doubles(x);
  const std::int64_t slots = s.heads / s.kv_heads + 2;
  for (std::size_t i = 0; i < longer.size(); ++i)
    if (static_cast<std::int64_t>(i) / s.head_dim % slots != slots - 1) longer[i] *= std::pow(0.1 * std::log(8) + 1, 2);
  expect_near(z, longer);
}

// Angles of late positions: near 20,000 radians, where fp32 has steps of 0.002.
TEST_F(CudaRows, RopeIsPreciseAtLatePositions) {
  const AttentionShape s{1, 1, 1, 20000, 2};
  const Floats x = normal(s.seq * 3 * 2, DType::f32);
  const Tensor y = given(x, DType::f32);
  device().rope(s, 0, false, y.out());
  const Floats out = y.read();
  const Values expected = reference::rope(s, doubles(x));
  for (std::size_t i = expected.size() - 60; i < expected.size(); ++i) EXPECT_NEAR(out[i], expected[i], 1e-5);
}

// Rows [4, 10) of a table: ids 3 and 10 are another rank's, giving zeros and no gradient; a repeated id sums.
TEST_F(CudaRows, EmbeddingOfAShardOfTheTable) {
  for (const auto& [y_type, table_type] : kMixes) {
    for (const std::int64_t cols : {70, 264, 8}) {
      const std::vector<std::int32_t> ids = {4, 3, 9, 10, 4, 0, 7};
      const Floats table = normal(6 * cols, table_type), dy = normal(7 * cols, y_type);
      const Floats before = normal(6 * cols, table_type);
      const Tensor of = given(table, table_type), d = given(dy, y_type), y = poisoned(7 * cols, y_type);
      const Tensor d_table = given(before, table_type), tokens = raw(ids);
      device().embedding_forward(7, 6, cols, 4, tokens.as<std::int32_t>(), of.in(), y.out());
      device().embedding_backward(7, 6, cols, 4, d.in(), tokens.as<std::int32_t>(), d_table.out());
      Floats gathered(at(7 * cols), 0.0F);
      Values expected = doubles(before);
      for (std::int64_t i = 0; i < 7 * cols; ++i) {
        const std::int64_t row = ids[at(i / cols)] - 4;
        if (row < 0 || row >= 6) continue;
        gathered[at(i)] = table[at(row * cols + i % cols)];
        expected[at(row * cols + i % cols)] += static_cast<double>(dy[at(i)]);
      }
      EXPECT_EQ(y.bytes(), encoded(gathered, y_type));
      expect_near(d_table, expected);
    }
  }
}

// Tokens that a warp sums, a block sums, and more of one than a section has; the same bits every time.
TEST_F(CudaRows, EmbeddingGradientsOfFrequentTokens) {
  for (const std::int64_t tokens : {300, 8300}) {
    const std::int64_t rows = 40, cols = tokens > 1000 ? 8 : 272;
    std::vector<std::int32_t> ids = below(tokens, static_cast<std::int32_t>(rows));
    for (std::int64_t i = 0; i < tokens; i += 2) ids[at(i)] = 5;
    for (std::int64_t i = 0; i < 33; ++i) ids[at(3 * i + 1)] = 7;
    const Floats dy = normal(tokens * cols, DType::bf16);
    const Tensor d = given(dy, DType::bf16), tokens_in = raw(ids);
    Values expected(at(rows * cols), 0.0);
    for (std::int64_t i = 0; i < tokens * cols; ++i)
      expected[at(ids[at(i / cols)] * cols + i % cols)] += static_cast<double>(dy[at(i)]);
    std::vector<std::byte> first;
    for (int run = 0; run < (tokens > 1000 ? 1 : 3); ++run) {
      const Tensor d_table = given(Floats(at(rows * cols), 0.0F), DType::f32);
      device().embedding_backward(tokens, rows, cols, 0, d.in(), tokens_in.as<std::int32_t>(), d_table.out());
      if (run == 0) expect_near(d_table, expected);
      if (run == 0) first = d_table.bytes();
      EXPECT_EQ(d_table.bytes(), first);
    }
  }
}

}  // namespace
}  // namespace rehearse::kernels::cuda
