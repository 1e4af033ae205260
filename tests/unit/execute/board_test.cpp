// What ranks that are processes know of one another through the board; here several boards of one process, which locks
// and maps treat as they would those of several.
#include "execute/gloo/board.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "sim/base/diagnostics.h"
#include "tests/support/temporary.h"

namespace rehearse::execute {
namespace {

class Boards : public testing::Test {
 protected:
  Boards() { std::filesystem::remove(file_); }
  ~Boards() override { std::filesystem::remove(file_); }
  const std::string file_ = test::temporary_path("board");
};

std::string nowhere(int rank) {
  return "rank " + std::to_string(rank) + " was somewhere";
}

TEST_F(Boards, SayWhoIsThereAndWhereItIs) {
  Board zero(file_, 2, 0);
  EXPECT_TRUE(zero.present(0));
  EXPECT_FALSE(zero.present(1));
  EXPECT_FALSE(zero.alive(1));
  {
    Board one(file_, 2, 1);
    EXPECT_TRUE(zero.present(1));
    EXPECT_TRUE(zero.alive(1));
    EXPECT_TRUE(zero.same_machine(1));
    EXPECT_EQ(zero.whereabouts(1).instance[3], -1);
    one.whereabouts(1).instance[3] = 17;
    EXPECT_EQ(zero.whereabouts(1).instance[3], 17);
  }
  EXPECT_TRUE(zero.present(1));
  EXPECT_FALSE(zero.alive(1)) << "its lock is gone with it";
}

TEST_F(Boards, ADeathIsSeenWithoutAWord) {
  Board zero(file_, 2, 0);
  const pid_t child = fork();
  if (child == 0) {
    const Board one(file_, 2, 1);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(zero.present(1));
  EXPECT_FALSE(zero.alive(1));
  EXPECT_FALSE(zero.through(1));
}

TEST_F(Boards, ASlotIsTakenOnce) {
  auto one = std::make_unique<Board>(file_, 2, 1);
  EXPECT_THROW(Board(file_, 2, 1), InputError);
  one.reset();
  EXPECT_THROW(Board(file_, 2, 1), InputError) << "left by an earlier run";
}

TEST_F(Boards, RememberTheLastCallsOfAGroup) {
  Board zero(file_, 2, 0), one(file_, 2, 1);
  const Clock::time_point now = Clock::now();
  one.arrive(2, 5, now);
  EXPECT_EQ(zero.arrival(1, 2, 5), now);
  EXPECT_FALSE(zero.arrival(1, 2, 1)) << "the same place, another call";
  EXPECT_FALSE(zero.arrival(1, 3, 5));
}

TEST_F(Boards, TheFirstCauseStaysAndTheOthersWaited) {
  Board zero(file_, 3, 0), one(file_, 3, 1), two(file_, 3, 2);
  EXPECT_FALSE(zero.stopped());
  one.fail("rank 1 is out of ideas");
  two.fail("rank 2 came second");
  zero.waited("rank 0 waited for rank 1");
  EXPECT_TRUE(zero.stopped());
  EXPECT_EQ(failure_text(zero, std::vector<std::string>(3), nowhere),
            "rank 1 is out of ideas\n  rank 0 waited for rank 1\n  rank 2 came second");
  EXPECT_TRUE(two.claim_telling());
  EXPECT_FALSE(zero.claim_telling());
}

TEST_F(Boards, ADeathExplainsALostConnection) {
  Board zero(file_, 2, 0);
  zero.lost(1);
  zero.waited("rank 0 waited for rank 1");
  EXPECT_EQ(failure_text(zero, std::vector<std::string>(2), nowhere),
            "the connection to rank 1 was lost\n  rank 1 was somewhere\n  rank 0 waited for rank 1");
  EXPECT_EQ(failure_text(zero, std::vector<std::string>{"", "was killed"}, nowhere),
            "rank 1 was killed\n  rank 1 was somewhere\n  rank 0 waited for rank 1");
}

}  // namespace
}  // namespace rehearse::execute
