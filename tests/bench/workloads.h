// Work that benchmarks time (engine_bench.cpp) and the table of budgets sets beside other simulators (table.cpp): W1
// and W3 as they were given to these, alone on a network, without a program around them.
#pragma once

#include <string>

#include "sim/base/units.h"
#include "sim/engine/step_runs.h"

namespace rehearse::bench {

// Processor time of this process so far, seconds.
double cpu_seconds();

// W1: a ring all-reduce of 1 GiB, every message a flow, on a fat tree of 50 GB/s with 16 hosts a leaf.
engine::StepsAlone ring_of_messages(int ranks);
// The same on nodes of 8, one flow an edge. Returns when it ends.
Time ring_of_flows(int ranks);

// W3: all-to-all of 4 MiB a pair, all flows at once, over a fat tree of 16 hosts a leaf and 16 spines, routed by
// destination; at most 256 ranks. `mixed`: one to four times as much, so that flows end at as many instants and the
// rest are solved again.
engine::StepsAlone all_to_all_of_messages(int ranks, bool mixed);
// All-to-all of unequal parts as a simulated step has it, one flow a sender: 4 MiB times 1 to 1.5 for each receiver, on
// as many A100 of `dgx-a100`. Returns when it ends.
Time all_to_all_of_senders(int ranks, const std::string& data_root);

}  // namespace rehearse::bench
