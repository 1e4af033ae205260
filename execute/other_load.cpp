// See other_load.h.
#include "execute/other_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace rehearse::execute {
namespace {

CpuTime cpu_time() {
  std::ifstream in("/proc/stat");
  std::ostringstream text;
  text << in.rdbuf();
  return parse_cpu_time(text.str().c_str(), static_cast<double>(sysconf(_SC_CLK_TCK)));
}

double own_time() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    for (const timeval& t : {usage.ru_utime, usage.ru_stime})
      sum += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  }
  return sum;
}

}  // namespace

CpuTime parse_cpu_time(const char* proc_stat, double ticks_per_second) {
  // cpu user nice system idle iowait irq softirq steal ...; guest time is in user already
  std::array<unsigned long long, 8> t{};
  if (std::sscanf(proc_stat, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5],
                  &t[6], &t[7]) != 8)
    return {};
  const auto busy = static_cast<double>(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]);
  return {busy / ticks_per_second, (busy + static_cast<double>(t[3] + t[4])) / ticks_per_second,
          static_cast<double>(t[7]) / ticks_per_second};
}

double other_share(const CpuTime& before, const CpuTime& after, double own_s) {
  const double all = after.all - before.all;
  if (!(all > 0)) return 0;
  return std::clamp((after.busy - before.busy - own_s) / all, 0.0, 1.0);
}

double stolen_share(const CpuTime& before, const CpuTime& after) {
  const double all = after.all - before.all;
  return all > 0 ? std::clamp((after.stolen - before.stolen) / all, 0.0, 1.0) : 0;
}

OtherLoad::OtherLoad() : before_(cpu_time()), own_before_(own_time()) {}

double OtherLoad::share() const {
  return other_share(before_, cpu_time(), own_time() - own_before_);
}

double OtherLoad::stolen() const {
  return stolen_share(before_, cpu_time());
}

}  // namespace rehearse::execute
