// REHEARSE_VERSION and REHEARSE_EIGEN come from CMake: only the kernels may include Eigen.
#include "calibrate/made.h"

#include <array>
#include <ctime>

namespace rehearse::calibrate {

cost::Provenance provenance(const std::string& command, double budget_s) {
  cost::Provenance made;
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  made.date = date.data();
  made.command = command;
  made.version = REHEARSE_VERSION;
#ifdef __clang__
  made.compiler = __VERSION__;  // begins with its name
#else
  made.compiler = "g++ " __VERSION__;
#endif
  made.eigen = REHEARSE_EIGEN;
  made.budget_s = budget_s;
  return made;
}

}  // namespace rehearse::calibrate
