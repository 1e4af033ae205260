// What ranks that are processes know of one another through the board; here several boards of one process, which locks
// and maps treat as they would those of several.
#include "execute/processes/status_board.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "sim/base/diagnostics.h"
#include "tests/support/temporary.h"

namespace rehearse::execute {
namespace {

class StatusBoards : public testing::Test {
 protected:
  StatusBoards() { std::filesystem::remove(file_); }
  ~StatusBoards() override { std::filesystem::remove(file_); }
  const std::string file_ = test::temporary_path("board");
};

std::string nowhere(int rank) {
  return "rank " + std::to_string(rank) + " was somewhere";
}

TEST_F(StatusBoards, SayWhoIsThereAndWhereItIs) {
  StatusBoard zero(file_, 2, 0);
  EXPECT_TRUE(zero.present(0));
  EXPECT_FALSE(zero.present(1));
  EXPECT_FALSE(zero.alive(1));
  {
    StatusBoard one(file_, 2, 1);
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

TEST_F(StatusBoards, ADeathIsSeenWithoutAWord) {
  StatusBoard zero(file_, 2, 0);
  const pid_t child = fork();
  if (child == 0) {
    const StatusBoard one(file_, 2, 1);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(zero.present(1));
  EXPECT_FALSE(zero.alive(1));
  EXPECT_FALSE(zero.through(1));
}

TEST_F(StatusBoards, ASlotIsTakenOnce) {
  auto one = std::make_unique<StatusBoard>(file_, 2, 1);
  EXPECT_THROW(StatusBoard(file_, 2, 1), InputError);
  one.reset();
  EXPECT_THROW(StatusBoard(file_, 2, 1), InputError) << "left by an earlier run";
}

TEST_F(StatusBoards, RememberTheLastCallsOfAGroup) {
  StatusBoard zero(file_, 2, 0), one(file_, 2, 1);
  const Clock::time_point now = Clock::now();
  one.arrive(2, 5, now);
  EXPECT_EQ(zero.arrival(1, 2, 5), now);
  EXPECT_FALSE(zero.arrival(1, 2, 1)) << "the same place, another call";
  EXPECT_FALSE(zero.arrival(1, 3, 5));
}

TEST_F(StatusBoards, TheFirstCauseStaysAndTheOthersWaited) {
  StatusBoard zero(file_, 3, 0), one(file_, 3, 1), two(file_, 3, 2);
  EXPECT_FALSE(zero.stopped());
  one.fail("rank 1 is out of ideas");
  two.fail("rank 2 came second");
  zero.waited("rank 0 waited for rank 1");
  EXPECT_TRUE(zero.stopped());
  EXPECT_EQ(failure_text(zero.facts(), nowhere),
            "rank 1 is out of ideas\n  rank 0 waited for rank 1\n  rank 2 came second");
  EXPECT_TRUE(two.claim_report());
  EXPECT_FALSE(zero.claim_report());
}

TEST_F(StatusBoards, ADeathExplainsALostConnection) {
  StatusBoard zero(file_, 2, 0);
  zero.lost(1);
  zero.waited("rank 0 waited for rank 1");
  EXPECT_EQ(failure_text(zero.facts(), nowhere),
            "the connection to rank 1 was lost\n  rank 1 was somewhere\n  rank 0 waited for rank 1");
  FailureFacts facts = zero.facts();
  facts.deaths[1] = "was killed";
  EXPECT_EQ(failure_text(facts, nowhere), "rank 1 was killed\n  rank 1 was somewhere\n  rank 0 waited for rank 1");
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Someone who may write to the folder plants a link to a file that we may write.
TEST_F(StatusBoards, ALinkIsNotFollowed) {
  const std::string foreign = test::temporary_path("foreign");
  std::ofstream(foreign) << "precious";
  std::filesystem::create_symlink(foreign, file_);
  EXPECT_THROW(StatusBoard(file_, 2, 0), InputError);
  std::filesystem::remove(file_);
  std::filesystem::create_hard_link(foreign, file_);
  EXPECT_THROW(StatusBoard(file_, 2, 0), InputError);
  EXPECT_EQ(text_of(foreign), "precious");
  std::filesystem::remove(foreign);
}

TEST_F(StatusBoards, OfAnotherNumberOfRanksIsRefusedAndStaysAsItIs) {
  const StatusBoard three(file_, 3, 0);
  const auto size = std::filesystem::file_size(file_);
  for (const int ranks : {2, 4}) {
    try {
      const StatusBoard other(file_, ranks, 1);
      ADD_FAILURE() << ranks;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("was made for 3 ranks, not for " + std::to_string(ranks)),
                std::string::npos)
          << error.what();
    }
    EXPECT_GE(std::filesystem::file_size(file_), size) << "a map that is longer than its file ends the process";
  }
}

// As under ulimit -f, or on a full disk: mapped all the same, its last pages could not be written.
TEST_F(StatusBoards, WithoutRoomIsAnErrorThatSaysHowMuchItNeeds) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{10'000, 10'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      const StatusBoard board(file_, 8, 0);
      board.whereabouts(7).step = 1;
      _exit(1);
    } catch (const std::runtime_error& error) {
      const std::string text = error.what();
      _exit(text.find("8 ranks need ") != std::string::npos && text.find(" bytes there") != std::string::npos &&
                    text.find(file_) != std::string::npos && text.find("ulimit -f") != std::string::npos
                ? 0
                : 2);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST(RanksFolders, AreOursAlone) {
  namespace fs = std::filesystem;
  const std::string meet = test::temporary_path("meet"), folder = meet + "/rehearse-ranks";
  EXPECT_EQ(files_folder(meet), folder);
  EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
  EXPECT_EQ(files_folder(meet), folder) << "as the next rank finds it";
  fs::permissions(folder, fs::perms::all);
  EXPECT_THROW(files_folder(meet), InputError) << "others may write to it";
  fs::remove(folder);
  fs::create_directories(meet + "/elsewhere");
  fs::create_directory_symlink(meet + "/elsewhere", folder);
  EXPECT_THROW(files_folder(meet), InputError) << "a link";
  fs::remove(folder);
  if (geteuid() == 0) {
    fs::create_directory(folder);
    ASSERT_EQ(chown(folder.c_str(), 65534, 65534), 0);
    EXPECT_THROW(files_folder(meet), InputError) << "someone else's";
  }
  fs::remove_all(meet);
}

}  // namespace
}  // namespace rehearse::execute
