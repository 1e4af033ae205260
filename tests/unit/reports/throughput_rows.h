// Rows of published runs for tests.
#pragma once

#include <string>

#include "reports/ledgers/throughput_ledger.h"

namespace rehearse::reports {

inline ThroughputRow published_row(const std::string& id, double measured, double predicted) {
  ThroughputRow r;
  r.id = id, r.source = "s", r.software = "Framework", r.model = "m", r.used = true, r.complete = true;
  r.measured_s = measured, r.predicted_s = predicted;
  r.low_s = 0.95 * predicted, r.high_s = 1.05 * predicted;
  r.gpus = 8, r.seq_len = 2048, r.global_batch = 64, r.mfu = 0.4, r.task = "one task", r.split = "tp8 pp1 dp1 z0 mb1";
  return r;
}

}  // namespace rehearse::reports
