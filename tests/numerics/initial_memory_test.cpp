// A rank's persistent memory to begin with: the same bytes whoever makes its blocks, and those that drawing each
// parameter and each fp32 copy on its own gives.
#include "execute/rank/initial_memory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "execute/rank/initial_values.h"
#include "execute/rank/parameters.h"
#include "sim/base/half.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

using execute::InitialMemory;
using execute::Piece;

constexpr std::int64_t kSeed = 7;
constexpr std::byte kPoison{0xAB};

// More than a block of 65,536 in the table and the layers' matrices, whose parts begin anywhere.
const std::string kGpt =
    "rehearse: 1\n"
    "model: {family: gpt, layers: 2, hidden: 192, heads: 4, vocab: 700, max_seq_len: 32}\n"
    "training: {global_batch: 8, precision: bf16}\n";

struct Begun {
  plan::Scenario scenario;
  program::Program program;
  plan::RankGrid grid;
  std::vector<execute::Timeline> timelines;
  explicit Begun(const std::vector<std::string>& plan)
      : scenario(scenario_from(kGpt, plan)), program(lower::lower(scenario)), grid(scenario.grid()) {
    for (const program::Role& role : program.roles) timelines.push_back(execute::make_timeline(role, grid));
  }
  const execute::Timeline& timeline(int rank) const {
    return timelines[static_cast<std::size_t>(grid.coordinate(rank, Axis::pipeline))];
  }
  std::vector<std::byte> arena(int rank) const {
    return std::vector<std::byte>(static_cast<std::size_t>(timeline(rank).memory.arena_bytes), kPoison);
  }
  std::vector<std::byte> made(int rank, int threads) const {
    std::vector<std::byte> memory = arena(rank);
    execute::initialise(InitialMemory(timeline(rank), grid, rank, kSeed), threads, memory.data());
    return memory;
  }
  // Every buffer zeros, then every piece drawn as a whole.
  std::vector<std::byte> expected(int rank) const {
    const execute::Timeline& t = timeline(rank);
    std::vector<std::byte> memory = arena(rank);
    for (std::size_t id = 0; id < t.role->buffers.size(); ++id) {
      const program::Buffer& b = t.role->buffers[id];
      if (t.persistent[id] < 0) continue;
      std::byte* at = memory.data() + t.persistent[id];
      std::fill_n(at, b.bytes(), std::byte{0});
      if (b.init.kind == program::Init::Kind::first || b.init.kind == program::Init::Kind::ones)
        execute::draw_values(b.init.kind, b.init.scale, b.name, kSeed, 0, b.elements(), reinterpret_cast<float*>(at));
    }
    for (const auto& kind : {execute::parameter_pieces(t, grid, rank), execute::master_pieces(t, grid, rank)})
      for (const Piece& p : kind) {
        std::vector<float> values(static_cast<std::size_t>(p.count));
        execute::draw_part(t.role->buffers[static_cast<std::size_t>(p.buffer)], grid.coordinate(rank, Axis::tensor),
                           kSeed, p.first, p.count, values.data());
        from_float(p.type, values.data(), p.count, memory.data() + p.offset);
      }
    return memory;
  }
};

class InitialMemoryTest : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(InitialMemoryTest, IsTheSameWhoeverMakesIt) {
  const Begun begun(GetParam());
  for (int rank = 0; rank < begun.grid.ranks(); ++rank) {
    const std::vector<std::byte> expected = begun.expected(rank);
    EXPECT_EQ(begun.made(rank, 1), expected) << "rank " << rank;
    EXPECT_EQ(begun.made(rank, 5), expected) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, InitialMemoryTest,
                         testing::Values(std::vector<std::string>{"cluster.gpus=1"},
                                         std::vector<std::string>{"cluster.gpus=1", "training.precision=fp32"},
                                         std::vector<std::string>{"cluster.gpus=1", "training.precision=fp16"},
                                         std::vector<std::string>{"cluster.gpus=2", "plan.tensor=2"},
                                         std::vector<std::string>{"cluster.gpus=2", "plan.pipeline=2"},
                                         std::vector<std::string>{"cluster.gpus=4", "plan.zero=1"},
                                         std::vector<std::string>{"cluster.gpus=4", "plan.zero=3", "plan.tensor=2"}));

}  // namespace
}  // namespace rehearse
