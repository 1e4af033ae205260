// rehearse validate --throughput of published runs: every complete row of the table becomes a scenario
// (formats/published_runs.h), is simulated, and compared with what was measured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/throughput_ledger.h"

namespace rehearse::cli {

// Whether a table's first line has the columns of published runs and not those of measured scenarios.
bool is_throughput_table(std::string_view text);

// Simulates the rows of `csv` whose id, source, software or model contains `filter`, `threads` at a time. Scenarios are
// kept under `directory`. Rows keep the table's order whatever the threads. Throws InputError for a table or rules that
// cannot be read.
std::vector<reports::ThroughputRow> validate_throughput(const std::string& csv, std::string_view text,
                                                        const std::string& filter, const std::string& directory,
                                                        int threads, const std::string& root);

}  // namespace rehearse::cli
