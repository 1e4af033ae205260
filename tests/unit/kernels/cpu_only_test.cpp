// Calls that CPUs alone have (kernels/cpu_only_calls.h): sinks of attention, gpt-oss's gated activation, biases of
// groups of rows and rows times a number, against plain loops and differences.
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

class CpuOnlyTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Threads, CpuOnlyTest, testing::Values(1, 3));

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Causal attention of one sequence with a logit a head beside the scores: out [tokens, heads, head_dim].
Values attended(const AttentionShape& s, const Values& qkv, const Values& sinks) {
  const std::int64_t group = s.heads / s.kv_heads, packed = (group + 2) * s.head_dim, row = s.kv_heads * packed;
  Values out(at(s.seq * s.heads * s.head_dim), 0);
  for (std::int64_t head = 0; head < s.heads; ++head)
    for (std::int64_t t = 0; t < s.seq; ++t) {
      const std::int64_t query = t * row + head / group * packed + head % group * s.head_dim;
      const auto key = [&](std::int64_t u) { return u * row + head / group * packed + group * s.head_dim; };
      double total = std::exp(sinks[at(head)]);
      Values p;
      for (std::int64_t u = 0; u <= t; ++u) {
        double score = 0;
        for (std::int64_t c = 0; c < s.head_dim; ++c) score += qkv[at(query + c)] * qkv[at(key(u) + c)];
        p.push_back(std::exp(score * s.scale()));
        total += p.back();
      }
      for (std::int64_t u = 0; u <= t; ++u)
        for (std::int64_t c = 0; c < s.head_dim; ++c)
          out[at((t * s.heads + head) * s.head_dim + c)] += p[at(u)] / total * qkv[at(key(u) + s.head_dim + c)];
    }
  return out;
}

TEST_P(CpuOnlyTest, SinksTakePartInTheSoftmax) {
  const AttentionShape s{1, 4, 2, 7, 6};
  const std::int64_t n = s.seq * s.kv_heads * 4 * s.head_dim;
  const Floats qkv = random.normal(n), sinks = random.normal(s.heads, 2), d_out = random.normal(s.seq * s.heads * 6),
               before = random.normal(s.heads);
  Floats out = poisoned(s.seq * s.heads * 6), logsumexp = poisoned(s.seq * s.heads), d_qkv = poisoned(n),
         d_sinks = before;
  device->flash_forward(s, {}, qkv.data(), out.data(), logsumexp.data());
  device->attention_sinks(s, sinks.data(), out.data(), logsumexp.data());
  EXPECT_LE(relative_error(out, attended(s, doubles(qkv), doubles(sinks))), kTolerance);
  device->attention_sink_gradient(s, d_out.data(), out.data(), logsumexp.data(), sinks.data(), d_sinks.data());
  device->flash_backward(s, {}, d_out.data(), qkv.data(), out.data(), logsumexp.data(), d_qkv.data());
  const auto loss = [&](const Values& x, const Values& k) { return dot(attended(s, x, k), doubles(d_out)); };
  expect_gradient([&](const Values& v) { return loss(v, doubles(sinks)); }, qkv, doubles(d_qkv));
  expect_gradient([&](const Values& v) { return loss(doubles(qkv), v); }, sinks, minus(d_sinks, before));
}

TEST_P(CpuOnlyTest, ASinkFarAboveOrBelowIsAllOrNothing) {
  const AttentionShape s{1, 2, 2, 1, 2};
  const Floats sinks = {200, -200};
  Floats out = {1, 2, 3, 4}, logsumexp = {-100, 100};
  device->attention_sinks(s, sinks.data(), out.data(), logsumexp.data());
  EXPECT_EQ(out, (Floats{0, 0, 3, 4}));
  EXPECT_EQ(logsumexp, (Floats{200, 100}));
}

// gate_up [rows, 2, cols], away from where a clamp has no slope.
Values gated(std::int64_t rows, std::int64_t cols, const Values& gate_up, const Values& weights) {
  Values y;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t c = 0; c < cols; ++c) {
      const double g = std::min(gate_up[at(row * 2 * cols + c)], 7.0);
      const double u = std::clamp(gate_up[at((row * 2 + 1) * cols + c)], -7.0, 7.0);
      y.push_back((u + 1) * g / (1 + std::exp(-1.702 * g)) * (weights.empty() ? 1 : weights[at(row)]));
    }
  return y;
}

TEST_P(CpuOnlyTest, TheGatedActivationOfGptOssIsClamped) {
  const std::int64_t rows = 5, cols = 11;
  Floats x = random.normal(rows * 2 * cols, 6);  // many beyond 7, on both sides
  for (float& v : x)
    if (std::fabs(std::fabs(v) - 7) < 0.1F) v += 0.5F;
  const Floats dy = random.normal(rows * cols), weights = random.normal(rows);
  for (const bool weighted : {false, true}) {
    const float* const by = weighted ? weights.data() : nullptr;
    Floats y = poisoned(rows * cols), dx = poisoned(rows * 2 * cols), d_weights = poisoned(rows);
    device->swiglu_oai_forward(rows, cols, x.data(), nullptr, by, y.data());
    device->swiglu_oai_backward(rows, cols, dy.data(), x.data(), nullptr, by, dx.data(), d_weights.data());
    const Values w = weighted ? doubles(weights) : Values();
    EXPECT_LE(relative_error(y, gated(rows, cols, doubles(x), w)), kTolerance);
    const auto loss = [&](const Values& v, const Values& k) { return dot(gated(rows, cols, v, k), doubles(dy)); };
    expect_gradient([&](const Values& v) { return loss(v, w); }, x, doubles(dx));
    if (weighted) expect_gradient([&](const Values& v) { return loss(doubles(x), v); }, weights, doubles(d_weights));
  }
  // The gate and what it gates apart.
  Floats gate, up, y = poisoned(rows * cols), apart = y, dx = poisoned(rows * 2 * cols), d_apart = dx;
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    gate.push_back(x[at(i / cols * 2 * cols + i % cols)]);
    up.push_back(x[at((i / cols * 2 + 1) * cols + i % cols)]);
  }
  device->swiglu_oai_forward(rows, cols, x.data(), nullptr, nullptr, y.data());
  device->swiglu_oai_forward(rows, cols, gate.data(), up.data(), nullptr, apart.data());
  EXPECT_EQ(y, apart);
  device->swiglu_oai_backward(rows, cols, dy.data(), x.data(), nullptr, nullptr, dx.data(), nullptr);
  device->swiglu_oai_backward(rows, cols, dy.data(), gate.data(), up.data(), nullptr, d_apart.data(), nullptr);
  EXPECT_EQ(dx, d_apart);
}

// Rows past the last group's stay; two groups have none.
TEST_P(CpuOnlyTest, GroupsOfRowsHaveABiasEach) {
  const GroupedBiasShape s{4, 9, 5, 2};
  const Floats loads = {3, 0, 4, 0}, bias = random.normal(4 * 5), weights = random.normal(9), y = random.normal(9 * 5),
               before = random.normal(4 * 5), before_weights = random.normal(9);
  const std::int64_t group_of[] = {0, 0, 0, 2, 2, 2, 2, -1, -1};
  for (const bool weighted : {false, true}) {
    const float* const by = weighted ? weights.data() : nullptr;
    Floats out = y, d_bias = before, d_weights = before_weights;
    device->grouped_bias(s, bias.data(), loads.data(), by, out.data());
    device->grouped_bias_backward(s, y.data(), loads.data(), by, d_bias.data());
    device->grouped_bias_weights(s, y.data(), bias.data(), loads.data(), d_weights.data());
    Values expected = doubles(y), sums = doubles(before), dots = doubles(before_weights);
    for (std::int64_t row = 0; row < 9; ++row)
      for (std::int64_t c = 0; c < 5 && group_of[row] >= 0; ++c) {
        const double w = weighted ? weights[at(row)] : 1, b = bias[at(group_of[row] * 5 + c)];
        expected[at(row * 5 + c)] += w * b / 2;
        sums[at(group_of[row] * 5 + c)] += w * y[at(row * 5 + c)];
        dots[at(row)] += b * y[at(row * 5 + c)] / 2;
      }
    EXPECT_LE(relative_error(out, expected), kTolerance);
    EXPECT_LE(relative_error(d_bias, sums), kTolerance);
    EXPECT_LE(relative_error(d_weights, dots), kTolerance);
  }
  Floats even = Floats(8, 0);  // as many rows each
  const Floats two = {1, 2};
  device->grouped_bias({2, 8, 1, 1}, two.data(), nullptr, nullptr, even.data());
  EXPECT_EQ(even, (Floats{1, 1, 1, 1, 2, 2, 2, 2}));
}

TEST_P(CpuOnlyTest, RowsTimesANumber) {
  const std::int64_t rows = 9, cols = 5;
  const Floats x = random.normal(rows * cols), w = random.normal(rows), dy = random.normal(rows * cols);
  Floats y = poisoned(rows * cols), dx = y, dw = poisoned(rows);
  device->row_scale(rows, cols, x.data(), w.data(), y.data());
  device->row_scale_backward(rows, cols, dy.data(), x.data(), w.data(), dx.data(), dw.data());
  Values expected, expected_dx, expected_dw(at(rows), 0);
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    expected.push_back(static_cast<double>(w[at(i / cols)]) * x[at(i)]);
    expected_dx.push_back(static_cast<double>(w[at(i / cols)]) * dy[at(i)]);
    expected_dw[at(i / cols)] += static_cast<double>(dy[at(i)]) * x[at(i)];
  }
  EXPECT_LE(relative_error(y, expected), kTolerance);
  EXPECT_LE(relative_error(dx, expected_dx), kTolerance);
  EXPECT_LE(relative_error(dw, expected_dw), kTolerance);
}

// Weights as they are: of a sigmoid the score, of a softmax its share; gradients are the differences.
TEST_P(CpuOnlyTest, AGateMayGiveScoresAsTheyAre) {
  for (const bool sigmoid : {false, true}) {
    RouterShape s{6, 5, 2};
    s.sigmoid = sigmoid, s.raw = true;
    const Floats logits = random.normal(30), d_weights = random.normal(12);
    Floats weights = poisoned(12), d_logits = poisoned(30);
    std::vector<std::int32_t> chosen(12, -1);
    device->router_gate(s, logits.data(), weights.data(), chosen.data());
    device->router_gate_backward(s, 0, d_weights.data(), logits.data(), chosen.data(), nullptr, nullptr,
                                 d_logits.data());
    const auto scores = [&](const Values& x) {
      Values all;
      for (std::int64_t i = 0; i < 12; ++i) {
        double total = 0;
        for (std::int64_t e = 0; e < 5; ++e) total += std::exp(x[at(i / 2 * 5 + e)]);
        const double own = x[at(i / 2 * 5 + chosen[at(i)])];
        all.push_back(sigmoid ? 1 / (1 + std::exp(-own)) : std::exp(own) / total);
      }
      return all;
    };
    EXPECT_LE(relative_error(weights, scores(doubles(logits))), kTolerance);
    expect_gradient([&](const Values& v) { return dot(scores(v), doubles(d_weights)); }, logits, doubles(d_logits));
  }
}

}  // namespace
}  // namespace rehearse::kernels
