// Many steps: what they take of memory, and how far the clock reaches.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

// What a step leaves behind is its end: eight bytes.
TEST(LongRun, TenThousandStepsWithNoiseAndFaultsTakeNoMoreMemoryThanTen) {
  const auto peak = [](const char* steps) {
    const Outcome r = run(
        {"simulate", "cnn-imagenet-slow-storage", "--steps", steps, "--threads", "1", "--set", "noise.kernels=0.05",
         "--set", "noise.links=[{resources: '*nvlink*', share: 0.5, capacity: 0.5, period: 1s, duty: 0.1}]", "--json"});
    EXPECT_EQ(r.status, 0) << r.err;
    return nlohmann::json::parse(r.out).at("engine").at("peak_rss_bytes").get<std::int64_t>();
  };
  EXPECT_LT(peak("10000"), peak("10") + 2'000'000);
}

TEST(BadInput, ARunLongerThanTheClockIsRefused) {
  const Outcome r = run({"simulate", "llama2-7b-8xa100", "--set", "training.global_batch=400000", "--set",
                         "plan.micro_batch=1000", "--steps", "1000"});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "the longest this program counts in picoseconds")) << r.err;
}

}  // namespace
}  // namespace rehearse::e2e
