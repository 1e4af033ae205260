// rehearse validate --throughput of published runs: every complete row of the table becomes a scenario
// (formats/published_runs.h), is simulated, and compared with what was measured. In three steps, so that what can be
// refused is before anything is written or simulated.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/ledgers/throughput_ledger.h"

namespace rehearse::cli {

// Whether a table's first line has the columns of published runs and not those of measured scenarios.
bool is_throughput_table(std::string_view text);

struct PublishedRuns {
  std::vector<reports::ThroughputRow> rows;  // in the table's order
  std::vector<std::string> scenarios;        // of each row; "" where there is none to simulate
};

// The rows of the table `text` (shown as `csv`) whose id, source, software or model contains `filter`, as scenarios; a
// configuration that comes again is averaged with its first row. Throws InputError for a table or rules that cannot be
// read. Writes nothing.
PublishedRuns read_published_runs(const std::string& csv, std::string_view text, const std::string& filter,
                                  const std::string& root);
// Throws InputError if scenarios cannot be kept under `directory`; makes nothing.
void check_scenario_output(const std::string& directory, const PublishedRuns& runs);
// Writes the scenarios under `directory` and simulates them, `threads` at a time; rows get their predictions, the same
// whatever the threads.
void simulate_published_runs(PublishedRuns& runs, const std::string& directory, int threads, const std::string& root);

}  // namespace rehearse::cli
