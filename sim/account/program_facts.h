// What a result says of a program however it was run: the FLOPs of a step, and the names of its ops. Both interpreters
// fill their results from here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/plan/rank_grid.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::account {

// FLOPs of a step over all ranks, recomputation included.
double hardware_flops(const program::Program& program, const plan::RankGrid& grid);

// A role of each stage, by stage: where the places of an expert group have roles of their own (lower.cpp), the one that
// computes most.
std::vector<program::RoleId> shown_roles(const program::Program& program);

// How well the cost of an op of a role is known, as ops.csv names it; measured runs have none.
using CoverageOf = std::function<std::string(const program::Role& role, const program::Op& op)>;

// The first rank of a role, which stands for the others.
int first_rank(const plan::RankGrid& grid, const program::Role& role);

// Ranks in ascending order, as "0;4-7;16-112/16": single ones, runs, and runs with a step.
std::string peers_text(const std::vector<int>& ranks);

// Fills the result's names, its streams, the micro-batches of its slots, and the peers of its recorded ranks
// (Result::role_of_rank).
void name_ops(const program::Program& program, const plan::RankGrid& grid, const CoverageOf& coverage,
              result::Result& out);

}  // namespace rehearse::account
