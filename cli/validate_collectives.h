// rehearse validate --collectives: published times of collectives against a model whose constants are fitted on every
// other size (sim/collective/fit.h).
#pragma once

#include <string>
#include <vector>

#include "reports/ledgers/ledger.h"

namespace rehearse::cli {

struct CollectiveLedger {
  std::vector<reports::LedgerRow> rows;  // as in the file; metric time_us
  std::string table;                     // 80 columns: errors a system, the largest misses, and the constants
};

// The CSV has the columns id, collective, gpu, gpus, gpus_per_node, interconnect, source, bytes, time_us, algbw_gbps,
// busbw_gbps; a time that is missing is worked out from a bandwidth. A system is a source, a GPU and an interconnect,
// on one node or over several; sizes below 1 KiB are predicted and never fitted; systems of fewer than six sizes are
// not used. Only rows whose id or system contains `filter`. Throws InputError.
CollectiveLedger collective_ledger(const std::string& file, const std::string& text, const std::string& filter);

}  // namespace rehearse::cli
