// Attention whose tokens are spread over a group of ranks: by all keys at once and by those of one rank after another,
// forward and gradients are those of flash attention over the whole sequence.
#include <string>
#include <vector>

#include "tests/gpu/kernels/cuda_test.h"

namespace rehearse::kernels::cuda {
namespace {

struct ContextCase {
  std::int64_t ranks, chunk;
  AttentionShape rank;  // of one rank
  bool dropout;

  // `several`: sequences, and heads of keys; else one of each.
  ContextCase(std::int64_t group, std::int64_t tokens, bool causal, bool drops, bool several = false)
      : ranks(group),
        chunk(tokens),
        rank{several ? 2 : 1, several ? 4 : 2, several ? 2 : 1, 2 * tokens, 8, causal},
        dropout(drops) {}
  AttentionShape whole() const {
    AttentionShape s = rank;
    s.seq *= ranks;
    return s;
  }
  std::int64_t qkv_row() const { return rank.micro_batch * (rank.heads + 2 * rank.kv_heads) * rank.head_dim; }
  std::int64_t out_row() const { return rank.micro_batch * rank.heads * rank.head_dim; }
  std::int64_t kv_row() const { return rank.micro_batch * rank.kv_heads * 2 * rank.head_dim; }
  std::int64_t group() const { return rank.heads / rank.kv_heads; }
  // Of rows [seq, width] of the whole sequence those that rank `r` holds.
  Floats held(const Floats& all, std::int64_t width, std::int64_t r) const {
    Floats part;
    for (const std::int64_t c : {r, 2 * ranks - 1 - r})
      part.insert(part.end(), all.begin() + c * chunk * width, all.begin() + (c + 1) * chunk * width);
    return part;
  }
  // Of packed rows the keys and values, or the queries.
  Floats part_of(const Floats& qkv, bool queries) const {
    const std::int64_t head = (group() + 2) * rank.head_dim, own = group() * rank.head_dim;
    Floats part;
    for (std::int64_t at = 0; at < static_cast<std::int64_t>(qkv.size()); at += head)
      part.insert(part.end(), qkv.begin() + at + (queries ? 0 : own), qkv.begin() + at + (queries ? own : head));
    return part;
  }
};

class CudaContextAttention : public CudaTest {};

TEST_F(CudaContextAttention, IsThatOfTheWholeSequence) {
  const Tensor values = raw(std::vector<StepValues>{{.step = 2, .first_sequence = 11}});
  for (const ContextCase& c : {ContextCase(2, 5, true, true, true), ContextCase(3, 9, false, true),
                               ContextCase(2, 35, true, false)})  // several tiles, of which some are seen by none
    for (const DType type : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(std::to_string(c.chunk) + " " + std::string(name_of(type)));
      DropoutSite site;
      site.probability = c.dropout ? 0.3 : 0, site.seed = 77, site.step = values.as<StepValues>();
      site.micro_batch = c.rank.micro_batch;
      const AttentionShape whole = c.whole();
      const std::int64_t rows = whole.seq, per_row = c.rank.micro_batch * c.rank.heads;
      const Floats qkv = normal(rows * c.qkv_row(), type), d_out = normal(rows * c.out_row(), type);
      const Tensor x = given(qkv, DType::f32), dy = given(d_out, DType::f32),
                   out = poisoned(rows * c.out_row(), DType::f32), lse = poisoned(rows * per_row, DType::f32),
                   dx = poisoned(rows * c.qkv_row(), DType::f32);
      device().flash_forward(whole, site, x.in(), out.out(), lse.as<float>());
      device().flash_backward(whole, site, dy.in(), x.in(), out.in(), lse.as<float>(), dx.out());
      stream().synchronize();
      const Floats expected_out = out.read(), expected_lse = lse.read(), expected_dx = dx.read();
      const double limit = type == DType::f32 ? 1e-5 : 2e-2;
      std::vector<Floats> own_keys;
      Floats all_keys;
      for (std::int64_t r = 0; r < c.ranks; ++r) {
        own_keys.push_back(c.part_of(c.held(qkv, c.qkv_row(), r), false));
        all_keys.insert(all_keys.end(), own_keys.back().begin(), own_keys.back().end());
      }
      for (const bool ring : {false, true}) {
        std::vector<Values> d_keys(at(c.ranks), Values(at(c.rank.seq * c.kv_row()), 0));
        for (std::int64_t r = 0; r < c.ranks; ++r) {
          const Tensor own = given(c.held(qkv, c.qkv_row(), r), type),
                       d_own = given(c.held(d_out, c.out_row(), r), type), y = poisoned(c.rank.seq * c.out_row(), type),
                       sums = poisoned(c.rank.seq * per_row, DType::f32),
                       d_q = poisoned(c.rank.seq * c.out_row(), type);
          // The ranks whose keys a step takes: all at once, or our own first and then those before us.
          std::vector<std::int64_t> steps = {-1};
          if (ring) steps.clear();
          for (std::int64_t i = 0; ring && i < c.ranks; ++i) steps.push_back((r - i + c.ranks) % c.ranks);
          const auto keys_of = [&](std::int64_t k) { return k < 0 ? all_keys : own_keys[at(k)]; };
          for (std::size_t i = 0; i < steps.size(); ++i) {
            const Tensor keys = given(keys_of(steps[i]), type);
            device().context_forward(c.rank, {c.ranks, r, steps[i], i > 0}, site, own.in(), keys.in(), y.out(),
                                     sums.as<float>());
            stream().synchronize();
          }
          EXPECT_LE(relative_error(y.read(), doubles(c.held(expected_out, c.out_row(), r))), limit) << "rank " << r;
          EXPECT_LE(relative_error(sums.read(), doubles(c.held(expected_lse, per_row, r))), limit) << "rank " << r;
          for (std::size_t i = 0; i < steps.size(); ++i) {
            const Floats of = keys_of(steps[i]);
            const Tensor keys = given(of, type), d_kv = poisoned(static_cast<std::int64_t>(of.size()), type);
            device().context_backward(c.rank, {c.ranks, r, steps[i], i > 0}, site, d_own.in(), own.in(), keys.in(),
                                      y.in(), sums.as<float>(), d_q.out(), d_kv.out());
            stream().synchronize();
            const Floats made = d_kv.read();
            const std::size_t each = d_keys.front().size();
            for (std::size_t e = 0; e < made.size(); ++e)
              d_keys[steps[i] < 0 ? e / each : at(steps[i])][e % each] += double{made[e]};
          }
          EXPECT_LE(relative_error(d_q.read(), doubles(c.part_of(c.held(expected_dx, c.qkv_row(), r), true))), limit)
              << "rank " << r;
        }
        for (std::int64_t r = 0; r < c.ranks; ++r)
          EXPECT_LE(relative_error(Floats(d_keys[at(r)].begin(), d_keys[at(r)].end()),
                                   doubles(c.part_of(c.held(expected_dx, c.qkv_row(), r), false))),
                    limit)
              << "keys of rank " << r << (ring ? ", ring" : ", all at once");
      }
    }
}

}  // namespace
}  // namespace rehearse::kernels::cuda
