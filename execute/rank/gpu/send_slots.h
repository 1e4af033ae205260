// Whether a program's sends may wait for their receivers, as NCCL's do. Memory is laid out in program order, so an op
// may have to wait until a send has read what lies where it writes; then ranks can wait for one another in a circle
// that the program itself does not have (and ranks on the CPU neither, where a send is a copy). Found out by an untimed
// execution of two steps of every role's timeline: a transfer is done once all that it meets have come to it.
#pragma once

#include <vector>

#include "execute/timeline.h"
#include "sim/plan/rank_grid.h"
#include "sim/program/program.h"

namespace rehearse::execute {

// How many messages each stream that sends must be able to keep in copies of its own, so that the ranks go on: 0 if
// none (sends are made from where the values lie), else a power of 2.
int send_slots(const program::Program& program, const std::vector<Timeline>& timelines, const plan::RankGrid& grid);

}  // namespace rehearse::execute
