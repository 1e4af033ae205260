// How much of the machine others used while something was measured on it: whoever reads the numbers should know.
#pragma once

namespace rehearse::execute {

// CPU time since the computer started, in seconds, from a text like /proc/stat (proc(5)): of all cores, at work and in
// all; stolen by other guests of the same hardware counts as work. Zeros if the text is another.
struct CpuTime {
  double busy = 0, all = 0;
  double stolen = 0;  // of `busy`
};
CpuTime parse_cpu_time(const char* proc_stat, double ticks_per_second);

// The share of the machine's cores that other processes took between two moments; `own` is what this process and its
// ended children used in between. 0 if nothing passed.
double other_share(const CpuTime& before, const CpuTime& after, double own_s);

// The share of the cores' time that other guests had between two moments.
double stolen_share(const CpuTime& before, const CpuTime& after);

class OtherLoad {
 public:
  OtherLoad();
  // Since construction.
  double share() const;   // what others had, other guests too
  double stolen() const;  // what other guests had

 private:
  CpuTime before_;
  double own_before_ = 0;
};

// Below this share nothing is said: an idle system's own work.
inline constexpr double kQuiet = 0.05;

}  // namespace rehearse::execute
