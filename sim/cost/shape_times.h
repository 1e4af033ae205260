// Measured kernels other than products, by exact shape, and what interference does to products, from a calibration
// (measured_device.h). The model of interference (fewer multiprocessors, less bandwidth: gemm_model.h) is corrected by
// what was measured: the ratio of measured to modelled slowdown, over the share of the device that is taken.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/cost/measured_device.h"

namespace rehearse::cost {

class ShapeTimes {
 public:
  explicit ShapeTimes(const std::vector<ShapePoint>& points);
  bool empty() const { return times_.empty(); }
  struct Time {
    double seconds = 0;
    bool in_steps = false;  // else alone
  };
  std::optional<Time> find(const program::Role& role, const program::Op& op) const;

 private:
  std::map<std::tuple<std::string, std::string, std::string, program::DType>, Time> times_;
};

class InterferenceTable {
 public:
  // `modelled`: the model's slowdown of a point's product beside what the point says.
  InterferenceTable(const std::vector<InterferencePoint>& points,
                    const std::function<double(const InterferencePoint&)>& modelled);
  // The factor on a modelled slowdown: interpolated between measured points, from 1 with nothing taken; that of the
  // largest beyond.
  double correction(const Interference& beside) const;

 private:
  std::map<double, double> by_sms_, by_bandwidth_;  // log of the factor
};

}  // namespace rehearse::cost
