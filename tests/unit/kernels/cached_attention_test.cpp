// Attention of a token that is decoded, against that of the last token of the whole sequence; and rows times factors.
#include <algorithm>

#include "kernels/attention_shapes.h"
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

struct Decoded {
  std::int64_t heads, kv_heads, head_dim, value_dim, window;
  double softcap;
  std::int64_t score_scale;
  std::int64_t alibi_heads = 0, first_head = 0;
};

// Sequences of unlike lengths, one of which asks nothing, by one thread and by three.
TEST(CachedAttention, IsTheLastTokensOfTheWholeSequence) {
  for (const Decoded& c :
       {Decoded{4, 2, 6, 6, 0, 0, 0}, Decoded{4, 4, 8, 5, 0, 0, 0}, Decoded{3, 1, 6, 6, 7, 0, 0},
        Decoded{2, 2, 8, 8, 3, 1.5, 5}, Decoded{4, 2, 6, 6, 0, 0, 0, 12, 4}, Decoded{3, 3, 6, 6, 5, 0, 0, 3, 0}})
    for (const int threads : {1, 3}) {
      const std::vector<std::int64_t> lengths = {1, 19, 0, 4};
      const std::int64_t own = c.head_dim + c.value_dim, group = c.heads / c.kv_heads,
                         packed = c.kv_heads * (group * c.head_dim + own);
      Random random(5);
      const auto device = make_cpu_device(threads);
      std::vector<Floats> caches, expected;
      Floats qkv;
      std::vector<CachedSequence> sequences;
      for (const std::int64_t length : lengths) {
        AttentionShape s{1, c.heads, c.kv_heads, length, c.head_dim, true, c.value_dim};
        s.window = c.window, s.softcap = c.softcap, s.score_scale = c.score_scale;
        s.alibi_heads = c.alibi_heads, s.first_head = c.first_head;
        const Floats whole = random.normal(std::max<std::int64_t>(1, length) * packed);
        Floats out = poisoned(length * c.heads * c.value_dim), logsumexp = poisoned(length * c.heads), cache;
        if (length > 0) device->flash_forward(s, {}, whole.data(), out.data(), logsumexp.data());
        for (std::int64_t row = 0; row < length * c.kv_heads; ++row) {
          const auto begin = whole.begin() + row * (group * c.head_dim + own) + group * c.head_dim;
          cache.insert(cache.end(), begin, begin + own);
        }
        qkv.insert(qkv.end(), whole.end() - packed, whole.end());
        caches.push_back(std::move(cache));
        if (length == 0) out.assign(at(c.heads * c.value_dim), 0);
        expected.emplace_back(out.end() - c.heads * c.value_dim, out.end());
      }
      for (std::size_t i = 0; i < lengths.size(); ++i) sequences.push_back({caches[i].data(), lengths[i]});
      AttentionShape s{
          static_cast<std::int64_t>(lengths.size()), c.heads, c.kv_heads, 1, c.head_dim, true, c.value_dim};
      s.window = c.window, s.softcap = c.softcap, s.score_scale = c.score_scale;
      s.alibi_heads = c.alibi_heads, s.first_head = c.first_head;
      Floats out = poisoned(s.micro_batch * c.heads * c.value_dim);
      device->cached_attention(s, sequences, qkv.data(), out.data());
      for (std::size_t i = 0; i < lengths.size(); ++i)
        for (std::int64_t d = 0; d < c.heads * c.value_dim; ++d)
          EXPECT_NEAR(out[i * at(c.heads * c.value_dim) + at(d)], expected[i][at(d)], 1e-5)
              << "heads " << c.heads << " window " << c.window << " sequence " << i << " column " << d;
    }
}

TEST(ScaleRows, EachRowHasItsFactor) {
  Random random(3);
  const Floats x = random.normal(7 * 11), factors = random.normal(7);
  for (const int threads : {1, 3}) {
    Floats y = x;
    make_cpu_device(threads)->scale_rows(7, 11, factors.data(), y.data());
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], x[i] * factors[i / 11]);
  }
}

}  // namespace
}  // namespace rehearse::kernels
