// Costs of kernels on a host whose ranks share its cores, from a calibration of it (calibration_file.h).
#pragma once

#include <memory>
#include <vector>

#include "sim/cost/calibration_file.h"
#include "sim/cost/cost.h"

namespace rehearse::cost {

// The first calibration is the host; later ones add entries, which replace equal ones read before.
std::unique_ptr<CostModel> make_calibrated_costs(std::vector<Calibration> calibrations, const HostShare& share,
                                                 const Scale& scale = {});

}  // namespace rehearse::cost
