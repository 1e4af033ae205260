// Where the file of a named device is: calibrate/devices under the data root, or the path itself.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/base/diagnostics.h"
#include "sim/cost/cost.h"

namespace rehearse::cost {
namespace {

namespace fs = std::filesystem;

// NAME of every NAME.yaml, in order; a name with a dot (NAME.collectives.yaml) belongs to another reader.
std::vector<std::string> shipped_devices(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() == ".yaml" && stem.find('.') == std::string::npos) names.push_back(stem);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string find_device_file(const std::string& name, const std::string& data_root) {
  if (name == "local")
    throw InputError(Diagnostic{
        "", 0, 0, "costs.calibration", "a local topology needs a calibration of this machine and there is none",
        "`rehearse calibrate` will make one; until then name a device, --calibration a100-sxm-80g"});
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(".yaml") || name.ends_with(".yml");
  if (is_path) return name;
  const fs::path folder = fs::path(data_root) / "calibrate" / "devices";
  const std::vector<std::string> names = shipped_devices(folder);
  if (std::find(names.begin(), names.end(), name) != names.end()) return (folder / (name + ".yaml")).string();
  const std::string near = nearest(name, names);
  throw InputError(Diagnostic{
      "", 0, 0, "costs.calibration",
      fmt::format("unknown device '{}': expected the path of a device file or one of {}", name, fmt::join(names, ", ")),
      near.empty() ? "" : fmt::format("did you mean '{}'?", near)});
}

}  // namespace rehearse::cost
