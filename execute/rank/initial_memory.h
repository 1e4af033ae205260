// What a rank's persistent memory begins with: zeros, and on them what is drawn (initial_values.h), each parameter by
// its own name; 16-bit parameters are the fp32 values rounded, their fp32 copies those values. Cut into blocks, of
// which any thread may make any one: the bytes do not depend on who makes which. What a parameter and its copy have in
// common is drawn once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "execute/rank/rank_memory.h"
#include "execute/timeline.h"
#include "sim/plan/rank_grid.h"

namespace rehearse::execute {

class InitialMemory {
 public:
  struct Zeros {
    std::int64_t offset, bytes;
  };
  struct Place {
    std::int64_t offset = -1;  // in the arena; -1: no second place
    DType type = DType::f32;
    std::int64_t bytes = 0;
  };
  // Elements [first, first + count) of the rank's part of `buffer`, and where they go.
  struct Block {
    program::BufferId buffer;
    std::int64_t first, count;
    std::array<Place, 2> places;
  };

  // Without the parameters `others`, which come from elsewhere.
  InitialMemory(const Timeline& timeline, const plan::RankGrid& grid, int rank, std::int64_t seed,
                const std::set<program::BufferId>& others = {});

  const std::vector<Zeros>& zeros() const { return zeros_; }  // before the blocks
  const std::vector<Block>& blocks() const { return blocks_; }
  // Makes a block, at `to` instead of the arena's places. Any thread.
  void make(const Block& block, std::array<std::byte*, 2> to) const;
  // The same of elements that are there.
  static void keep(const Block& block, const float* values, std::array<std::byte*, 2> to);

 private:
  void add(program::BufferId buffer, std::int64_t first, std::int64_t end, std::vector<Place> places);

  const Timeline& timeline_;
  plan::RankGrid grid_;
  int rank_;
  std::int64_t seed_;
  std::vector<Zeros> zeros_;
  std::vector<Block> blocks_;
};

// All of it, into the memories of a rank on the CPU.
void initialise(const InitialMemory& initial, int threads, const RankMemory& memory);

}  // namespace rehearse::execute
