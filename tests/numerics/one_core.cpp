// A process that is started with REHEARSE_TEST_CORE=I runs on one core, the I-th of those that it may use, counted
// around (tests/add_suites.cmake says why).
#include <sched.h>

#include <cstdlib>
#include <vector>

namespace rehearse {
namespace {

[[maybe_unused]] const bool on_one_core = [] {
  const char* const text = std::getenv("REHEARSE_TEST_CORE");
  cpu_set_t allowed;
  if (text == nullptr || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(cores[std::strtoul(text, nullptr, 10) % cores.size()], &own);
  return sched_setaffinity(0, sizeof own, &own) == 0;
}();

}  // namespace
}  // namespace rehearse
