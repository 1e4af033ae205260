// Which rank has which tables of sparse features, and with what they do not go.
#include "sim/plan/table_shards.h"

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

TEST(TableShards, TheLargestShareIsAsSmallAsItCanBe) {
  using Firsts = std::vector<std::size_t>;
  EXPECT_EQ(first_tables({5, 1, 1, 1, 4}, 2), (Firsts{0, 2, 5}));
  EXPECT_EQ(first_tables({1, 1, 1, 9}, 3), (Firsts{0, 2, 3, 4})) << "every rank has one";
  EXPECT_EQ(first_tables({7, 7, 7}, 3), (Firsts{0, 1, 2, 3}));
  EXPECT_EQ(first_tables({3, 2}, 1), (Firsts{0, 2}));
}

std::vector<std::string> problems_of(const std::string& plan, const std::string& training, const std::string& layers) {
  return problems("rehearse: 1\nmodel: {family: custom, features: 8, loss: binary_cross_entropy, layer_list: [" +
                  layers + "{layer: linear, width: 1}]}\ncluster: {topology: dgx-a100, gpus: 4}\nplan: {" + plan +
                  "}\ntraining: {global_batch: 16, clip: 0, " + training + "}\n");
}

const std::string kFive = "{layer: tables, width: 8, rows: [4, 5, 6, 7, 8]}, {layer: pairs}, ";

TEST(TableShards, GoWithPlansThatHaveATableForEachRank) {
  EXPECT_EQ(problems_of("embedding_tables: sharded", "precision: bf16", kFive), std::vector<std::string>{});
  EXPECT_EQ(problems_of("embedding_tables: sharded, micro_batch: 4", "sparse_optimizer: adagrad", kFive),
            std::vector<std::string>{});
  const auto only = [](const std::vector<std::string>& found, const std::string& problem) {
    ASSERT_EQ(found.size(), 1U) << problem;
    EXPECT_NE(found[0].find(problem), std::string::npos) << found[0];
  };
  only(problems_of("embedding_tables: sharded", "precision: bf16",
                   "{layer: tables, width: 8, rows: [4, 5, 6]}, {layer: pairs}, "),
       "plan.embedding_tables: sharded: 4 data-parallel ranks share 3 tables, each whole on one rank (at most 3");
  only(problems_of("embedding_tables: sharded", "precision: bf16", ""), "this model has no tables of sparse features");
  only(problems_of("embedding_tables: sharded, recompute: full", "precision: bf16", kFive), "plan.recompute: none");
  only(problems_of("embedding_tables: sharded, zero: 3, zero_group: 2", "precision: bf16", kFive),
       "not on one of each group of plan.zero_group");
  only(problems_of("", "sparse_optimizer: sgd, micro_batch: 4", kFive), "micro_batch");
  only(problems_of("micro_batch: 4", "sparse_optimizer: sgd", kFive), "plan.embedding_tables: sharded, or none");
  only(problems_of("embedding_tables: sharded, micro_batch: 1", "sparse_optimizer: sgd", kFive),
       "a step has 4 micro-batches");
  only(problems_of("embedding_tables: shard", "precision: bf16", kFive), "did you mean 'sharded'?");
}

}  // namespace
}  // namespace rehearse::plan
