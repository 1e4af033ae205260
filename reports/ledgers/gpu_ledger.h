// The accuracy ledger of one GPU: plans simulated from its calibration, then performed on it: step time, memory, and
// the kernels of each class, a row a plan, as a table, CSV and JSON (schema rehearse.gpu_ledger/1). error = simulated /
// measured - 1. Plans whose steps the calibration walked and plans that it did not know are told apart; next to each
// stand the GPU's clock, power and reasons of throttling while it was performed, and the products that were performed
// by another algorithm than the calibrated one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reports/difference.h"
#include "reports/ledgers/local_ledger.h"

namespace rehearse::reports {

struct ClassTimes {
  std::string name;  // kernel_class()
  double simulated_s = 0, measured_s = 0;
  double error() const { return simulated_s / measured_s - 1; }
};
// What tells a product from another, "nt bf16>bf16 m=1 n=2 k=3", and its algorithm.
using Algorithms = std::map<std::string, std::string>;
std::string product_text(const std::string& form, std::int64_t m, std::int64_t n, std::int64_t k);

struct OtherAlgorithm {
  std::string product, calibrated, performed;
};
struct GpuRow {
  LocalRow step;
  bool held_out = false;      // LocalPlan's
  bool wrong_losses = false;  // its reason is loss_problem()
  result::GpuRun gpu;         // while it was performed
  int same_algorithms = 0;    // products
  std::vector<OtherAlgorithm> other_algorithms;
  double exact = 0;  // share of the simulated time from exact measurements
  std::vector<ClassTimes> classes;
};
// `d`: the simulated result first, the measured one second. `calibrated`: of the products that the calibration has.
GpuRow gpu_row(const LocalPlan& plan, const Difference& d, const Algorithms& calibrated);

// Why losses cannot be those of a language model of `vocab` words that learns from nothing, or "": the first is not
// within 0.5 of ln(vocab), that of words all alike, or the last quarter's mean is not below it.
std::string loss_problem(const std::vector<double>& losses, std::int64_t vocab);

struct GpuSummary {
  int plans = 0;
  double median_error = 0, worst_error = 0, worst_memory_error = 0;  // of steps; worst ones signed
  // Of classes that take at least a twentieth of a step's kernels.
  double worst_class_error = 0;
  std::string worst_class;  // "norm of gpt2-124m"
};
GpuSummary summarize(const std::vector<GpuRow>& rows);
GpuSummary summarize(const std::vector<GpuRow>& rows, bool held_out);  // of one half

std::string gpu_ledger_table(const std::vector<GpuRow>& rows);
std::string gpu_ledger_csv(const std::vector<GpuRow>& rows);
std::string gpu_ledger_json(const std::vector<GpuRow>& rows);

}  // namespace rehearse::reports
