// The machine's pace (sim/base/pace.h) while something is measured on it: a fixed piece of work before, between and
// after, and what others have of the cores all the while. Between two looks nothing runs for it, so that what is
// measured has the machine for itself.
#pragma once

#include <chrono>
#include <vector>

#include "execute/other_load.h"
#include "execute/thread_waits.h"
#include "sim/base/pace.h"

namespace rehearse::execute {

// Processor seconds of a core for the work: mean over the cores, which do it at the same time.
struct ProbeTimes {
  double product_s = 0, copy_s = 0;
};

// 16 products of 256 x 256 fp32 matrices, then 8 copies of 4 MiB, on every core at once, after one of each that does
// not count: some 20 ms. It holds 9 MiB a core meanwhile.
ProbeTimes probe_pace(int cores);

// A probe, and what others took of the cores in the `seconds` between the one before and it.
struct PaceLap {
  ProbeTimes work;
  double seconds = 0, taken = 0;
};

// Fills the medians of the probes, and how far they lie apart, each with what was taken before it where that was a
// fifth of a second or more. Of `pace` taken, cores and wanted are known.
void add_probes(const std::vector<PaceLap>& laps, Pace& pace);

// From construction on.
class PaceWatch {
 public:
  explicit PaceWatch(int cores) : cores_(cores) { probe(); }
  void probe();
  // What others take counts from now on, and no longer than until end_stretch(); look() often in between, at our
  // threads.
  void begin_stretch();
  void look();
  void end_stretch();
  // Without another probe.
  Pace pace(double wanted) const;

 private:
  int cores_;
  std::vector<PaceLap> laps_;
  OtherLoad load_, since_probe_;
  ThreadWaits waits_;
  std::chrono::steady_clock::time_point probed_;
  bool ended_ = false;
  double taken_ = 0, stolen_ = 0;
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace rehearse::execute
