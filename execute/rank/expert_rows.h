// Rows of experts whose number only routing decides, where it is performed: what a rank sends and gets in a counted
// all-to-all, and how the rows that came are sorted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "execute/transport/communicator.h"
#include "sim/program/program.h"

namespace rehearse::execute {

// Of `rank`'s call, by counts f32 [members, experts] (program::Collective). Throws InputError, naming the rank, where
// more rows come together on a member than it has room for, on every member alike.
Parts parts_of(const program::Op& op, const program::Collective& c, int rank, std::span<const int> members,
               kernels::In counts);

// The same of a call whose parts the program says.
Parts stated_parts(const program::Op& op, const program::Collective& c, int rank, std::span<const int> members,
                   const std::vector<std::int64_t>& elements);

// program::RouterPart::receive, for the rank at `place`. The rows came in as many slices of equal room as `tokens`
// has: slices of several ranks of a tensor group, each with rows of `sources` / slices ranks and room after them.
void receive_rows(const program::Router& r, int place, const float* counts, std::int32_t* places, float* loads);

// program::RouterPart::place with `own`, for the rank at `place`: rows of an expert in the order of the tokens. Throws
// InputError, naming the experts, where those of any place get more rows than there is room for, on every rank alike.
void place_own_rows(const program::Router& r, int place, const std::int32_t* chosen, std::int32_t* places,
                    float* loads);

// The same of the rank alone, where loads are known after its rows were placed.
void check_room(const program::Router& r, int place, const float* loads);

}  // namespace rehearse::execute
