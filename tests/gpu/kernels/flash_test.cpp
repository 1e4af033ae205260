// Flash attention on the matrix units and by multiply-adds against the whole matrix in double precision: widths, odd
// lengths, causal or not, grouped queries, dropout; gradients against those of the plain loops, written out here.
#include "kernels/cuda/flash.h"

#include <cuda_bf16.h>

#include "kernels/dropout.h"
#include "tests/gpu/kernels/cuda_test.h"
#include "tests/unit/kernels/reference.h"

namespace rehearse::kernels::cuda {
namespace {

std::int64_t out_size(const AttentionShape& s) {
  return s.seq * s.micro_batch * s.heads * s.head_dim;
}

// dqkv by the chain rule over whole matrices: dV = D^T dO, dP = keep(dO V^T), dS = P (dP - rowsum(P dP)) / sqrt(d).
Values attention_backward(const AttentionShape& s, const DropoutSite& site, const Values& qkv, const Values& d_out) {
  const auto forward = reference::attention(s, site, qkv);
  const std::int64_t group = s.heads / s.kv_heads;
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim)), kept = 1 / (1 - site.probability);
  Values d_qkv(qkv.size(), 0.0);
  const auto slot = [&](std::int64_t t, std::int64_t b, std::int64_t kv, std::int64_t i) {
    return at((((t * s.micro_batch + b) * s.kv_heads + kv) * (group + 2) + i) * s.head_dim);
  };
  for (std::int64_t b = 0; b < s.micro_batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t q = 0; q < s.seq; ++q) {
        const std::size_t out = at(((q * s.micro_batch + b) * s.heads + h) * s.head_dim);
        const std::size_t row = at(((b * s.heads + h) * s.seq + q) * s.seq), query = slot(q, b, h / group, h % group);
        Values d_p(at(s.seq), 0.0);
        double mean = 0;
        for (std::int64_t k = 0; k < s.seq; ++k) {
          const double p = forward.p[row + at(k)], d = forward.d[row + at(k)];
          const std::size_t value = slot(k, b, h / group, group + 1);
          for (std::size_t c = 0; c < at(s.head_dim); ++c) {
            d_qkv[value + c] += d * d_out[out + c];
            if (d != 0) d_p[at(k)] += d_out[out + c] * qkv[value + c] * kept;
          }
          mean += p * d_p[at(k)];
        }
        for (std::int64_t k = 0; k < s.seq; ++k) {
          const double d_s = forward.p[row + at(k)] * (d_p[at(k)] - mean) * scale;
          const std::size_t key = slot(k, b, h / group, group);
          for (std::size_t c = 0; c < at(s.head_dim); ++c) {
            d_qkv[query + c] += d_s * qkv[key + c];
            d_qkv[key + c] += d_s * qkv[query + c];
          }
        }
      }
    }
  }
  return d_qkv;
}

std::string describe(const AttentionShape& s, DType type, double dropout) {
  return std::string(name_of(type)) + " " + std::to_string(s.head_dim) + " wide, seq " + std::to_string(s.seq) +
         ", heads " + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + (s.causal ? " causal" : " full") +
         " dropout " + std::to_string(dropout);
}

class CudaFlash : public CudaTest {
 protected:
  // Masks start inside a group of eight columns when seq is odd: first_head is not 0.
  DropoutSite site_of(double probability, const Tensor& step) const {
    DropoutSite site;
    site.probability = probability;
    site.seed = 77;
    site.site = 5;
    site.step = step.as<StepValues>();
    site.first_sequence = 2;
    site.first_head = 3;
    return site;
  }
  static DropoutSite on_host(DropoutSite site, const StepValues* step) {
    site.step = step;
    return site;
  }

  void check(const AttentionShape& s, DType type, double dropout, bool backward) {
    SCOPED_TRACE(describe(s, type, dropout));
    StepValues step;
    step.step = 9;
    step.first_sequence = 40;
    const Tensor on_device = raw(std::vector<StepValues>{step});
    const DropoutSite site = site_of(dropout, on_device), same = on_host(site, &step);
    const Floats x = normal(qkv_size(s), type), g = normal(out_size(s), type);
    const Tensor qkv = given(x, type), out = poisoned(out_size(s), type),
                 logsumexp = poisoned(s.seq * s.micro_batch * s.heads, DType::f32);
    device().flash_forward(s, site, qkv.in(), out.out(), logsumexp.as<float>());
    const auto expected = reference::attention(s, same, doubles(x));
    EXPECT_LE(relative_error(out.read(), expected.out), tolerance(type));
    EXPECT_LE(relative_error(logsumexp.read(), expected.logsumexp), 1e-5);
    if (!backward) return;
    const Tensor d_out = given(g, type), d_qkv = poisoned(qkv_size(s), type);
    device().flash_backward(s, site, d_out.in(), qkv.in(), out.in(), logsumexp.as<float>(), d_qkv.out());
    EXPECT_LE(relative_error(d_qkv.read(), attention_backward(s, same, doubles(x), doubles(g))), tolerance(type));
  }
};

// One block of each width of tile, the last rows and columns not full; group of two.
TEST_F(CudaFlash, TilesOfEveryWidth) {
  for (const std::int64_t width : {32, 64, 80, 96, 128, 256}) check({1, 2, 1, 72, width, true}, DType::bf16, 0, true);
}

TEST_F(CudaFlash, WidthsBetweenTiles) {
  for (const std::int64_t width : {8, 40, 88, 136}) check({1, 1, 1, 33, width, true}, DType::f16, 0, true);
}

TEST_F(CudaFlash, SeveralTilesOfQueriesAndKeys) {
  for (const bool causal : {true, false}) {
    check({2, 2, 2, 200, 64, causal}, DType::bf16, 0, true);
    check({1, 1, 1, 150, 128, causal}, DType::f16, 0, true);
  }
}

// 104 columns a head: masks begin at groups; 75: inside them.
TEST_F(CudaFlash, Dropout) {
  for (const std::int64_t width : {64, 128}) {
    for (const std::int64_t seq : {104, 75}) check({2, 2, 1, seq, width, true}, DType::bf16, 0.3, true);
  }
  check({1, 2, 1, 70, 32, false}, DType::f16, 0.5, true);
}

TEST_F(CudaFlash, PlainKernels) {
  for (const double dropout : {0.0, 0.3}) {
    for (const bool causal : {true, false}) {
      check({2, 4, 2, 45, 16, causal}, DType::f32, dropout, true);
      check({1, 2, 1, 37, 9, causal}, DType::bf16, dropout, true);
    }
  }
  check({1, 1, 1, 70, 130, true}, DType::f32, 0, true);
}

// Slot i of (position, sequence, key head) in packed qkv.
std::size_t slot(const AttentionShape& s, std::int64_t t, std::int64_t b, std::int64_t kv, std::int64_t i) {
  return at((((t * s.micro_batch + b) * s.kv_heads + kv) * (s.heads / s.kv_heads + 2) + i) * s.head_dim);
}

// Values are zero but for one key: queries before it must give zero to the bit, the others must not. Keys at the edges
// of tiles of 16, 48, 64 and 128.
TEST_F(CudaFlash, PlantedCausalMask) {
  const AttentionShape s{1, 1, 1, 131, 64, true};
  for (const std::int64_t planted : {0, 15, 16, 47, 48, 63, 64, 127, 128, 130}) {
    Floats x = normal(qkv_size(s), DType::bf16);
    for (std::int64_t t = 0; t < s.seq; ++t)
      for (std::int64_t c = 0; c < s.head_dim; ++c) x[slot(s, t, 0, 0, 2) + at(c)] = t == planted ? 64.0F : 0.0F;
    const Tensor qkv = given(x, DType::bf16), out = poisoned(out_size(s), DType::bf16),
                 logsumexp = poisoned(s.seq, DType::f32);
    device().flash_forward(s, {}, qkv.in(), out.out(), logsumexp.as<float>());
    const Floats y = out.read();
    for (std::int64_t t = 0; t < s.seq; ++t)
      ASSERT_EQ(y[at(t * s.head_dim)] != 0, t >= planted) << "query " << t << ", key " << planted;
  }
}

// The values of each (sequence, key head) are a number of its own: a query head must give that of its group.
TEST_F(CudaFlash, PlantedGroups) {
  const AttentionShape s{2, 6, 2, 40, 32, true};
  for (const DType type : {DType::bf16, DType::f32}) {
    Floats x = normal(qkv_size(s), type);
    for (std::int64_t t = 0; t < s.seq; ++t)
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t kv = 0; kv < 2; ++kv)
          for (std::int64_t c = 0; c < s.head_dim; ++c)
            x[slot(s, t, b, kv, 4) + at(c)] = static_cast<float>(1 << (2 * b + kv));
    const Tensor qkv = given(x, type), out = poisoned(out_size(s), type),
                 logsumexp = poisoned(s.seq * s.micro_batch * s.heads, DType::f32);
    device().flash_forward(s, {}, qkv.in(), out.out(), logsumexp.as<float>());
    const Floats y = out.read();
    for (std::int64_t row = 0; row < s.seq * 2; ++row)
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const auto expected = static_cast<double>(1 << (2 * (row % 2) + h / 3));
        ASSERT_NEAR(y[at((row * s.heads + h) * s.head_dim)], expected, expected * 0.01) << row << " " << h;
      }
  }
}

// Equal scores and values that are unit vectors: output column k of query q is not zero if, and only if, the mask keeps
// (q, k). The masks are those of the unfused kernel, bit for bit.
TEST_F(CudaFlash, MasksAreThoseOfTheUnfusedKernel) {
  for (const DType type : {DType::bf16, DType::f32}) {
    for (const std::int64_t seq : {64, 61}) {
      const AttentionShape s{2, 2, 2, seq, 64, false};
      StepValues step;
      step.step = 4;
      const Tensor on_device = raw(std::vector<StepValues>{step});
      const DropoutSite site = site_of(0.4, on_device);
      Floats x(at(qkv_size(s)), 0.0F);
      for (std::int64_t t = 0; t < seq; ++t)
        for (std::int64_t i = 0; i < 4; ++i) x[slot(s, t, i / 2, i % 2, 2) + at(t)] = 1;
      const std::int64_t scores = 2 * 2 * seq * seq;
      const Tensor ones = given(Floats(at(scores), 1.0F), type), d = poisoned(scores, type),
                   mask = raw(std::vector<std::uint8_t>(at(scores), 7));
      device().attention_dropout(s, site, ones.in(), d.out(), mask.as<std::uint8_t>());
      const auto kept = mask.bytes();
      const Tensor qkv = given(x, type), out = poisoned(out_size(s), type), logsumexp = poisoned(seq * 4, DType::f32);
      device().flash_forward(s, site, qkv.in(), out.out(), logsumexp.as<float>());
      const Floats y = out.read();
      for (std::int64_t i = 0; i < scores; ++i) {
        const std::int64_t key = i % seq, query = i / seq % seq, head = i / seq / seq % 2, batch = i / seq / seq / 2;
        ASSERT_EQ(y[at(((query * 2 + batch) * 2 + head) * 64 + key)] != 0, kept[at(i)] == std::byte{1})
            << "query " << query << ", key " << key << ", head " << head << ", sequence " << batch;
      }
    }
  }
}

// dQ by tiles of 64 and of 128 queries, which one depends on the device: the same bits.
TEST_F(CudaFlash, TilesOfTheQueriesKernelGiveTheSameBits) {
  const AttentionShape s{1, 2, 1, 150, 128, true};
  const FlashCall call(s, {});
  const Tensor qkv = given(normal(qkv_size(s), DType::bf16), DType::bf16),
               d_out = given(normal(out_size(s), DType::bf16), DType::bf16), out = poisoned(out_size(s), DType::bf16),
               logsumexp = poisoned(s.seq * s.heads, DType::f32);
  device().flash_forward(s, {}, qkv.in(), out.out(), logsumexp.as<float>());
  std::vector<std::vector<std::byte>> gradients;
  for (const std::size_t shared : {std::size_t{0}, std::size_t{228} << 10}) {
    const Tensor d_qkv = poisoned(qkv_size(s), DType::bf16);
    FlashTensors x;
    x.qkv = qkv.data();
    x.d_out = d_out.data();
    x.forward_out = out.data();
    x.d_qkv = d_qkv.data();
    x.logsumexp = logsumexp.as<float>();
    x.shared_of_multiprocessor = shared;
    flash_backward_tiles<__nv_bfloat16>(call, x, stream().get());
    gradients.push_back(d_qkv.bytes());
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

// A head_dim that no kernel takes is named.
TEST_F(CudaFlash, WiderHeadsAreRefused) {
  const AttentionShape s{1, 1, 1, 4, 320, true};
  const Tensor qkv = poisoned(qkv_size(s), DType::bf16), out = poisoned(out_size(s), DType::bf16),
               logsumexp = poisoned(4, DType::f32);
  EXPECT_THROW(device().flash_forward(s, {}, qkv.in(), out.out(), logsumexp.as<float>()), DeviceError);
}

}  // namespace
}  // namespace rehearse::kernels::cuda
