// Whether a program's sends may wait for their receivers, as NCCL's do. Memory is laid out in program order, so an op
// may have to wait until a send has read what lies where it writes; then ranks can wait for one another in a circle
// that the program itself does not have (and ranks on the CPU neither, where a send is a copy). Found out by an untimed
// execution of two steps of every role's timeline: a transfer is done once all that it meets have come to it.
#pragma once

#include <vector>

#include "sim/program/link/grid_view.h"
#include "sim/program/link/timeline.h"

namespace rehearse::program {

// How many messages each stream that sends must be able to keep in copies of its own, so that the ranks go on: 0 if
// none (sends are made from where the values lie), else a power of 2. `timelines` by role.
int send_slots(const Program& program, const std::vector<Timeline>& timelines, const GridView& grid);

}  // namespace rehearse::program
