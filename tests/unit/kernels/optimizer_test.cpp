// Optimizer updates against the published formulas, element by element in double precision; moments kept in bf16; sums
// of squares.
#include "sim/base/half.h"
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
