// When the last participant of a transfer had come, found afterwards from when it began on each of its ranks: for ranks
// on GPUs, where a transfer that waits and one that moves bytes look alike. What was waited for others then becomes a
// share of its own (straggler or bubble), in the measured steps and, in proportion, in those whose shares were taken
// from them. Of ranks on several machines, whose clocks differ, nothing is known (Run::late_ranks_known).
#pragma once

#include <vector>

#include "execute/rank/run.h"
#include "execute/report.h"

namespace rehearse::execute {

// `ranks` are all of the run, in order. Changes shares and the records' waited_ps.
void settle_waits(const Run& run, std::vector<RankReport>& ranks);

}  // namespace rehearse::execute
