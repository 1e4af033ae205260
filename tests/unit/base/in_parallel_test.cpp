// A loop over threads: each round once, and errors are not lost.
#include "sim/base/in_parallel.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace rehearse {
namespace {

TEST(InParallel, DoesEachOnce) {
  std::vector<int> times(1000, 0);
  in_parallel(4, times.size(), [&](std::size_t i) { ++times[i]; });
  EXPECT_EQ(times, std::vector<int>(1000, 1));
  in_parallel(8, 0, [](std::size_t) { FAIL(); });
}

TEST(InParallel, ThrowsOnWhatOneThrows) {
  for (const int threads : {1, 3}) {
    try {
      in_parallel(threads, 50, [](std::size_t i) {
        if (i == 17) throw std::runtime_error("17");
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), std::string("17"));
    }
  }
}

}  // namespace
}  // namespace rehearse
