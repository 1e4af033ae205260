// What waking costs: two streams of one rank, each of whose ops waits for the other's last one, performed by the
// Performer. Every op begins with its thread asleep.
#pragma once

#include <vector>

#include "calibrate/budget.h"

namespace rehearse::calibrate {

struct Switching {
  double wake_s = 0;          // median, from an op's end on one stream to the start of the next on the other
  std::vector<double> wakes;  // all of them
  double dispatch_s = 0;      // median, from an op's end to the start of the next on the same stream
};
Switching measure_switching(double seconds, const Budget& budget);

}  // namespace rehearse::calibrate
