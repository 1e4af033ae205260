// How many random plans there were, and how many of them were simulated: those that are refused show little.
#pragma once

namespace rehearse::fuzz {

struct PlanCounts {
  int made = 0, simulated = 0;
  int folded = 0;         // of those: fewer ranks were than there are
  int mixed = 0;          // of those: on devices of several kinds
  int apart = 0;          // of those: with local steps
  int served = 0;         // of those: with parameter servers
  int bounded = 0;        // of those: compared with their bounds
  int bounded_mixed = 0;  // of these: on devices of several kinds
  double bound = 0;       // sum of bound / step of these
};
PlanCounts plan_counts();  // of this process

}  // namespace rehearse::fuzz
