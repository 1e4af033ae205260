// What a result says of a program however it was run: the FLOPs of a step, and the names of its ops. Both interpreters
// fill their results from here.
#pragma once

#include <functional>

#include "sim/plan/rank_grid.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::account {

// FLOPs of a step over all ranks, recomputation included.
double hardware_flops(const program::Program& program, const plan::RankGrid& grid);

// How well the cost of an op of a role is known, as ops.csv names it; measured runs have none.
using CoverageOf = std::function<std::string(const program::Role& role, const program::Op& op)>;

// The first rank of a role, which stands for the others.
int first_rank(const plan::RankGrid& grid, const program::Role& role);

// Fills the result's names and the micro-batches of its slots.
void name_ops(const program::Program& program, const plan::RankGrid& grid, const CoverageOf& coverage,
              result::Result& out);

}  // namespace rehearse::account
