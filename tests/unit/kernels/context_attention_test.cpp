// Attention whose tokens are spread over a group of ranks: by all keys at once and by those of one rank after another,
// forward and gradients are those of flash attention over the whole sequence.
#include <algorithm>

#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

constexpr StepValues kContextStep = {.step = 2, .first_sequence = 11};

struct ContextCase {
  std::int64_t ranks, chunk;
  AttentionShape rank;  // of one rank
  DropoutSite site;

  ContextCase(std::int64_t group, std::int64_t tokens, bool causal, double dropout)
      : ranks(group), chunk(tokens), rank{2, 4, 2, 2 * tokens, 8, causal} {
    site.probability = dropout, site.seed = 77, site.step = &kContextStep, site.micro_batch = rank.micro_batch;
  }
  AttentionShape whole() const {
    AttentionShape s = rank;
    s.seq *= ranks;
    return s;
  }
  std::int64_t qkv_row() const { return rank.micro_batch * (rank.heads + 2 * rank.kv_heads) * rank.head_dim; }
  std::int64_t out_row() const { return rank.micro_batch * rank.heads * rank.head_dim; }
  std::int64_t kv_row() const { return rank.micro_batch * rank.kv_heads * 2 * rank.head_dim; }
  // Of rows [seq, width] of the whole sequence those that rank `r` holds, and their way back.
  Floats held(const Floats& all, std::int64_t width, std::int64_t r) const {
    Floats part;
    for (const std::int64_t c : {r, 2 * ranks - 1 - r})
      part.insert(part.end(), all.begin() + c * chunk * width, all.begin() + (c + 1) * chunk * width);
    return part;
  }
  // The keys and values of packed rows.
  Floats keys(const Floats& qkv) const {
    const std::int64_t group = rank.heads / rank.kv_heads, head = (group + 2) * rank.head_dim;
    Floats kv;
    for (std::int64_t at = 0; at < static_cast<std::int64_t>(qkv.size()); at += head)
      kv.insert(kv.end(), qkv.begin() + at + group * rank.head_dim, qkv.begin() + at + head);
    return kv;
  }
};

std::vector<ContextCase> context_cases() {
  std::vector<ContextCase> all;
  for (const double dropout : {0.0, 0.3})
    for (const bool causal : {true, false}) {
      all.emplace_back(2, 5, causal, dropout);
      all.emplace_back(3, 37, causal, dropout);
      all.emplace_back(2, 150, causal, dropout);  // several tiles a chunk
    }
  return all;
}

class ContextAttention : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Threads, ContextAttention, testing::Values(1, 3));

TEST_P(ContextAttention, IsThatOfTheWholeSequence) {
  for (const ContextCase& c : context_cases()) {
    SCOPED_TRACE(std::to_string(c.chunk) + (c.rank.causal ? " causal" : " full") + " dropout " +
                 std::to_string(c.site.probability));
    const AttentionShape whole = c.whole();
    const Floats qkv = random.normal(whole.seq * c.qkv_row()), d_out = random.normal(whole.seq * c.out_row());
    Floats out = poisoned(whole.seq * c.out_row()), logsumexp = poisoned(whole.seq * c.rank.micro_batch * c.rank.heads);
    Floats d_qkv = poisoned(whole.seq * c.qkv_row());
    device->flash_forward(whole, c.site, qkv.data(), out.data(), logsumexp.data());
    device->flash_backward(whole, c.site, d_out.data(), qkv.data(), out.data(), logsumexp.data(), d_qkv.data());

    std::vector<Floats> own_keys;
    Floats all_keys;
    for (std::int64_t r = 0; r < c.ranks; ++r) {
      own_keys.push_back(c.keys(c.held(qkv, c.qkv_row(), r)));
      all_keys.insert(all_keys.end(), own_keys.back().begin(), own_keys.back().end());
    }
    for (const bool ring : {false, true}) {
      std::vector<Values> d_keys(static_cast<std::size_t>(c.ranks),
                                 Values(static_cast<std::size_t>(c.rank.seq * c.kv_row())));
      for (std::int64_t r = 0; r < c.ranks; ++r) {
        const Floats own = c.held(qkv, c.qkv_row(), r), d_own = c.held(d_out, c.out_row(), r);
        Floats y = poisoned(c.rank.seq * c.out_row()), lse = poisoned(c.rank.seq * c.rank.micro_batch * c.rank.heads);
        Floats d_q = poisoned(c.rank.seq * c.out_row());
        // The ranks whose keys a step takes: all at once, or our own first and then those before us.
        std::vector<std::int64_t> steps = {-1};
        if (ring) {
          steps.clear();
          for (std::int64_t i = 0; i < c.ranks; ++i) steps.push_back((r - i + c.ranks) % c.ranks);
        }
        const auto keys_of = [&](std::int64_t k) -> const Floats& {
          return k < 0 ? all_keys : own_keys[static_cast<std::size_t>(k)];
        };
        for (std::size_t i = 0; i < steps.size(); ++i)
          device->context_forward(c.rank, {c.ranks, r, steps[i], i > 0}, c.site, own.data(), keys_of(steps[i]).data(),
                                  y.data(), lse.data());
        EXPECT_LE(relative_error(y, doubles(c.held(out, c.out_row(), r))), kTolerance) << "rank " << r;
        EXPECT_LE(relative_error(lse, doubles(c.held(logsumexp, c.rank.micro_batch * c.rank.heads, r))), kTolerance);
        for (std::size_t i = 0; i < steps.size(); ++i) {
          const Floats& keys = keys_of(steps[i]);
          Floats d_kv = poisoned(static_cast<std::int64_t>(keys.size()));
          device->context_backward(c.rank, {c.ranks, r, steps[i], i > 0}, c.site, d_own.data(), own.data(), keys.data(),
                                   y.data(), lse.data(), d_q.data(), d_kv.data());
          const std::size_t each = d_keys.front().size();
          for (std::size_t e = 0; e < d_kv.size(); ++e)
            d_keys[steps[i] < 0 ? e / each : static_cast<std::size_t>(steps[i])][e % each] += double{d_kv[e]};
        }
        // The queries' part of the whole gradient.
        const std::int64_t group = c.rank.heads / c.rank.kv_heads, head = (group + 2) * c.rank.head_dim;
        const Floats expected = c.held(d_qkv, c.qkv_row(), r);
        Values queries;
        for (std::int64_t at = 0; at < static_cast<std::int64_t>(expected.size()); at += head)
          queries.insert(queries.end(), expected.begin() + at, expected.begin() + at + group * c.rank.head_dim);
        EXPECT_LE(relative_error(d_q, queries), kTolerance) << "rank " << r;
      }
      for (std::int64_t r = 0; r < c.ranks; ++r) {
        const Values& sum = d_keys[static_cast<std::size_t>(r)];
        EXPECT_LE(relative_error(Floats(sum.begin(), sum.end()), doubles(c.keys(c.held(d_qkv, c.qkv_row(), r)))),
                  kTolerance)
            << "keys of rank " << r << (ring ? ", ring" : ", all at once");
      }
    }
  }
}

TEST_P(ContextAttention, StridedCopiesMoveTheirPiecesOnly) {
  const StridedCopy copy{3, 2, 4, {10, 5, 1}, {4, 12, 0}};
  const Floats x = random.normal(40);
  Floats y(30, -1.0F), expected = y;
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 2; ++j)
      for (std::int64_t e = 0; e < 4; ++e)
        expected[static_cast<std::size_t>(i * 4 + j * 12 + e)] = x[static_cast<std::size_t>(1 + i * 10 + j * 5 + e)];
  device->copy_strided(copy, x.data(), y.data());
  EXPECT_EQ(y, expected);
}

}  // namespace
}  // namespace rehearse::kernels
