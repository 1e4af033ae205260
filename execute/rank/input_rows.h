// What a rank loads of a micro-batch: of tokens and their targets those that it holds of each sequence, of all else the
// whole.
#pragma once

#include <cstdint>
#include <vector>

#include "execute/rank/run.h"
#include "sim/program/op.h"

namespace rehearse::execute {

// Writes the input op's elements of the examples `numbers` for `rank`, as Data::load lays them out, to `out`.
void load_examples(const Run& run, int rank, const program::Input& input, const std::vector<std::int64_t>& numbers,
                   void* out);

}  // namespace rehearse::execute
