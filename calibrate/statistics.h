// What is kept of repeated measurements. Percentiles interpolate between neighbours in order, as numpy's default does.
#pragma once

#include <cstdint>
#include <vector>

namespace rehearse::calibrate {

struct Summary {
  double p10_s = 0, p50_s = 0, p90_s = 0, mean_s = 0;
  std::int64_t repetitions = 0;
};

// `share` from 0 to 1; at least one sample.
double percentile(std::vector<double> samples, double share);
double median(std::vector<double> samples);
double mean(const std::vector<double>& samples);
Summary summarize(const std::vector<double>& samples);

}  // namespace rehearse::calibrate
