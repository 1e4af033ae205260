// What an op is blamed for while others wait for it: the program's part of the rule of sim/account/blame.h, which maps
// it to the shares of a result.
#pragma once

#include "sim/program/program.h"

namespace rehearse::program {

// The parallelism whose bytes move, or whose stream works; host: launches; input: what loads and copies training
// examples; optimizer: its step on the host, and the copies there and back.
enum class Blame : unsigned char { other, tensor, context, expert, data, pipeline, host, input, optimizer };

// While bytes of a transfer move, or a kernel of another stream runs.
Blame blame_of(const Program& program, const Role& role, const Op& op);

// Whether all whom a transfer may have to wait for share its rank's role, as ranks along any axis but the pipeline's
// do.
bool within_role(const Program& program, const Op& transfer);

}  // namespace rehearse::program
