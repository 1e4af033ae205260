// Documents packed into sequences: how long they are, which pairs of tokens they leave, and what is refused.
#include "sim/plan/documents.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using Lengths = std::vector<std::int64_t>;

Training packed(Documents kind, std::int64_t seq_len, std::int64_t length, double sigma = 1) {
  Training t;
  t.documents = kind, t.seq_len = seq_len, t.document_length = length, t.document_sigma = sigma;
  t.global_batch = 64;
  return t;
}

TEST(PackedDocuments, FillASequenceAndTheLastOneIsCut) {
  EXPECT_EQ(document_lengths(packed(Documents::none, 10, 0), 3), (Lengths{10}));
  EXPECT_EQ(document_lengths(packed(Documents::fixed, 10, 4), 3), (Lengths{4, 4, 2}));
  EXPECT_EQ(document_lengths(packed(Documents::fixed, 10, 400), 3), (Lengths{10}));
  for (const Documents kind : {Documents::uniform, Documents::lognormal})
    for (std::int64_t example = 0; example < 50; ++example) {
      const Lengths lengths = document_lengths(packed(kind, 1000, 90), example);
      EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), 1000);
      EXPECT_GE(*std::min_element(lengths.begin(), lengths.end()), 1);
    }
}

// Lengths of all documents but each sequence's last one: uniform ones have mean 90 and stay below 180; lognormal ones
// of sigma 0.5 have mean 90 and median 90 exp(-1/8) = 79.4. Sequences are so long that what is cut does not count.
TEST(PackedDocuments, HaveTheDistributionsMeanAndMedian) {
  const auto drawn = [](Documents kind) {
    Lengths all;
    for (std::int64_t example = 0; example < 20; ++example) {
      const Lengths lengths = document_lengths(packed(kind, 100'000, 90, 0.5), example);
      all.insert(all.end(), lengths.begin(), lengths.end() - 1);
    }
    std::sort(all.begin(), all.end());
    return all;
  };
  const auto mean = [](const Lengths& all) {
    return static_cast<double>(std::accumulate(all.begin(), all.end(), std::int64_t{0})) /
           static_cast<double>(all.size());
  };
  const Lengths uniform = drawn(Documents::uniform), lognormal = drawn(Documents::lognormal);
  EXPECT_NEAR(mean(uniform), 90, 1.5);
  EXPECT_EQ(uniform.front(), 1);
  EXPECT_EQ(uniform.back(), 179);
  EXPECT_NEAR(mean(lognormal), 90, 1.5);
  EXPECT_NEAR(static_cast<double>(lognormal[lognormal.size() / 2]), 79.4, 1.5);
}

TEST(PackedDocuments, DependOnSeedAndExampleAlone) {
  Training t = packed(Documents::uniform, 1000, 90);
  const Lengths first = document_lengths(t, 5);
  EXPECT_NE(document_lengths(t, 6), first);
  t.global_batch = 128;
  EXPECT_EQ(document_lengths(t, 5), first);
  t.seed = 2;
  EXPECT_NE(document_lengths(t, 5), first);
}

TEST(PackedDocuments, OfATableHaveItsLengths) {
  Training t = packed(Documents::table, 1000, 0);
  t.document_lengths = {70, 130};
  const Lengths lengths = document_lengths(t, 0);
  EXPECT_EQ(std::count(lengths.begin(), lengths.end() - 1, 70) + std::count(lengths.begin(), lengths.end() - 1, 130),
            static_cast<std::ptrdiff_t>(lengths.size()) - 1);
  EXPECT_GT(std::count(lengths.begin(), lengths.end(), 70), 0);
  EXPECT_GT(std::count(lengths.begin(), lengths.end(), 130), 0);
}

// Counted pair by pair, of all tokens and of two runs of them.
TEST(PackedDocuments, PairsAreThoseThatStartsLeave) {
  const Training t = packed(Documents::uniform, 96, 20);
  for (const std::vector<TokenRun>& runs : {std::vector<TokenRun>{{0, 96}}, {{12, 12}, {72, 12}}})
    for (std::int64_t example = 0; example < 8; ++example) {
      std::vector<std::int32_t> starts(96);
      document_starts(t, example, starts.data());
      for (const std::int64_t window : {0, 1, 7, 19, 500}) {
        std::int64_t pairs = 0;
        for (const TokenRun& run : runs)
          for (std::int64_t q = run.first; q < run.first + run.count; ++q)
            for (std::int64_t k = window == 0 ? 0 : std::max<std::int64_t>(0, q - window + 1); k <= q; ++k)
              pairs += starts[static_cast<std::size_t>(k)] == starts[static_cast<std::size_t>(q)] ? 1 : 0;
        EXPECT_EQ(document_pairs(t, example, runs, window), pairs) << example << ", window " << window;
      }
    }
}

TEST(PackedDocuments, EqualOnesHaveTheMeanOfSquaresOverThatOfLengths) {
  EXPECT_EQ(equal_document_length(packed(Documents::none, 1000, 0)), 0);
  EXPECT_EQ(equal_document_length(packed(Documents::fixed, 1000, 250)), 250);
  EXPECT_EQ(equal_document_length(packed(Documents::fixed, 1000, 400)), 360) << "(400^2 + 400^2 + 200^2) / 1000";
  // Of long sequences E[L^2] / E[L] = mean exp(sigma^2).
  EXPECT_NEAR(static_cast<double>(equal_document_length(packed(Documents::lognormal, 200'000, 100, 0.5))),
              100 * std::exp(0.25), 2);
}

// Of documents of 8, 12 and 4 tokens, cut into four: ranks have the first and the last quarter, and the two between;
// all see as many pairs. Every token is on one rank.
TEST(PackedDocuments, ARingHasTwoChunksOfEachDocument) {
  Training t;
  t.seq_len = 24, t.documents = Documents::table, t.document_lengths = {8, 12, 4};
  Plan plan;
  plan.context = 2;
  for (std::int64_t example = 0; example < 20; ++example) {
    std::vector<int> times(24, 0);
    std::vector<std::int64_t> pairs;
    for (int rank = 0; rank < 2; ++rank) {
      const std::vector<TokenRun> held = held_tokens(plan, t, example, rank);
      pairs.push_back(document_pairs(t, example, held));
      std::int64_t first = 0;
      std::size_t run = 0;
      for (const std::int64_t length : document_lengths(t, example)) {
        const std::int64_t chunk = length / 4;
        for (const std::int64_t place : {rank, 3 - rank}) {
          EXPECT_EQ(held[run].first, first + place * chunk);
          EXPECT_EQ(held[run++].count, chunk);
        }
        first += length;
      }
      EXPECT_EQ(run, held.size());
      for (const TokenRun& r : held)
        for (std::int64_t i = r.first; i < r.first + r.count; ++i) ++times[static_cast<std::size_t>(i)];
    }
    EXPECT_EQ(times, std::vector<int>(24, 1));
    EXPECT_EQ(pairs[0], pairs[1]);
    EXPECT_EQ(pairs[0] + pairs[1], document_pairs(t, example, {{0, 24}}));
  }
  plan.context_kind = ContextKind::all_gather;
  EXPECT_EQ(held_tokens(plan, t, 0, 1).size(), 2U) << "of the whole row";
}

TEST(PackedDocuments, RulesNameTheKey) {
  const auto found = [](const std::string& rest) { return problems("rehearse: 1\n" + kSmallModel + rest); };
  using List = std::vector<std::string>;
  EXPECT_EQ(found("training: {documents: lognormal, document_length: 40, document_sigma: 0.5}\n"), List{});
  EXPECT_EQ(found("training: {documents: table, document_lengths: [8, 60]}\n"), List{});
  EXPECT_EQ(found("training: {documents: log-normal}\n"),
            (List{"3:23 training.documents: expected one of none, fixed, uniform, lognormal, table, found 'log-normal' "
                  "(did you mean 'lognormal'?)"}));
  EXPECT_EQ(found("training: {documents: uniform}\n"),
            (List{"3:23 training.documents: needs document_length, the tokens of a document or their mean "
                  "(document_length: 1024)"}));
  EXPECT_EQ(
      found("training: {documents: table}\n"),
      (List{"3:23 training.documents: table needs document_lengths, a list of tokens (document_lengths: [128, 512, "
            "4096])"}));
  EXPECT_EQ(
      found("training: {document_length: 40}\n"),
      (List{"3:29 training.document_length: belongs to documents: fixed, uniform or lognormal (or leave it out)"}));
  EXPECT_EQ(found("training: {documents: fixed, document_length: 40, document_sigma: 2}\n"),
            (List{"3:67 training.document_sigma: belongs to documents: lognormal (or leave it out)"}));
  const auto ring = [&](const std::string& documents, const std::string& plan = "") {
    return found("cluster: {gpus: 2}\nplan: {context: 2" + plan +
                 "}\ntraining: {seq_len: 128, documents: " + documents + "}\n");
  };
  EXPECT_EQ(ring("fixed, document_length: 40"), List{});
  EXPECT_EQ(ring("table, document_lengths: [8, 60]"), List{});
  EXPECT_EQ(
      ring("table, document_lengths: [8, 61]"),
      (List{"5:66 training.document_lengths[1]: a document of 61 tokens does not divide into 2 * context = 4 equal "
            "chunks; nearest that do: 60 or 64"}));
  EXPECT_EQ(ring("fixed, document_length: 42").size(), 1U);
  const List drawn = ring("uniform, document_length: 40");
  ASSERT_EQ(drawn.size(), 1U);
  EXPECT_NE(
      drawn[0].find("training.documents: context_kind: ring cuts each document into 2 * context = 4 equal chunks"),
      std::string::npos)
      << drawn[0];
  EXPECT_EQ(problems("rehearse: 1\nmodel: {family: moe, layers: 2, hidden: 32, heads: 4, vocab: 100, max_seq_len: 128, "
                     "experts: 4, experts_per_token: 2, expert_ffn_hidden: 32, dropout: 0.1}\ncluster: {gpus: "
                     "2}\nplan: {context: 2}\n"
                     "training: {seq_len: 128, documents: fixed, document_length: 40}\n"),
            List{});
  const List rows = ring("fixed, document_length: 40", ", micro_batch: 2");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_NE(rows[0].find("plan.micro_batch: micro_batch = 2: context_kind: ring cuts the documents of one row"),
            std::string::npos)
      << rows[0];
  EXPECT_EQ(problems("rehearse: 1\nmodel: {family: mlp, widths: [4, 3]}\ntraining: {documents: fixed, document_length: "
                     "4}\n")
                .size(),
            1U);
}

}  // namespace
}  // namespace rehearse::plan
