// What published runs say of the interval around a predicted step; sim/run/step_interval.h reads the table.
#pragma once

#include <string>
#include <vector>

#include "reports/ledgers/throughput_ledger.h"

namespace rehearse::reports {

// The table of step intervals as CSV (of, name, low, high, kernels_low, kernels_high, runs), from the used rows'
// measured / predicted. low and high are its 5th and 95th percentile, and at most and at least 1. kernels_low and
// kernels_high are the 5th and 95th percentile of the error intervals that the same rows' kernels have by themselves:
// errors of kernels known no worse than that are in low and high.
//   without source S: rows of all other sources, each source weighing the same: how a source that was never seen comes
//     out, and what S's own rows are scored with;
//   framework F: its own rows, one each, and the other sources, ten rows in all and each the same;
//   framework others: from the lowest to the highest of the sources' own percentiles: for profiles without runs.
// "" where there are fewer than two sources.
std::string step_intervals_csv(const std::vector<ThroughputRow>& rows);

}  // namespace rehearse::reports
