// Where the file of a named device is: calibrate/devices under the data root, the path itself, or for "local" the
// calibration of this host in the user's cache.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/base/diagnostics.h"
#include "sim/cost/calibration_file.h"
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

[[noreturn]] void refuse_local(const std::string& why) {
  throw InputError(
      Diagnostic{"", 0, 0, "costs.calibration", "a local topology needs a calibration of this machine and " + why,
                 "`rehearse calibrate` will make one; until then name a device, --calibration a100-sxm-80g"});
}

// The calibration made earlier on this very host.
std::string local_calibration() {
  std::string path = default_calibration_path();
  std::error_code ignored;
  if (path.empty() || !fs::exists(path, ignored)) refuse_local("there is none");
  const HostFacts there = read_calibration(path).host, here = host_fingerprint();
  if (!there.same_machine(here))
    refuse_local(fmt::format("{} is of another: {}, {}, {} cores, {}; this is {}, {}, {} cores, {}", path, there.name,
                             there.cpu, there.cores, there.isa, here.name, here.cpu, here.cores, here.isa));
  return path;
}

}  // namespace

std::string find_device_file(const std::string& name, const std::string& data_root) {
  if (name == "local") return local_calibration();
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(".yaml") || name.ends_with(".yml") ||
                       is_calibration_path(name);
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
