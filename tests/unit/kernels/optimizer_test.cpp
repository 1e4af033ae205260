// Optimizer updates against the published formulas, element by element in double precision; moments kept in bf16 and in
// 8 bits; sums of squares.
#include "sim/base/half.h"
#include "sim/base/moment_codes.h"
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

class OptimizerTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Threads, OptimizerTest, testing::Values(1, 3));

// torch.optim.AdamW, four steps.
TEST_P(OptimizerTest, AdamW) {
  const std::int64_t n = 20011;
  StepValues now{.lr = 0.01F};
  const AdamW o{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1, .step = &now};
  const double lr = now.lr;
  const float half = 0.5F;
  Floats param = random.normal(n), m(at(n), 0.0f), v(at(n), 0.0f);
  Values p = doubles(param), first(at(n), 0), second(at(n), 0);
  for (now.step = 0; now.step < 4; ++now.step) {
    const Floats grad = random.normal(n);
    const auto step = static_cast<double>(now.step + 1);
    now.correction1 = static_cast<float>(1 - std::pow(o.beta1, step));
    now.correction2 = static_cast<float>(1 - std::pow(o.beta2, step));
    device->adamw(n, o, grad.data(), &half, param.data(), nullptr, m.data(), v.data());
    for (std::size_t i = 0; i < at(n); ++i) {
      const double g = grad[i] * 0.5;
      p[i] -= lr * o.weight_decay * p[i];
      first[i] = o.beta1 * first[i] + (1 - o.beta1) * g;
      second[i] = o.beta2 * second[i] + (1 - o.beta2) * g * g;
      const double m_hat = first[i] / (1 - std::pow(o.beta1, step)), v_hat = second[i] / (1 - std::pow(o.beta2, step));
      p[i] -= lr * m_hat / (std::sqrt(v_hat) + o.eps);
    }
  }
  EXPECT_LE(relative_error(param, p), kTolerance);
  EXPECT_LE(relative_error(m, first), kTolerance);
  EXPECT_LE(relative_error(v, second), kTolerance);
}

// torch.optim.SGD with and without momentum, three steps.
TEST_P(OptimizerTest, Sgd) {
  const std::int64_t n = 1003;
  for (const double momentum : {0.0, 0.9}) {
    const StepValues now{.lr = 0.1F};
    const Sgd o{.momentum = momentum, .weight_decay = 0.01, .step = &now};
    const float two = 2;
    Floats param = random.normal(n), velocity(at(n), 0.0f);
    Values p = doubles(param), v(at(n), 0);
    for (int step = 0; step < 3; ++step) {
      const Floats grad = random.normal(n);
      device->sgd(n, o, grad.data(), &two, param.data(), nullptr, momentum > 0 ? velocity.data() : nullptr);
      for (std::size_t i = 0; i < at(n); ++i) {
        v[i] = momentum * v[i] + 2.0 * grad[i] + o.weight_decay * p[i];
        p[i] -= static_cast<double>(now.lr) * v[i];
      }
    }
    EXPECT_LE(relative_error(param, p), kTolerance) << momentum;
  }
}

// Moments in bf16. Not a multiple of the pieces in which they are widened.
class Bf16Moments {
 public:
  explicit Bf16Moments(const Floats& values) : bits_(values.size()) {
    from_float(DType::bf16, values.data(), static_cast<std::int64_t>(values.size()), bits_.data());
  }
  Floats values() const {
    Floats wide(bits_.size());
    to_float(DType::bf16, bits_.data(), static_cast<std::int64_t>(bits_.size()), wide.data());
    return wide;
  }
  Out from(std::int64_t i) { return {bits_.data() + i, DType::bf16}; }
  friend bool operator==(const Bf16Moments&, const Bf16Moments&) = default;

  // Whether element i is a + b rounded: no bf16 is nearer, but for what fp32 arithmetic leaves.
  bool rounds(std::size_t i, double a, double b) const {
    const double exact = a + b;
    if (exact == 0) return float_of_bf16(bits_[i]) == 0;
    const auto off = [&](int steps) {
      return std::abs(double{float_of_bf16(static_cast<std::uint16_t>(bits_[i] + steps))} - exact);
    };
    return off(0) <= std::min(off(-1), off(1)) + 1e-6 * (std::abs(a) + std::abs(b));
  }

 private:
  std::vector<std::uint16_t> bits_;
};

constexpr std::int64_t kSeveralPieces = 200'003;

// Four steps, each from what the last one stored: in double, the parameter by moments that are not rounded yet, then
// the moments to the nearest bf16.
TEST_P(OptimizerTest, AdamWKeepsMomentsInBf16) {
  const std::int64_t n = kSeveralPieces;
  StepValues now{.lr = 0.01F};
  const AdamW o{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1, .step = &now};
  const double lr = now.lr;
  const float half = 0.5F;
  Floats param = random.normal(n);
  Bf16Moments m(Floats(at(n), 0.0F)), v(Floats(at(n), 0.0F));
  for (now.step = 0; now.step < 4; ++now.step) {
    const Floats grad = random.normal(n), first = m.values(), second = v.values();
    Values p = doubles(param);
    const auto step = static_cast<double>(now.step + 1);
    const double correction1 = 1 - std::pow(o.beta1, step), correction2 = 1 - std::pow(o.beta2, step);
    now.correction1 = static_cast<float>(correction1);
    now.correction2 = static_cast<float>(correction2);
    device->adamw(n, o, grad.data(), &half, param.data(), nullptr, m.from(0), v.from(0));
    for (std::size_t i = 0; i < at(n); ++i) {
      const double g = grad[i] * 0.5;
      const double kept1 = o.beta1 * double{first[i]}, new1 = (1 - o.beta1) * g;
      const double kept2 = o.beta2 * double{second[i]}, new2 = (1 - o.beta2) * g * g;
      ASSERT_TRUE(m.rounds(i, kept1, new1)) << "step " << step << ", element " << i;
      ASSERT_TRUE(v.rounds(i, kept2, new2)) << "step " << step << ", element " << i;
      const double mean = kept1 + new1, square = kept2 + new2;
      p[i] -= lr * o.weight_decay * p[i] + lr * (mean / correction1) / (std::sqrt(square / correction2) + o.eps);
    }
    ASSERT_LE(relative_error(param, p), kTolerance) << "step " << step;
  }
}

// Beside a 16-bit parameter with an fp32 copy, and a gradient of 16 bits: the call with wide moments, rounded.
TEST_P(OptimizerTest, Bf16MomentsAreTheFp32CallsRoundedOnce) {
  const std::int64_t n = kSeveralPieces;
  const StepValues now{.lr = 0.01F};
  const AdamW o{.eps = 1e-6, .weight_decay = 0.1, .step = &now};
  const Floats start = random.normal(n);
  Floats squares = random.normal(n);
  for (float& x : squares) x *= x;
  Bf16Moments grad(random.normal(n)), param(start), m(random.normal(n)), v(squares), param2(start);
  Floats master = start, alone = start, first = m.values(), second = v.values();
  device->adamw(n, o, grad.from(0), nullptr, param.from(0), master.data(), m.from(0), v.from(0));
  device->adamw(n, o, grad.from(0), nullptr, param2.from(0), alone.data(), first.data(), second.data());
  EXPECT_EQ(master, alone);
  EXPECT_EQ(param, param2);
  EXPECT_EQ(m, Bf16Moments(first));
  EXPECT_EQ(v, Bf16Moments(second));

  const Sgd sgd{.momentum = 0.9, .weight_decay = 0.01, .step = &now};
  Bf16Moments velocity(start);
  Floats wide = velocity.values();
  device->sgd(n, sgd, grad.from(0), nullptr, param.from(0), master.data(), velocity.from(0));
  device->sgd(n, sgd, grad.from(0), nullptr, param2.from(0), alone.data(), wide.data());
  EXPECT_EQ(master, alone);
  EXPECT_EQ(velocity, Bf16Moments(wide));
}

// Ties go to the even neighbour: 1 + 2^-8 to 1, 1 + 3 * 2^-8 to 1 + 2^-6. The parameter moves by what was not rounded.
TEST_P(OptimizerTest, Bf16MomentsRoundToNearestEven) {
  const StepValues now{.lr = 1};
  const Sgd o{.momentum = 1, .weight_decay = 0, .step = &now};
  const Floats grad = {0x1p-8F, 3 * 0x1p-8F, -0x1p-8F};
  Bf16Moments velocity({1, 1, -1});
  Floats param = {0, 0, 0};
  device->sgd(3, o, grad.data(), nullptr, param.data(), nullptr, velocity.from(0));
  EXPECT_EQ(velocity.values(), (Floats{1, 1 + 0x1p-6F, -1}));
  EXPECT_EQ(param, (Floats{-1 - 0x1p-8F, -1 - 3 * 0x1p-8F, 1 + 0x1p-8F}));
}

// However the range is cut, and however many threads: the same bits.
TEST_P(OptimizerTest, Bf16MomentsDoNotDependOnTheSplit) {
  const std::int64_t n = kSeveralPieces, cut = 70'001;
  const StepValues now{.lr = 0.01F};
  const AdamW o{.weight_decay = 0.1, .step = &now};
  const Floats grad = random.normal(n), start = random.normal(n);
  Floats whole = start, parts = start, alone = start;
  Bf16Moments zero(Floats(at(n), 0.0F)), m = zero, v = zero, m2 = zero, v2 = zero, m3 = zero, v3 = zero;
  for (int step = 0; step < 3; ++step) {
    device->adamw(n, o, grad.data(), nullptr, whole.data(), nullptr, m.from(0), v.from(0));
    for (const auto& [first, count] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, n - cut}})
      device->adamw(count, o, grad.data() + first, nullptr, parts.data() + first, nullptr, m2.from(first),
                    v2.from(first));
    make_cpu_device(1)->adamw(n, o, grad.data(), nullptr, alone.data(), nullptr, m3.from(0), v3.from(0));
  }
  EXPECT_EQ(whole, parts);
  EXPECT_TRUE(m == m2 && v == v2);
  EXPECT_EQ(whole, alone);
  EXPECT_TRUE(m == m3 && v == v3);
}

// Moments of 8 bits: codes, and the largest of each block.
struct CodedMoments {
  bool is_signed = true;
  std::vector<std::uint8_t> codes;
  Floats largest;

  CodedMoments(bool has_sign, const Floats& x) : is_signed(has_sign), codes(x.size()), largest(x.size() / at(kBlock)) {
    for (std::size_t i = 0; i < x.size(); i += at(kBlock))
      encode_moments(is_signed, &x[i], kBlock, &codes[i], largest[i / at(kBlock)]);
  }
  Floats values() const {
    Floats x(codes.size());
    for (std::size_t i = 0; i < x.size(); i += at(kBlock))
      decode_moments(is_signed, &codes[i], largest[i / at(kBlock)], kBlock, &x[i]);
    return x;
  }
  Out from(std::int64_t i) { return {codes.data() + i, DType::u8}; }
  friend bool operator==(const CodedMoments&, const CodedMoments&) = default;
  static constexpr std::int64_t kBlock = kMomentBlock;
};

// Each step is the fp32 call from what the codes stand for; what it leaves is coded anew, block by block. Gradients of
// 16 bits are updated in pieces, whose blocks have to be found too.
TEST_P(OptimizerTest, CodedMomentsAreTheFp32CallsCodedOnce) {
  const std::int64_t n = kMomentBlock * 1200;
  StepValues now{.lr = 0.01F};
  AdamW o{.eps = 1e-6, .weight_decay = 0.1, .step = &now};
  Sgd sgd{.momentum = 0.9, .weight_decay = 0.01, .step = &now};
  for (const bool half : {false, true}) {
    Floats param = random.normal(n), alone = param, p2 = param, p3 = param;
    CodedMoments m(true, Floats(at(n), 0.0F)), v(false, Floats(at(n), 0.0F)), velocity = m;
    for (now.step = 0; now.step < 3; ++now.step) {
      Floats values = random.normal(n);
      for (std::int64_t i = 0; i < n; ++i) values[at(i)] *= std::exp(static_cast<float>(i % 977) / 50.0F - 12.0F);
      Bf16Moments grad16(values);
      const In grad = half ? In(grad16.from(0)) : In(values.data());
      Floats first = m.values(), second = v.values(), wide = velocity.values();
      device->adamw(n, o, grad, nullptr, alone.data(), nullptr, first.data(), second.data());
      device->sgd(n, sgd, grad, nullptr, p3.data(), nullptr, wide.data());
      o.exp_avg_largest = m.largest.data(), o.exp_avg_sq_largest = v.largest.data();
      device->adamw(n, o, grad, nullptr, param.data(), nullptr, m.from(0), v.from(0));
      sgd.momentum_largest = velocity.largest.data();
      device->sgd(n, sgd, grad, nullptr, p2.data(), nullptr, velocity.from(0));
      ASSERT_EQ(param, alone) << now.step;
      ASSERT_EQ(p2, p3) << now.step;
      ASSERT_TRUE(m == CodedMoments(true, first)) << now.step;
      ASSERT_TRUE(v == CodedMoments(false, second)) << now.step;
      ASSERT_TRUE(velocity == CodedMoments(true, wide)) << now.step;
    }
    EXPECT_NE(m.values(), Floats(at(n), 0.0F));
  }
}

// Adafactor against its formulas in double: matrices and a tensor that is not factored, gradients that are clipped and
// some that are not, an fp32 copy beside a parameter of 16 bits.
TEST_P(OptimizerTest, Adafactor) {
  struct Size {
    std::int64_t rows, cols;
  };
  for (const auto& [rows, cols] : {Size{37, 5}, {3, 300}, {0, 9001}, {1, 17}, {129, 64}})
    for (const bool half : {false, true}) {
      const std::int64_t n = rows > 0 ? rows * cols : cols;
      const std::int64_t height = std::max<std::int64_t>(1, rows);
      StepValues now{.lr = 0.01F};
      const Adafactor o{.rows = rows, .cols = cols, .weight_decay = 0.1, .step = &now};
      const float coefficient = 0.5F;
      Floats start = random.normal(n);
      Bf16Moments param16(start);
      Floats param = start, row(at(rows), 0.0F), col(at(cols), 0.0F);
      Values p = doubles(start), r(at(rows), 0), c(at(cols), 0);
      const Floats sizes = {1, 4, 0.25F, 1};  // the second step's updates are clipped, the third's are not
      bool clipped = false, whole = false;
      for (now.step = 0; now.step < 4; ++now.step) {
        Floats grad = random.normal(n);
        for (float& x : grad) x *= sizes[at(now.step)];
        const double beta = 1 - std::pow(static_cast<double>(now.step + 1), -0.8);
        Values s(at(n)), u(at(n));
        for (std::size_t i = 0; i < at(n); ++i) s[i] = 0.25 * double{grad[i]} * double{grad[i]} + 1e-30;
        double mean = 0;
        for (std::int64_t i = 0; i < rows; ++i) {
          double sum = 0;
          for (std::int64_t j = 0; j < cols; ++j) sum += s[at(i * cols + j)];
          r[at(i)] = beta * r[at(i)] + (1 - beta) * sum / static_cast<double>(cols);
          mean += r[at(i)] / static_cast<double>(rows);
        }
        for (std::int64_t j = 0; j < cols; ++j) {
          double sum = 0;
          for (std::int64_t i = 0; i < height; ++i) sum += s[at(i * cols + j)];
          c[at(j)] = beta * c[at(j)] + (1 - beta) * sum / static_cast<double>(height);
        }
        double squares = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          const double v = c[at(i % cols)] * (rows > 0 ? r[at(i / cols)] / mean : 1);
          u[at(i)] = 0.5 * grad[at(i)] / std::sqrt(v);
          squares += u[at(i)] * u[at(i)];
        }
        const double rms = std::sqrt(squares / static_cast<double>(n)), lr = now.lr;
        (rms > 1 ? clipped : whole) = true;
        for (std::size_t i = 0; i < at(n); ++i) p[i] -= lr * 0.1 * p[i] + lr * u[i] / std::max(1.0, rms);
        device->adafactor(o, grad.data(), &coefficient, half ? param16.from(0) : Out(param.data()),
                          half ? param.data() : nullptr, rows > 0 ? row.data() : nullptr, col.data());
      }
      EXPECT_LE(relative_error(param, p), kTolerance) << rows << " x " << cols;
      EXPECT_LE(relative_error(col, c), kTolerance) << rows << " x " << cols;
      if (rows > 0) {
        EXPECT_LE(relative_error(row, r), kTolerance) << rows << " x " << cols;
      }
      EXPECT_TRUE(clipped && whole);
      if (half) {
        EXPECT_EQ(param16, Bf16Moments(param));
      }
      const Floats before = param;
      const float none = std::nanf("");
      device->adafactor(o, start.data(), &none, half ? param16.from(0) : Out(param.data()),
                        half ? param.data() : nullptr, rows > 0 ? row.data() : nullptr, col.data());
      EXPECT_EQ(param, before);
    }
}

TEST_P(OptimizerTest, AdafactorDoesNotDependOnTheThreads) {
  const StepValues now{.step = 3, .lr = 0.01F};
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{401, 333}, {0, 100'003}}) {
    const std::int64_t n = rows > 0 ? rows * cols : cols;
    const Adafactor o{.rows = rows, .cols = cols, .weight_decay = 0.1, .step = &now};
    const Floats grad = random.normal(n);
    Floats param = random.normal(n), alone = param, row(at(rows), 0.5F), row2 = row, col(at(cols), 0.5F), col2 = col;
    float* const of_rows = rows > 0 ? row.data() : nullptr;
    device->adafactor(o, grad.data(), nullptr, param.data(), nullptr, of_rows, col.data());
    make_cpu_device(1)->adafactor(o, grad.data(), nullptr, alone.data(), nullptr, rows > 0 ? row2.data() : nullptr,
                                  col2.data());
    EXPECT_EQ(param, alone);
    EXPECT_EQ(row, row2);
    EXPECT_EQ(col, col2);
  }
}

// One square of 2^24, then 2^21 of 2^-20: single precision would lose the small ones, double keeps all exactly. What
// was there before is added to.
TEST_P(OptimizerTest, SumOfSquaresIsTakenInDouble) {
  Floats x((std::size_t{1} << 21) + 1, 0x1p-10f);
  x[0] = 4096;
  float sum = 0;
  device->sum_squares(static_cast<std::int64_t>(x.size()), x.data(), &sum);
  EXPECT_EQ(sum, 0x1p24F + 2);
  device->sum_squares(0, nullptr, &sum);
  EXPECT_EQ(sum, 0x1p24F + 2);
  device->sum_squares(1, x.data(), &sum);
  EXPECT_EQ(sum, 0x1p25F + 2);
}

TEST_P(OptimizerTest, SumOfSquaresDoesNotDependOnTheThreads) {
  const Floats x = random.normal(300007);
  float here = 0, alone = 0;
  device->sum_squares(300007, x.data(), &here);
  make_cpu_device(1)->sum_squares(300007, x.data(), &alone);
  EXPECT_EQ(here, alone);
}

}  // namespace
}  // namespace rehearse::kernels
