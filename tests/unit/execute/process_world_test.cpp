// How a world of processes that is not yet whole ends: soon, and by naming the rank that died or never came. The other
// ranks are processes of their own that take their place on the board and then do as the test says.
#include "execute/processes/process_world.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "execute/performer.h"
#include "execute/processes/status_board.h"
#include "execute/transport/gloo/gloo_wire.h"
#include "tests/support/temporary.h"

namespace rehearse::execute {
namespace {

using std::chrono::milliseconds;

class GlooWorlds : public testing::Test {
 protected:
  void SetUp() override {
    if (!gloo_available()) GTEST_SKIP() << "built without Gloo";
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "Gloo is not built for the thread sanitizer, which cannot see how its threads agree";
#endif
  }
  ~GlooWorlds() override {
    std::filesystem::remove_all(folder_);
  }

  // A process that is rank 1 of 2 on the board and then does `then`.
  pid_t other(const std::function<void()>& then) {
    const std::string file = files_folder(folder_) + "/" + kBoardFile;
    const pid_t child = fork();
    if (child != 0) return child;
    const StatusBoard board(file, 2, 1);
    then();
    _exit(0);
  }
  ProcessOptions options(milliseconds timeout) const {
    ProcessOptions o;
    o.ranks = 2;
    o.folder = folder_;
    o.timeout = timeout;
    return o;
  }
  // What rank 0 has to say of a world that does not come about.
  static std::string failure_of(const ProcessOptions& o) {
    try {
      make_process_world(o);
    } catch (const RankFailure& failure) {
      return failure.what();
    }
    return "";
  }

  const std::string folder_ = test::temporary_path("world");
};

TEST_F(GlooWorlds, ARankThatDiesWhileConnectingIsNamedAtOnce) {
  for (const bool control_only : {false, true}) {
    const pid_t child = other([] { pause(); });
    std::thread killer([child] {
      std::this_thread::sleep_for(milliseconds(700));
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    });
    ProcessOptions o = options(milliseconds(100'000));
    o.control_only = control_only;
    const Clock::time_point before = Clock::now();
    EXPECT_EQ(failure_of(o), "rank 1 ended without a word\n  rank 1 had not begun");
    EXPECT_LT(Clock::now() - before, std::chrono::seconds(60)) << "not only once the time is up";
    killer.join();
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/rehearse-ranks"));
  }
}

TEST_F(GlooWorlds, ARankThatHangsWhileConnectingIsNamedAfterTheTimeout) {
  for (const bool control_only : {false, true}) {
    const pid_t child = other([] { pause(); });
    ProcessOptions o = options(milliseconds(500));
    o.control_only = control_only;
    EXPECT_EQ(failure_of(o),
              "rank 0 waited 0.5 s to be connected with rank 1\n"
              "  rank 1 does not answer: stopped, perhaps\n  rank 1 had not begun");
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

TEST_F(GlooWorlds, RanksOfDifferentIdentitiesEndWithOneMessage) {
  for (const bool control_only : {false, true}) {
    std::vector<std::string> said(3, "nothing");
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        ProcessOptions o = options(milliseconds(60'000));
        o.rank = rank;
        o.ranks = 3;
        o.control_only = control_only;
        o.identity = {{"training.seq_len", rank == 2 ? "16" : "8"}};
        try {
          make_process_world(o);
        } catch (const RanksDiffer& error) {
          said[static_cast<std::size_t>(rank)] = error.what();
        }
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(said, (std::vector<std::string>{"rank 2 was not started as the others\n"
                                              "  training.seq_len: 8 on ranks 0 and 1, 16 on rank 2",
                                              "", ""}));
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/rehearse-ranks"));
  }
}

}  // namespace
}  // namespace rehearse::execute
