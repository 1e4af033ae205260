// The whole loop on one GPU: calibrate it for the plans of scenarios/gpu/plans.yaml, simulate each from that
// calibration, perform it in a process of its own (so that each begins with the whole device), and set the two side by
// side. Used by `validate --gpu`.
#pragma once

#include <string>

namespace rehearse::cli {

struct GpuValidation {
  std::string calibration;  // a device file; empty: calibrate first
  double budget_s = 120, seconds = 4;
  std::string filter;
  std::string output;  // a directory; empty: none
  bool measure_products = false;
};
// Prints the ledger; writes ledger.csv, ledger.json, the calibration and every plan's two results. Returns the exit
// code.
int validate_gpu(const GpuValidation& v, const std::string& root);

}  // namespace rehearse::cli
