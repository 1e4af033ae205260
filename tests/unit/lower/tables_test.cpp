// Tables of sparse features that ranks have for themselves (plan.embedding_tables: sharded): what is traded, byte for
// byte, what each rank keeps, and that nothing is added up between ranks that is one rank's alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "sim/program/work.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

constexpr const char* kTables =
    "rehearse: 1\nmodel: {family: custom, features: 8, loss: binary_cross_entropy, layer_list: [{layer: tables, width: "
    "8, rows: [40, 7, 3, 90, 12], lookups: [3, 1, 2, 1, 4]}, {layer: pairs}, {layer: linear, width: 1}]}\n"
    "cluster: {gpus: 2}\nplan: {embedding_tables: sharded, micro_batch: 6}\n"
    "training: {global_batch: 12, precision: fp32, clip: 0}\n";

program::Program tables_program(const std::vector<std::string>& more = {}) {
  const plan::Scenario scenario = scenario_from(kTables, more);
  program::Program program = lower::lower(scenario);
  EXPECT_EQ(violations(program, scenario.grid()), "");
  return program;
}

struct Traded {
  std::string name;
  std::int64_t bytes;
  std::vector<std::int64_t> parts;
  std::int64_t own;
  bool back;
};
std::vector<Traded> traded(const program::Program& program, std::size_t role) {
  std::vector<Traded> all;
  for (const program::Body& body : program.roles[role].bodies)
    for (const program::Op& op : body.ops)
      if (const auto* c = std::get_if<program::Collective>(&op.shape);
          c != nullptr && c->kind == program::CollectiveKind::all_to_all)
        all.push_back({op.name, program::collective_bytes(op), program.parts.at(static_cast<std::size_t>(c->parts)),
                       c->own, c->back});
  return all;
}

// Rank 0 has tables 0 to 2 (50 rows), rank 1 the others (102): 6 and 5 look-ups an example, 3 and 2 vectors of 8.
TEST(ShardedTables, TradeNumbersAndVectors) {
  const program::Program program = tables_program();
  ASSERT_EQ(program.roles.size(), 2U) << "each rank is a role of its own";
  using Parts = std::vector<std::int64_t>;
  for (const std::size_t role : {0U, 1U}) {
    const std::vector<Traded> all = traded(program, role);
    ASSERT_EQ(all.size(), 3U) << "numbers, vectors and their gradients";
    const std::int64_t own_ids = role == 0 ? 36 : 30, own_vectors = role == 0 ? 144 : 96;
    EXPECT_EQ(all[0].bytes, 4 * (36 + 30));
    EXPECT_EQ(all[0].parts, (Parts{36, 30}));
    EXPECT_EQ(all[0].own, 2 * own_ids);
    EXPECT_EQ(all[1].bytes, 4 * (144 + 96)) << "of five vectors of 8 numbers, 6 examples";
    EXPECT_TRUE(all[1].back);
    EXPECT_EQ(all[1].own, 2 * own_vectors);
    EXPECT_EQ(all[2].bytes, 4 * (144 + 96));
    EXPECT_FALSE(all[2].back);
    EXPECT_EQ(all[2].parts, (Parts{144, 96}));
  }
}

std::int64_t kept(const program::Role& role, program::BufferClass cls) {
  std::int64_t bytes = 0;
  for (const program::Buffer& b : role.buffers)
    if (!b.is_view() && b.lifetime == program::Lifetime::persistent && b.cls == cls) bytes += b.bytes();
  return bytes;
}

// 8 + 15 inputs of the last layer, and its bias: 24 parameters on both.
TEST(ShardedTables, AreKeptByTheirOwner) {
  using program::BufferClass;
  const program::Program dense = tables_program();
  EXPECT_EQ(kept(dense.roles[0], BufferClass::parameter), 4 * (50 * 8 + 24));
  EXPECT_EQ(kept(dense.roles[1], BufferClass::parameter), 4 * (102 * 8 + 24));
  EXPECT_EQ(kept(dense.roles[1], BufferClass::optimizer), 2 * 4 * (102 * 8 + 24));
  const program::Program sparse = tables_program({"training.sparse_optimizer=adagrad"});
  EXPECT_EQ(kept(sparse.roles[1], BufferClass::parameter), 4 * (102 * 8 + 24));
  EXPECT_EQ(kept(sparse.roles[1], BufferClass::gradient), 4 * 24);
  EXPECT_EQ(kept(sparse.roles[1], BufferClass::optimizer), 2 * 4 * 24 + 4 * 102) << "a sum of squares for each row";
  const program::Program whole = tables_program({"plan.embedding_tables=replicated"});
  ASSERT_EQ(whole.roles.size(), 1U);
  EXPECT_EQ(kept(whole.roles[0], BufferClass::parameter), 4 * (152 * 8 + 24));
}

// A step on rows moves those that were looked up: of 6 examples of 2 ranks at most 36, 12 and 3 rows, 8 numbers each.
TEST(ShardedTables, AStepOnRowsMovesThoseRows) {
  const program::Program program = tables_program({"training.sparse_optimizer=sgd"});
  bool found = false;
  for (const program::Body& body : program.roles[0].bodies)
    for (const program::Op& op : body.ops) {
      const auto* bags = std::get_if<program::EmbeddingBags>(&op.shape);
      if (bags == nullptr || bags->part != program::BagPart::update) continue;
      found = true;
      const program::Work work = program::work_of(program.roles[0], op);
      EXPECT_EQ(work.bytes_written, 4 * 8 * (36 + 7 + 3)) << "tables of 7 and 3 rows have no more";
      EXPECT_EQ(work.bytes_read, work.bytes_written + 4 * 72 + 4 * 2 * 144);
    }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace rehearse
