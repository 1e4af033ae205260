// Programs in words, for reports and messages: an op's shape, where in a step something is.
#pragma once

#include <string>

#include "sim/program/program.h"

namespace rehearse::program {

// "m=2048 n=4608 k=12288", "rows=2048 cols=12288", "elements=25165824 bf16"; empty for ops without a shape.
std::string shape_text(const Role& role, const Op& op);

// "backward micro-batch 7", or "optimizer" for a slot without a micro-batch.
std::string slot_text(const Role& role, const Slot& slot);

// "'layer3.mlp.up' (slot 4: forward micro-batch 2)": one instance of an op in a step.
std::string place_text(const Role& role, int slot, int op);

// "rank 3 (stage1)".
std::string rank_text(const Role& role, int rank);

}  // namespace rehearse::program
