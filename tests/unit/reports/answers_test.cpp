// What a result answers besides its step, in words and rows, on the terminal and on the page.
#include "reports/answers.h"

#include <gtest/gtest.h>

#include <sstream>

#include "reports/html/html.h"
#include "reports/limits.h"
#include "reports/tables.h"
#include "reports/text.h"
#include "stored.h"

namespace rehearse::reports {
namespace {

using result::Result;

// A step of 10 us on 8 ranks, of which 8 without noise.
Result noisy() {
  Result r = stored().result;
  r.noise.known = true;
  r.noise.seed = 4, r.noise.sample = 2, r.noise.without_ps = 8 * kMicrosecond;
  r.noise.causes = {{"slow_rank", 3, 1.2, "", 0, 8 * kMicrosecond},
                    {"slow_rank", 5, 1.2, "", 0, 10 * kMicrosecond},
                    {"slow_ranks", -1, 1, "", 2, 8 * kMicrosecond},
                    {"links", -1, 1, "node0/nic*", 16, 5 * kMicrosecond},
                    {"kernels", -1, 1, "", 0, 11 * kMicrosecond}};
  r.samples = {100,
               2,
               {9 * kMicrosecond, 10 * kMicrosecond, 12 * kMicrosecond},
               8 * kMicrosecond,
               13 * kMicrosecond,
               10 * kMicrosecond,
               {}};
  r.samples.breakdown_ps[0] = {1 * kMicrosecond, 2 * kMicrosecond, 3 * kMicrosecond};
  return r;
}

Result with_links() {
  Result r = noisy();
  r.links.known = true;
  r.links.used = 1032;
  r.links.busiest = {{"node0/nic0-out",
                      "nic",
                      1024,
                      25'000'000'000,
                      125'000,
                      {{"data all_reduce", 100'000}, {"pipeline send", 24'980}, {"norm all_reduce", 20}},
                      6 * kMicrosecond,
                      2 * kMicrosecond,
                      9 * kMicrosecond,
                      4 * kMicrosecond,
                      1 * kMicrosecond,
                      25'000},
                     {std::string(100, 'x'), "link", 1, 1'000'000'000'000, 1, {{"a", 1}}, 1, 2, 3, 4, 5, 1}};
  return r;
}

Result with_what_ifs() {
  Result r = with_links();
  r.what_if = {{"compute", 14 * kMicrosecond, 8 * kMicrosecond}, {"memory_bandwidth", 11 * kMicrosecond, 9'500'000},
               {"nvlink", 10 * kMicrosecond, 10 * kMicrosecond}, {"nic", 15 * kMicrosecond, 7 * kMicrosecond},
               {"latency", 9 * kMicrosecond, 12 * kMicrosecond}, {"launch", 10 * kMicrosecond, 10 * kMicrosecond}};
  return r;
}

TEST(Answers, ASlowRankIsNamedWithWhatItCosts) {
  const auto said = noise_sentences(noisy());
  ASSERT_EQ(said.size(), 6u);
  EXPECT_EQ(said[0], "Without noise the step would take 8 us; noise makes it 25.0% longer (seed 4, sample 2).");
  EXPECT_EQ(said[1],
            "Rank 3 is slow (its kernels take 1.2 times as long): that costs 2 us a step, 25.0% more than without it.");
  EXPECT_EQ(said[2],
            "Rank 5 is slow (its kernels take 1.2 times as long): that costs nothing in this step: others are in its "
            "way more.");
  EXPECT_EQ(said[3], "The 2 slow ranks together cost 2 us a step, 25.0% more than without them.");
  EXPECT_EQ(said[4], "Slow links 'node0/nic*' (16) cost 5 us a step, 100.0% more than without them.");
  EXPECT_EQ(said[5], "Jitter of kernels gains 1 us a step, 9.1% less than without it.");
  EXPECT_TRUE(noise_sentences(stored().result).empty());
}

TEST(Answers, SharesOfALinkAreOfItsCapacity) {
  const Result r = with_links();
  const Rows rows = link_rows(r, 1);
  ASSERT_EQ(rows.size(), 2u);
  // 125,000 B of 25 GB/s over 10 us (250,000 B); 25,000 B in the window of 1 us (25,000 B).
  EXPECT_EQ(rows[1],
            (std::vector<std::string>{"node0/nic0-out", "1,024", "50.0%", "100.0%", "125 kB", "data all_reduce 80%"}));
  EXPECT_EQ(
      link_sentence(r, r.links.busiest[0]),
      "node0/nic0-out: in use for 60.0% of the step, from 2 us to 9 us; most in the tenth from 4 us: 100.0% of 25 "
      "GB/s; for data all_reduce 80.0%, pipeline send 20.0%.");
}

TEST(Answers, WhatGainsMostIsTheLimit) {
  Result r = with_what_ifs();
  EXPECT_EQ(limited_by(r),
            "NICs and network: doubled, it would make the step 30.0% shorter (7 us); next is compute rate doubled, "
            "20.0%.");
  ASSERT_EQ(gains(r).size(), 6u);
  EXPECT_EQ(gains(r)[2].name, "transfers' latency");
  EXPECT_FALSE(gains(r)[2].doubled) << "less of it is better";
  r.what_if = {{"launch", 9'950'000, 10 * kMicrosecond}};
  EXPECT_EQ(limited_by(r),
            "Nothing alone: of all what-ifs host launch cost halved helps most, and makes the step 0.5% shorter.");
  r.memory_fits = false;
  EXPECT_TRUE(limited_by(r).starts_with("Does not fit")) << "memory comes first";
}

TEST(Answers, WhatIfRowsSayTheChange) {
  const Rows rows = what_if_rows(with_what_ifs());
  ASSERT_EQ(rows.size(), 7u);
  EXPECT_EQ(rows[1], (std::vector<std::string>{"compute rate", "14 us", "+40.0%", "8 us", "-20.0%"}));
  EXPECT_EQ(rows[3][2], "0.0%");
}

TEST(Answers, AJobBesideThatDoesNotFitIsAWarning) {
  Result r = stored().result;
  r.jobs.resize(3);
  for (result::JobResult& job : r.jobs) job.peak_bytes = 90'000'000'000, job.memory_capacity = 80'000'000'000;
  r.jobs[1].name = "neighbour";
  r.jobs[2].peak_bytes = 80'000'000'000;
  EXPECT_EQ(warnings(r),
            std::vector<std::string>{"Job neighbour does not fit in memory: it needs 90 GB of 80 GB a GPU, "
                                     "and is simulated as if it did."})
      << "of the scenario's own the result says so itself";
}

// 80 GB, of which a twentieth is 4 GB.
TEST(Answers, MemoryThatIsNearlyFullIsAWarningUnlessTheScenarioSaysWhatIsEnough) {
  Result r = stored().result;
  r.stages.resize(1);
  r.stages[0].peak = 76'000'000'000;
  EXPECT_TRUE(warnings(r).empty());
  r.stages[0].peak = 79'200'000'000;
  ASSERT_EQ(warnings(r).size(), 1u);
  EXPECT_TRUE(warnings(r)[0].starts_with("Memory is nearly full: stage 0 leaves 800 MB of 80 GB a GPU free, 1.0%."))
      << warnings(r)[0];
  r.memory_headroom = 400'000'000;
  EXPECT_TRUE(warnings(r).empty());
  r.memory_headroom = 0, r.memory_fits = false;
  EXPECT_TRUE(warnings(r).empty()) << "it says so itself";
}

TEST(Answers, HeadroomIsNamedWherePlansDoNotFit) {
  Result r = stored().result;
  r.stages.resize(1);
  r.stages[0].peak = 79'200'000'000;
  r.memory_headroom = 4'000'000'000, r.memory_fits = false;
  EXPECT_TRUE(
      limited_by(r).starts_with("Does not fit: stage 0 needs 79.2 GB of 76 GB a GPU (80 GB less 4 GB of "
                                "cluster.headroom);"))
      << limited_by(r);
  EXPECT_NE(summary(r).find("of 76 GB, DOES NOT FIT"), std::string::npos) << summary(r);
  EXPECT_NE(summary(r).find("headroom: of 80 GB a GPU, 4 GB are kept free"), std::string::npos) << summary(r);
}

TEST(Answers, UtilisationAboveThePeakIsAWarning) {
  Result r = stored().result;
  EXPECT_TRUE(warnings(r).empty());
  r.model_flops = 9e6;  // of 8 ranks in 10 us: 112.5 GFLOP/s of 100
  ASSERT_EQ(warnings(r).size(), 1u);
  EXPECT_TRUE(warnings(r)[0].starts_with("MFU is above 100%: 112.5% of the peak"));
  EXPECT_NE(summary(r).find("Warning: MFU is above 100%"), std::string::npos);
}

Result with_jobs() {
  Result r = with_what_ifs();
  const std::string name(100, 'n');
  r.jobs = {{"own", 64, 0, 1, 20 * kMicrosecond, 20 * kMicrosecond, 20 * kMicrosecond, 10 * kMicrosecond, 2},
            {name, 100'000, 0, 12, 9'999'999'000'000, 1, 2, 9'999'999'000'000, 1}};
  r.links.busiest[0].users[0].name = name + ": data all_reduce";
  return r;
}

TEST(Answers, JobsHaveARowEach) {
  const Rows rows = job_rows(with_jobs());
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1], (std::vector<std::string>{"own", "64", "20 us", "10 us", "2.000", "1", "20 us", "20 us"}));
  std::istringstream lines(summary(with_jobs()));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), kWidth) << line;
  EXPECT_NE(summary(with_jobs()).find(": data all_reduce"), std::string::npos) << "of a long name the end is kept";
  EXPECT_TRUE(job_rows(with_what_ifs()).empty());
  result::StoredResult run = stored();
  run.result = with_jobs();
  HtmlOptions options;
  options.script = false;
  EXPECT_NE(html_page({run}, options).find("id=\"jobs\""), std::string::npos);
}

TEST(Answers, ATerminalHas80Columns) {
  std::istringstream lines(summary(with_what_ifs()));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), kWidth) << line;
  EXPECT_EQ(answers_text(stored().result), "") << "and nothing where there is nothing to say";
}

TEST(Answers, ThePageHasTheSameWords) {
  result::StoredResult run = stored();
  HtmlOptions options;
  options.script = false;
  const auto has = [&](const char* text) { return html_page({run}, options).find(text) != std::string::npos; };
  for (const char* id : {"id=\"samples\"", "id=\"noise\"", "id=\"links\"", "id=\"what-if\""})
    EXPECT_FALSE(has(id)) << id;
  run.result = with_what_ifs();
  run.result.links.busiest[1].name = "<b>";
  for (const char* id : {"id=\"samples\"", "id=\"noise\"", "id=\"links\"", "id=\"what-if\""})
    EXPECT_TRUE(has(id)) << id;
  EXPECT_TRUE(has("Rank 3 is slow"));
  EXPECT_TRUE(has("data all_reduce 80.0%, pipeline send 20.0%"));
  EXPECT_TRUE(has("what limits it is NICs and network: doubled"));
  EXPECT_FALSE(has("<b>"));
}

}  // namespace
}  // namespace rehearse::reports
