// Published peaks of a GPU's memory against the predicted ones. A peak of allocated memory is compared with the
// tensors alone, one of reserved memory with these and what the allocator wastes; neither counts the CUDA context and
// communicators, which no source measures. Where a source does not say which of the two it prints, it is compared with
// the tensors. All errors are predicted / measured - 1.
#pragma once

#include <string>
#include <vector>

#include "reports/ledgers/throughput_ledger.h"

namespace rehearse::reports {

struct MemoryScore {
  std::string source, kind;
  int n = 0;
  double mean = 0, bias = 0;  // of |error|; bias: mean error
  const ThroughputRow* worst = nullptr;
};
// By source and kind; used rows whose peak was published.
std::vector<MemoryScore> memory_scores(const std::vector<ThroughputRow>& rows);

TableCells memory_score_cells(const std::vector<ThroughputRow>& rows);  // the heading first

std::string memory_score_table(const std::vector<ThroughputRow>& rows);  // 80 columns; "" where no peak was published

}  // namespace rehearse::reports
