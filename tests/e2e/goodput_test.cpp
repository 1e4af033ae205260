// rehearse goodput as a user meets it: a fleet's published numbers, the same bytes again, and what is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

// Grattafiori et al. 2024 (arXiv 2407.21783): 419 unplanned interruptions, effective training time above 90%.
TEST(GoodputCommand, Llama3sInterruptionsAndEffectiveTime) {
  const std::vector<std::string> words = {"goodput", "llama3-405b-54-days", "--days", "54", "--samples", "200",
                                          "--json"};
  const Outcome r = run(words);
  ASSERT_EQ(r.status, 0) << r.err;
  const Json j = Json::parse(r.out);
  EXPECT_EQ(j["schema"], "rehearse.goodput/1");
  EXPECT_EQ(j["hosts"], 2048);
  EXPECT_LT(j["interruptions"]["p5"], 419);
  EXPECT_GT(j["interruptions"]["p95"], 419);
  EXPECT_GT(j["effective_ratio"]["p5"], 0.9);
  EXPECT_NEAR(j["failures"]["gpu"]["p50"].get<double>(), 268, 10);
  EXPECT_EQ(run(words).out, r.out);
}

// Kokolis et al. 2024 (arXiv 2410.21680) project 1.8 hours between failures of a job of 16,384 GPUs.
TEST(GoodputCommand, RscsProjectionHasAFileOfItsOwn) {
  const Outcome r = run({"goodput", "gpt3-175b-16384xa100-failures", "--samples", "50", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json j = Json::parse(r.out);
  EXPECT_EQ(j["hosts"], 2048);
  EXPECT_NEAR(j["mean_time_to_failure_s"].get<double>() / 3600, 1.8, 0.01);
}

TEST(GoodputCommand, ATableAndWhatItCosts) {
  const Outcome r = run({"goodput", "gpt3-175b-failures", "--tokens", "30B", "--samples", "50", "--price", "2"});
  ASSERT_EQ(r.status, 0) << r.err;
  for (const char* text : {"128 hosts, 16 spare", "Young", "Effective", "Cost              $", "\n  restart"})
    EXPECT_TRUE(has(r.out, text)) << text << "\n" << r.out;
  EXPECT_LE(widest(r.out), 80u);
}

// A price of 0 is one: the shipped one must not stand in for it.
TEST(GoodputCommand, APriceOfNothingCostsNothing) {
  const Outcome r = run({"goodput", "gpt3-175b-failures", "--samples", "20", "--price", "0"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_FALSE(has(r.out, "$")) << r.out;
  EXPECT_TRUE(has(run({"goodput", "gpt3-175b-failures", "--samples", "20"}).out, "Cost              $"));
}

TEST(GoodputCommand, WhatCannotBeIsRefusedWithItsKey) {
  const auto refused = [](std::vector<std::string> words, const std::string& message) {
    words.insert(words.begin(), "goodput");
    const Outcome r = run(words);
    EXPECT_EQ(r.status, 2) << r.err;
    EXPECT_TRUE(has(r.err, message)) << r.err;
  };
  refused({"gpt-tiny-ddp"}, "failures: nothing fails");
  refused({"gpt3-175b-1024xa100", "--set", "failures.host_mtbf_hours=1000"}, "checkpoint.storage_bandwidth: is needed");
  refused({"gpt3-175b-failures", "--set", "failures.restrat=1min"}, "restart");
  refused({"gpt3-175b-failures", "--set", "checkpoint.storage_bandwidth=0"}, "expected at least 1MB/s");
  refused({"gpt3-175b-failures", "--tokens", "many"}, "expected a number such as 1.4T");
}

}  // namespace
}  // namespace rehearse::e2e
