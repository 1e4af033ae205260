// Matrix products against triple loops, in every combination of transposes, bias and accumulation.
#include <thread>

#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

class GemmTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Threads, GemmTest, testing::Values(1, 3));

TEST_P(GemmTest, EveryFormEqualsTheTripleLoop) {
  struct Size {
    std::int64_t m, n, k;
  };
  for (const Size& size : {Size{1, 1, 1}, Size{1, 1, 40}, Size{1, 7, 5}, Size{17, 1, 9}, Size{3, 4, 2},
                           Size{33, 65, 47}, Size{130, 70, 129}, Size{70, 300, 33}, Size{5, 6, 0}}) {
    for (int form = 0; form < 16; ++form) {
      const Gemm shape{size.m, size.n, size.k, (form & 1) != 0, (form & 2) != 0, (form & 4) != 0};
      const Floats a = random.normal(size.m * size.k), b = random.normal(size.k * size.n);
      const Floats bias = (form & 8) ? random.normal(size.n) : Floats{};
      Floats c = shape.accumulate ? random.normal(size.m * size.n) : poisoned(size.m * size.n);
      const Values expected = reference::gemm(shape, doubles(a), doubles(b), doubles(bias), doubles(c));
      device->gemm(shape, a.data(), b.data(), bias.empty() ? nullptr : bias.data(), c.data());
      EXPECT_LE(relative_error(c, expected), kTolerance)
          << size.m << " x " << size.n << " x " << size.k << ", form " << form;
    }
  }
}

// The same product of the same numbers at another alignment: the same bits.
TEST_P(GemmTest, BitsDoNotDependOnAlignment) {
  for (const Gemm& shape :
       {Gemm{1, 1, 77, false, true}, Gemm{1, 9, 33, false, true}, Gemm{9, 1, 33, false, true},
        Gemm{3, 4, 5, false, true}, Gemm{31, 32, 33, false, true}, Gemm{100, 90, 80, false, true}}) {
    const Floats a = random.normal(shape.m * shape.k), b = random.normal(shape.n * shape.k);
    Floats c = poisoned(shape.m * shape.n);
    device->gemm(shape, a.data(), b.data(), nullptr, c.data());
    for (std::size_t shift = 1; shift < 8; ++shift) {
      Floats a2(shift), b2(9 - shift), c2(c.size() + shift);
      a2.insert(a2.end(), a.begin(), a.end());
      b2.insert(b2.end(), b.begin(), b.end());
      device->gemm(shape, a2.data() + shift, b2.data() + 9 - shift, nullptr, c2.data() + shift);
      EXPECT_TRUE(std::equal(c.begin(), c.end(), c2.begin() + static_cast<std::ptrdiff_t>(shift))) << shape.m;
    }
  }
}

TEST_P(GemmTest, NotANumberStays) {
  Floats a(64, 1.0f), b(64, 1.0f), c = poisoned(64);
  a[8 * 3 + 2] = std::numeric_limits<float>::quiet_NaN();
  device->gemm({8, 8, 8}, a.data(), b.data(), nullptr, c.data());
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(c[i]), i / 8 == 3) << i;
}

// Given four devices at work at once in their own threads, each gives what it gives alone.
TEST(Devices, WorkBesideEachOtherWithoutChangingTheResult) {
  Random random(3);
  const Gemm shape{150, 140, 130};
  const Floats a = random.normal(150 * 130), b = random.normal(130 * 140);
  Floats alone = poisoned(150 * 140);
  make_cpu_device(2)->gemm(shape, a.data(), b.data(), nullptr, alone.data());
  std::vector<Floats> results(4, alone);
  std::vector<std::thread> threads;
  for (Floats& result : results) {
    threads.emplace_back([&] {
      const auto device = make_cpu_device(2);
      for (int i = 0; i < 20; ++i) {
        result = poisoned(150 * 140);
        device->gemm(shape, a.data(), b.data(), nullptr, result.data());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Floats& result : results) EXPECT_EQ(result, alone);
}

}  // namespace
}  // namespace rehearse::kernels
