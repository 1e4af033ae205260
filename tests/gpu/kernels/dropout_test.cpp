// Dropout: masks bit for bit those of kernels/dropout.h, whatever the split; values against plain loops.
#include "tests/gpu/kernels/cuda_test.h"

namespace rehearse::kernels::cuda {
namespace {

class CudaDropout : public CudaTest {};

const StepValues kStep{.step = 7, .first_sequence = 100};

// The site as the kernel sees it, its step in device memory, and as the reference does.
DropoutSite site_at(const StepValues* step, double probability) {
  return {.probability = probability,
          .seed = 0x123456789ABCDEF0,
          .site = 3,
          .step = step,
          .first_sequence = 20,
          .micro_batch = 3,
          .first_position = 11,
          .first_head = 0};
}

constexpr Shape kDropoutShapes[] = {{3, 1}, {6, 20}, {30, 64}, {3, 1096}, {9, 13}};

TEST_F(CudaDropout, MasksAreThoseOfTheDefinition) {
  const Tensor step = raw(std::vector<StepValues>{kStep});
  for (const auto& [type, y_type] : kMixes) {
    for (const double probability : {0.0, 0.1, 0.5}) {
      for (const auto& [rows, cols] : kDropoutShapes) {
        const std::int64_t n = rows * cols;
        const DropoutSite there = site_at(step.as<StepValues>(), probability), here = site_at(&kStep, probability);
        const Floats x = normal(n, type), bias = normal(cols, y_type), residual = normal(n, type);
        const Tensor in = given(x, type), b = given(bias, y_type), r = given(residual, type);
        const Tensor plain = poisoned(n, y_type), fused = poisoned(n, y_type), dx = poisoned(n, type);
        const Tensor mask = raw(std::vector<std::uint8_t>(at(n), 9)), mask2 = raw(std::vector<std::uint8_t>(at(n), 9));
        device().dropout(rows, cols, there, in.in(), plain.out(), mask.as<std::uint8_t>());
        device().bias_dropout_add(rows, cols, there, in.in(), b.in(), r.in(), fused.out(), mask2.as<std::uint8_t>());
        device().dropout_backward(n, probability, in.in(), mask.as<std::uint8_t>(), dx.out());
        const std::vector<std::byte> bits = mask.bytes();
        EXPECT_EQ(bits, mask2.bytes());
        Values dropped(at(n)), expected(at(n));
        for (std::int64_t i = 0; i < n; ++i) {
          const std::int64_t row = i / cols;
          const bool keep = probability == 0 || dropout_keep(here, dropout_sequence(here, row % 3),
                                                             here.first_position + row / 3, i % cols);
          ASSERT_EQ(bits[at(i)], std::byte{keep}) << i;
          const double factor = keep ? 1 / (1 - probability) : 0;
          dropped[at(i)] = x[at(i)] * factor;
          expected[at(i)] = residual[at(i)] + (static_cast<double>(x[at(i)]) + bias[at(i % cols)]) * factor;
        }
        expect_near(plain, dropped);
        expect_near(fused, expected);
        expect_near(dx, dropped);
      }
    }
  }
}

TEST_F(CudaDropout, WithoutABiasOrAMask) {
  const Tensor step = raw(std::vector<StepValues>{kStep});
  const DropoutSite there = site_at(step.as<StepValues>(), 0.5), here = site_at(&kStep, 0.5);
  const std::int64_t rows = 6, cols = 24;
  const Floats x = normal(rows * cols, DType::f32);
  const Tensor in = given(x, DType::f32), y = poisoned(rows * cols, DType::f32);
  device().bias_dropout_add(rows, cols, there, in.in(), nullptr, in.in(), y.out(), nullptr);
  Values expected = doubles(x);
  for (std::int64_t i = 0; i < rows * cols; ++i)
    if (dropout_keep(here, dropout_sequence(here, i / cols % 3), 11 + i / cols / 3, i % cols)) expected[at(i)] *= 3;
  expect_near(y, expected);
}

}  // namespace
}  // namespace rehearse::kernels::cuda
