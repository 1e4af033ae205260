// Published runs against their predictions as one HTML page that needs nothing else, no script either: predicted
// against measured, errors by length, GPUs and MFU, intervals, software, the worst runs with what is missing, how plans
// are ranked, memory, and every run.
#pragma once

#include <string>
#include <vector>

#include "reports/ledgers/throughput_ledger.h"

namespace rehearse::reports {

// `table`: what the runs were read from, as the user knows it.
std::string ledger_page(const std::vector<ThroughputRow>& rows, const std::string& table);
// The page's first figure as a file of its own; "" where no row is used.
std::string predicted_measured_svg(const std::vector<ThroughputRow>& rows);

}  // namespace rehearse::reports
