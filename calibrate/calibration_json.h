// The calibration file (docs/calibration.md), which sim/cost/calibration_file.h reads.
#pragma once

#include <string>

#include "sim/cost/calibration_file.h"

namespace rehearse::calibrate {

std::string to_json(const cost::Calibration& calibration);

// `newer` with what only `older` has: kernels by kind, shape, type, threads, busy cores and origin, transfers by
// transport, kind, ranks and bytes. Facts of the whole machine are newer's.
cost::Calibration merged(const cost::Calibration& older, cost::Calibration newer);

}  // namespace rehearse::calibrate
