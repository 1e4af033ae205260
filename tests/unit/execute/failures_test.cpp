// What is to blame for a run that failed, and the message that says so.
#include "execute/processes/failures.h"

#include <gtest/gtest.h>

namespace rehearse::execute {
namespace {

std::string somewhere(int rank) {
  return "rank " + std::to_string(rank) + " was somewhere";
}

TEST(FailureText, OfARunThatDidNotFailIsEmpty) {
  FailureFacts facts;
  facts.waiting[0] = "rank 0 waited";
  facts.silent = {1};
  EXPECT_EQ(failure_text(facts, somewhere), "");
}

// Each may follow from the one before, never the other way round.
TEST(FailureText, BlamesWhoSpokeBeforeADeathBeforeALostConnection) {
  FailureFacts facts;
  facts.lost = 3;
  EXPECT_EQ(failure_text(facts, somewhere), "the connection to rank 3 was lost\n  rank 3 was somewhere");
  facts.deaths[2] = "was killed";
  EXPECT_EQ(failure_text(facts, somewhere), "rank 2 was killed\n  rank 2 was somewhere");
  facts.failed = 1;
  facts.cause = "rank 1 failed";
  EXPECT_EQ(failure_text(facts, somewhere), "rank 1 failed\n  rank 2 was killed\n  rank 2 was somewhere");
  facts.from_outside = "someone ended it";
  EXPECT_EQ(failure_text(facts, somewhere), "someone ended it") << "who waited then explains nothing";
}

TEST(FailureText, NamesWhoWaitedAndWhoIsSilent) {
  FailureFacts facts;
  facts.failed = 0;
  facts.cause = "rank 0 waited 3 s for rank 1";
  facts.waiting = {{0, "rank 0 waited too"}, {2, "rank 2 waited for rank 0"}};
  facts.silent = {1, 3};
  facts.deaths[3] = kEndedSilently;
  EXPECT_EQ(failure_text(facts, somewhere),
            "rank 0 waited 3 s for rank 1\n"
            "  rank 3 ended without a word\n  rank 3 was somewhere\n"
            "  rank 2 waited for rank 0\n"
            "  rank 1 does not answer: stopped, perhaps\n  rank 1 was somewhere");
}

TEST(FailureText, SaysOnceWhereThoseWereForWhomSeveralWaited) {
  FailureFacts facts;
  facts.failed = 0;
  facts.cause = "rank 0 waited 3 s for rank 1\n  rank 1 was in an op";
  facts.waiting = {{1, "rank 1 waited for rank 3\n  rank 3 was in a kernel"},
                   {2, "rank 2 waited for rank 3\n  rank 3 was in a kernel"}};
  EXPECT_EQ(failure_text(facts, somewhere),
            "rank 0 waited 3 s for rank 1\n  rank 1 was in an op\n"
            "  rank 1 waited for rank 3\n  rank 3 was in a kernel\n"
            "  rank 2 waited for rank 3");
}

TEST(FailureText, ShowsEightLinesAndCountsTheRest) {
  FailureFacts facts;
  facts.failed = 0;
  facts.cause = "cause";
  for (int rank = 1; rank <= 10; ++rank) facts.waiting[rank] = "wait " + std::to_string(rank);
  const std::string text = failure_text(facts, somewhere);
  EXPECT_TRUE(text.ends_with("\n  wait 8\n  and 2 more")) << text;
}

TEST(FailureTexts, NameRanksAndTimes) {
  EXPECT_EQ(ranks_text(std::vector<int>{3}), "rank 3");
  EXPECT_EQ(ranks_text(std::vector<int>{1, 3}), "ranks 1, 3");
  EXPECT_EQ(waited_text(std::chrono::milliseconds(1500)), "waited 1.5 s");
  EXPECT_EQ(waited_text(std::chrono::milliseconds(1500), std::vector<int>{1, 3}), "waited 1.5 s for ranks 1, 3");
}

TEST(FailureLog, KeepsTheFirstCauseAndCountsLaterOnesAsWaiting) {
  FailureLog log;
  log.waited(2, "rank 2 waited");
  log.failed(1, "rank 1 failed");
  log.failed(2, "rank 2 came second");
  log.failed(3, "rank 3 came third");
  EXPECT_EQ(failure_text(log.facts(), somewhere), "rank 1 failed\n  rank 2 waited\n  rank 3 came third");
}

// Whoever speaks after a death was seen most often tells its consequence.
TEST(FailureLog, ADeathIsBlamedBeforeWhatIsReportedAfterIt) {
  FailureLog log;
  log.died(0);
  log.failed(1, "rank 1 failed: its peer is gone");
  EXPECT_EQ(failure_text(log.facts(), somewhere),
            "rank 0 ended without a word\n  rank 0 was somewhere\n  rank 1 failed: its peer is gone");
}

TEST(LocalFailures, StopTheRun) {
  Stop stop;
  LocalFailures failures(stop);
  failures.waited(0, "rank 0 waited");
  EXPECT_FALSE(stop.requested());
  EXPECT_EQ(failures.report(somewhere), "");
  failures.fail(1, "rank 1 failed");
  EXPECT_TRUE(stop.requested());
  EXPECT_EQ(failures.report(somewhere), "rank 1 failed\n  rank 0 waited");
}

}  // namespace
}  // namespace rehearse::execute
