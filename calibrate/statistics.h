// What is kept of repeated measurements.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/quantile.h"

namespace rehearse::calibrate {

struct Summary {
  double p10_s = 0, p50_s = 0, p90_s = 0, mean_s = 0;
  std::int64_t repetitions = 0;
};

// At least one sample.
double mean(const std::vector<double>& samples);
Summary summarize(const std::vector<double>& samples);

}  // namespace rehearse::calibrate
