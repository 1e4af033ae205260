// Where a rank keeps the model's parameters, whatever the plan: pieces of them in its arena, found by the names the
// lowering gives. With ZeRO-3 a rank keeps the shard "param.shard.bucketN" of what is, gathered, "param.bucketN", of
// which the parameters are views. In mixed precision, and where the optimizer's step is on the host, its fp32 copies,
// "master.bucketN", are whole or a shard too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "execute/rank/rank_memory.h"
#include "execute/timeline.h"
#include "sim/plan/rank_grid.h"

namespace rehearse::execute {

bool is_parameter(const program::Buffer& buffer);

// Elements [first, first + count) of the rank's part of parameter `buffer`, at `offset` bytes in the arena.
struct Piece {
  program::BufferId buffer;
  std::int64_t first, count, offset;
  DType type;
};
std::vector<Piece> parameter_pieces(const Timeline& timeline, const plan::RankGrid& grid, int rank);
std::vector<Piece> master_pieces(const Timeline& timeline, const plan::RankGrid& grid, int rank);  // empty: none

// The same of a state beside buckets, "exp_avg" as in "exp_avg.bucketN"; empty: there is none, or its elements are
// codes.
std::vector<Piece> state_pieces(const Timeline& timeline, const plan::RankGrid& grid, int rank,
                                const std::string& state);

// What the rank holds, piece after piece: the fp32 copies if there are any.
std::vector<float> parameter_values(const Timeline& timeline, const plan::RankGrid& grid, int rank,
                                    const RankMemory& memory);

// fp16: the loss scale, and for how many steps it has stood; else empty.
std::vector<float> loss_scale(const Timeline& timeline, const RankMemory& memory);

// Whole parameters by name, in their global layout.
using Parameters = std::map<std::string, std::vector<float>>;
// Adds the parameter_values() of a rank.
void collect(const Timeline& timeline, const plan::RankGrid& grid, int rank, std::span<const float> values,
             Parameters& whole);

}  // namespace rehearse::execute
