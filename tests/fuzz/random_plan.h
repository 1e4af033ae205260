// Scenarios from choices: any bytes give one, and small changes of the bytes small changes of it. Most can be
// simulated; some cannot, in ways that a reader has to find.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/run/run.h"

namespace rehearse::fuzz {

// Bytes read as choices, one byte each; where they end, every choice is the first.
class Choices {
 public:
  explicit Choices(const std::string& bytes) : bytes_(bytes) {}
  std::size_t below(std::size_t limit);                      // limit > 0, at most 256
  bool once_in(std::size_t n) { return below(n) + 1 == n; }  // false where the bytes have ended
  template <typename T, std::size_t N>
  const T& of(const T (&list)[N]) {
    return list[below(N)];
  }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
};

struct RandomPlan {
  std::string text;        // of the scenario file
  run::Options options;    // without data_root and threads
  bool write = false;      // its result is written and read again
  bool would_fit = false;  // what would make it fit is sought
};

// `calibration`: the path of one of this machine, for plans whose ranks share a host.
RandomPlan random_plan(Choices& choices, const std::string& calibration);

}  // namespace rehearse::fuzz
