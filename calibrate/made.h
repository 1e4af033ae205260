// When, by what and how a calibration was made.
#pragma once

#include <string>

#include "sim/cost/calibration_file.h"

namespace rehearse::calibrate {

// Date, version, compiler and Eigen of now and of this build.
cost::Provenance provenance(const std::string& command, double budget_s);

}  // namespace rehearse::calibrate
