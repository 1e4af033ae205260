// Flash attention on the matrix units and by multiply-adds against the whole matrix in double precision: widths, odd
// lengths, causal or not, grouped queries, dropout; gradients against those of the plain loops, written out here.
#include "kernels/dropout.h"
#include "tests/gpu/kernels/cuda_test.h"
#include "tests/unit/kernels/reference.h"

namespace rehearse::kernels::cuda {
namespace {

std::int64_t qkv_size(const AttentionShape& s) {
  return s.seq * s.micro_batch * (s.heads + 2 * s.kv_heads) * s.head_dim;
}
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

}  // namespace
}  // namespace rehearse::kernels::cuda
