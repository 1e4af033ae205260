// This machine and build, as far as they make one calibration different from another; and where its calibration is
// kept. REHEARSE_ARCH is the instruction set the kernels are compiled for (kernels/CMakeLists.txt).
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "sim/base/host.h"
#include "sim/cost/calibration_file.h"

namespace rehearse::cost {
namespace {

// The first "model name" of /proc/cpuinfo, else the machine's architecture.
std::string cpu_name(const char* otherwise) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const auto begin = line.find_first_not_of(" \t", line.find(':') + 1);
    if (begin == std::string::npos) break;
    return line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  }
  return otherwise;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

HostFacts host_fingerprint() {
  HostFacts host;
  utsname names{};
  const bool known = uname(&names) == 0;
  host.name = known ? names.nodename : "unknown";
  host.kernel = known ? names.release : "";
  host.cpu = cpu_name(known ? names.machine : "unknown");
  host.cores = usable_cores();
  host.memory_bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  host.isa = REHEARSE_ARCH;
  return host;
}

std::string default_calibration_path() {
  std::string cache = variable("XDG_CACHE_HOME");
  if (cache.empty() && !variable("HOME").empty()) cache = variable("HOME") + "/.cache";
  if (cache.empty()) return "";
  return cache + "/rehearse/calibration-" + host_fingerprint().name + ".json";
}

}  // namespace rehearse::cost
