// Flash and unfused attention against plain loops, their gradients against differences, and masks that are the same in
// both and do not depend on how heads and sequences are split.
#include <numeric>

#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

constexpr StepValues kStep = {.step = 2, .first_sequence = 11};

DropoutSite site_of(double probability) {
  return {.probability = probability, .seed = 0x1234567890ABCDEF, .step = &kStep, .micro_batch = 3};
}

std::int64_t qkv_size(const AttentionShape& s) {
  return s.seq * s.micro_batch * (s.heads * s.head_dim + s.kv_heads * (s.head_dim + s.values()));
}
std::int64_t out_size(const AttentionShape& s) {
  return s.seq * s.micro_batch * s.heads * s.values();
}
std::int64_t score_size(const AttentionShape& s) {
  return s.micro_batch * s.heads * s.seq * s.seq;
}

AttentionShape windowed(AttentionShape s, std::int64_t window) {
  s.window = window;
  return s;
}

AttentionShape capped(AttentionShape s, double cap, std::int64_t scale) {
  s.softcap = cap, s.score_scale = scale;
  return s;
}

struct Case {
  AttentionShape shape;
  double dropout;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const double dropout : {0.0, 0.3}) {
    for (const bool causal : {true, false}) {
      all.push_back({{2, 4, 2, 5, 6, causal}, dropout});     // gradients checked whole
      all.push_back({{3, 2, 2, 37, 8, causal}, dropout});    // one tile, sequence not a multiple of anything
      all.push_back({{1, 3, 1, 261, 16, causal}, dropout});  // tiles of keys and queries, the last of five rows
      all.push_back({{2, 4, 2, 5, 6, causal, 4}, dropout});  // values narrower and wider than queries and keys
      all.push_back({{1, 2, 1, 133, 8, causal, 13}, dropout});
    }
    // A window of the query alone, of less than a tile, of a tile and of none, of several and a part, and one that is
    // not felt.
    for (const std::int64_t window : {1, 2, 4, 9}) all.push_back({windowed({2, 4, 2, 5, 6}, window), dropout});
    for (const std::int64_t window : {1, 7, 64, 65, 128, 150, 300, 399, 400, 1000})
      all.push_back({windowed({1, 3, 1, 400, 16}, window), dropout});
    all.push_back({windowed({2, 4, 2, 133, 6, true, 4}, 70), dropout});
    // Capped, so that some scores are bent far, with another scale than that of the width, and a window.
    all.push_back({capped({2, 4, 2, 5, 6}, 0.7, 0), dropout});
    all.push_back({capped({2, 4, 2, 5, 6}, 0, 3), dropout});
    all.push_back({capped(windowed({1, 3, 1, 261, 16}, 70), 1.5, 5), dropout});
    all.push_back({capped({1, 2, 2, 133, 8, false}, 2, 0), dropout});
  }
  return all;
}

std::string describe(const Case& c) {
  return std::to_string(c.shape.seq) + (c.shape.causal ? " causal" : " full") + " window " +
         std::to_string(c.shape.window) + " dropout " + std::to_string(c.dropout) + " cap " +
         std::to_string(c.shape.softcap);
}

class AttentionTest : public KernelTest {
 protected:
  Floats flash(const AttentionShape& s, const DropoutSite& site, const Floats& qkv, Floats* logsumexp) {
    Floats out = poisoned(out_size(s));
    *logsumexp = poisoned(s.seq * s.micro_batch * s.heads);
    device->flash_forward(s, site, qkv.data(), out.data(), logsumexp->data());
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Threads, AttentionTest, testing::Values(1, 3));

TEST_P(AttentionTest, FlashForwardEqualsTheWholeMatrix) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const Floats qkv = random.normal(qkv_size(c.shape), 2);
    Floats logsumexp;
    const Floats out = flash(c.shape, site_of(c.dropout), qkv, &logsumexp);
    const auto expected = reference::attention(c.shape, site_of(c.dropout), doubles(qkv));
    EXPECT_LE(relative_error(out, expected.out), kTolerance);
    EXPECT_LE(relative_error(logsumexp, expected.logsumexp), kTolerance);
  }
}

TEST_P(AttentionTest, FlashBackwardIsTheGradient) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const DropoutSite site = site_of(c.dropout);
    const Floats qkv = random.normal(qkv_size(c.shape)), d_out = random.normal(out_size(c.shape));
    Floats logsumexp, d_qkv = poisoned(qkv_size(c.shape));
    const Floats out = flash(c.shape, site, qkv, &logsumexp);
    device->flash_backward(c.shape, site, d_out.data(), qkv.data(), out.data(), logsumexp.data(), d_qkv.data());
    const auto loss = [&](const Values& x) { return dot(reference::attention(c.shape, site, x).out, doubles(d_out)); };
    expect_gradient(loss, qkv, doubles(d_qkv));
  }
}

TEST_P(AttentionTest, EachUnfusedPartEqualsThePlainLoops) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const AttentionShape& s = c.shape;
    const Floats qkv = random.normal(qkv_size(s), 2);
    Floats scores = poisoned(score_size(s)), p = scores, d = scores, out = poisoned(out_size(s));
    std::vector<std::uint8_t> mask(at(score_size(s)), 77);
    device->attention_scores(s, qkv.data(), scores.data());
    device->attention_softmax(s, scores.data(), p.data());
    device->attention_dropout(s, site_of(c.dropout), p.data(), d.data(), mask.data());
    device->attention_context(s, d.data(), qkv.data(), out.data());
    const auto expected = reference::attention(s, site_of(c.dropout), doubles(qkv));
    EXPECT_LE(relative_error(scores, expected.scores), kTolerance);
    EXPECT_LE(relative_error(p, expected.p), kTolerance);
    EXPECT_LE(relative_error(d, expected.d), kTolerance);
    EXPECT_LE(relative_error(out, expected.out), kTolerance);
    for (std::size_t i = 0; i < mask.size(); ++i) ASSERT_EQ(mask[i], expected.d[i] != 0 ? 1 : 0) << i;
  }
}

TEST_P(AttentionTest, UnfusedBackwardIsTheGradientAndThatOfFlash) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(describe(c));
    const AttentionShape& s = c.shape;
    const DropoutSite site = site_of(c.dropout);
    const Floats qkv = random.normal(qkv_size(s)), d_out = random.normal(out_size(s));
    Floats p = poisoned(score_size(s)), d = p, d_d = p, d_p = p, d_s = p, scores = p, d_qkv = poisoned(qkv_size(s));
    std::vector<std::uint8_t> mask(at(score_size(s)));
    device->attention_scores(s, qkv.data(), scores.data());
    device->attention_softmax(s, scores.data(), p.data());
    device->attention_dropout(s, site, p.data(), d.data(), mask.data());
    device->attention_context_backward_probs(s, d_out.data(), qkv.data(), d_d.data());
    device->attention_context_backward_value(s, d_out.data(), d.data(), d_qkv.data());
    device->attention_dropout_backward(s, c.dropout, d_d.data(), mask.data(), d_p.data());
    if (s.softcap > 0)
      device->attention_capped_softmax_backward(s, d_p.data(), p.data(), scores.data(), d_s.data());
    else
      device->attention_softmax_backward(s, d_p.data(), p.data(), d_s.data());
    device->attention_scores_backward_query(s, d_s.data(), qkv.data(), d_qkv.data());
    device->attention_scores_backward_key(s, d_s.data(), qkv.data(), d_qkv.data());
    const auto loss = [&](const Values& x) { return dot(reference::attention(s, site, x).out, doubles(d_out)); };
    expect_gradient(loss, qkv, doubles(d_qkv));

    Floats logsumexp, from_flash = poisoned(qkv_size(s));
    const Floats out = flash(s, site, qkv, &logsumexp);
    device->flash_backward(s, site, d_out.data(), qkv.data(), out.data(), logsumexp.data(), from_flash.data());
    EXPECT_LE(relative_error(d_qkv, doubles(from_flash)), kTolerance);
  }
}

// Given P = 1 everywhere, the mask of four heads is the masks of two ranks of two heads, and that of a sequence does
// not depend on which others share its micro-batch.
TEST_P(AttentionTest, MasksDoNotDependOnTheSplitOfHeadsAndSequences) {
  const AttentionShape whole{2, 4, 4, 9, 4, false};
  const Floats ones(at(score_size(whole)), 1.0f);
  Floats d = poisoned(score_size(whole));
  std::vector<std::uint8_t> mask(ones.size());
  device->attention_dropout(whole, site_of(0.4), ones.data(), d.data(), mask.data());
  const AttentionShape part{1, 2, 2, 9, 4, false};
  for (std::int64_t batch = 0; batch < 2; ++batch) {
    for (std::int64_t first_head = 0; first_head < 4; first_head += 2) {
      DropoutSite site = site_of(0.4);
      site.first_sequence = batch;
      site.first_head = first_head;
      std::vector<std::uint8_t> mine(at(score_size(part)));
      device->attention_dropout(part, site, ones.data(), d.data(), mine.data());
      const auto begin = mask.begin() + (batch * 4 + first_head) * 81;
      EXPECT_EQ(mine, std::vector<std::uint8_t>(begin, begin + 2 * 81)) << batch << " " << first_head;
    }
  }
}

// The same for flash, on its outputs: heads [2, 4) alone give those columns of the whole, to the bit.
TEST_P(AttentionTest, FlashOfAShardOfHeadsIsTheShardOfFlash) {
  const AttentionShape whole{1, 4, 4, 150, 8}, part{1, 2, 2, 150, 8};
  const Floats qkv = random.normal(qkv_size(whole));
  Floats shard, logsumexp;
  for (std::size_t t = 0; t < 150; ++t) {
    const auto row = qkv.begin() + static_cast<std::ptrdiff_t>(t * 4 * 3 * 8);
    shard.insert(shard.end(), row + 2 * 3 * 8, row + 4 * 3 * 8);
  }
  DropoutSite site = site_of(0.2);
  const Floats out = flash(whole, site, qkv, &logsumexp);
  site.first_head = 2;
  const Floats mine = flash(part, site, shard, &logsumexp);
  for (std::size_t t = 0; t < 150; ++t) {
    for (std::size_t c = 0; c < 16; ++c) ASSERT_EQ(mine[t * 16 + c], out[t * 32 + 16 + c]) << t << " " << c;
  }
}

TEST_P(AttentionTest, AWindowAsLongAsTheSequenceChangesNoBit) {
  const AttentionShape s{2, 4, 2, 150, 8};
  const DropoutSite site = site_of(0.2);
  const Floats qkv = random.normal(qkv_size(s)), d_out = random.normal(out_size(s));
  Floats logsumexp, d_qkv = poisoned(qkv_size(s));
  const Floats out = flash(s, site, qkv, &logsumexp);
  device->flash_backward(s, site, d_out.data(), qkv.data(), out.data(), logsumexp.data(), d_qkv.data());
  for (const std::int64_t window : {150, 151, 4096}) {
    const AttentionShape same = windowed(s, window);
    Floats again, d_again = poisoned(qkv_size(s));
    EXPECT_EQ(flash(same, site, qkv, &again), out) << window;
    EXPECT_EQ(again, logsumexp) << window;
    device->flash_backward(same, site, d_out.data(), qkv.data(), out.data(), logsumexp.data(), d_again.data());
    EXPECT_EQ(d_again, d_qkv) << window;
  }
}

// What is outside the window is not read: not a number there reaches nobody else.
TEST_P(AttentionTest, NotANumberReachesEveryQueryWhoseWindowHasIt) {
  const AttentionShape s = windowed({1, 1, 1, 400, 8}, 150);
  Floats qkv = random.normal(qkv_size(s)), logsumexp;
  qkv[(133 * 3 + 1) * 8] = std::numeric_limits<float>::quiet_NaN();  // a key
  const Floats out = flash(s, {}, qkv, &logsumexp);
  for (std::size_t t = 0; t < 400; ++t) EXPECT_EQ(std::isnan(out[t * 8]), t >= 133 && t < 133 + 150) << t;
}

TEST_P(AttentionTest, NotANumberReachesEveryQueryThatSeesIt) {
  const AttentionShape s{1, 1, 1, 140, 8};
  Floats qkv = random.normal(qkv_size(s)), logsumexp;
  qkv[(133 * 3 + 1) * 8] = std::numeric_limits<float>::quiet_NaN();  // a key
  const Floats out = flash(s, {}, qkv, &logsumexp);
  for (std::size_t t = 0; t < 140; ++t) EXPECT_EQ(std::isnan(out[t * 8]), t >= 133) << t;
}

}  // namespace
}  // namespace rehearse::kernels
