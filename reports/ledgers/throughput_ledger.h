// Published training runs against their simulations: a row a run, averages by software and by source, and how well the
// predictions rank the runs of one sweep. All errors are of the step time: predicted / measured - 1.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/result/result.h"

namespace rehearse::reports {

struct ThroughputRow {
  std::string id, source, software, model, framework;
  bool complete = false;  // tier A: the row says all that decides; else B
  bool used = false;
  std::string reason;                // why it is not used
  std::vector<double> measurements;  // seconds of a step: of all rows with this configuration
  double measured_s = 0;             // their mean
  double predicted_s = 0, low_s = 0, high_s = 0;
  double kernels_low = 1, kernels_high = 1;  // the error interval of the kernels' costs alone, as factors of the step
  bool fits = true;
  std::int64_t memory_bytes = 0;                            // the largest stage's peak
  double gpus = 0, seq_len = 0, global_batch = 0, mfu = 0;  // mfu: of the measured step
  std::string task, split;  // what was trained on what; how it was split (formats::PublishedRun)
  std::string missing;      // what of this software is not modelled
  // A peak of a GPU's memory as published ("allocated", "reserved" or "not stated"), and what of the predicted peak is
  // of that kind (published_memory.h), in bytes; "" and 0 where none was published.
  std::string memory_kind;
  double memory_measured = 0, memory_predicted = 0;
  std::array<double, 4> coverage{};
  std::array<double, result::kShares> breakdown_s{};

  double error() const { return predicted_s / measured_s - 1; }
  bool has_memory() const { return used && memory_measured > 0; }
  double memory_error() const { return memory_predicted / memory_measured - 1; }
  bool inside() const { return low_s <= measured_s && measured_s <= high_s; }
};

// Of used rows.
struct ErrorSummary {
  int n = 0, inside = 0, unfit = 0;                           // unfit: predicted not to fit, though it ran
  double mean = 0, median = 0, p90 = 0, bias = 0, worst = 0;  // of |error|; bias: mean error; worst: signed
};
ErrorSummary summarize(const std::vector<const ThroughputRow*>& rows);

double mean(const std::vector<double>& values);

// The tables of the terminal and of the page as cells, the heading first: errors by software, by tier and of all; why
// rows are not used, with how many, most first.
using TableCells = std::vector<std::vector<std::string>>;
TableCells throughput_cells(const std::vector<ThroughputRow>& rows);
std::vector<std::pair<std::size_t, std::string>> unused_reasons(const std::vector<ThroughputRow>& rows);

std::string throughput_table(const std::vector<ThroughputRow>& rows);  // 80 columns
std::string throughput_csv(const std::vector<ThroughputRow>& rows);
std::string throughput_json(const std::vector<ThroughputRow>& rows);  // rehearse.ledger/1

}  // namespace rehearse::reports
