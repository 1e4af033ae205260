// How a process ends that is told to, each time another one: whether its work looks for the signal or not, nothing that
// it lists as unfinished is left.
#include "sim/base/unfinished.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "sim/base/document.h"
#include "sim/base/interrupt.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

namespace fs = std::filesystem;

void write(const std::string& path) {
  std::ofstream(path) << "x";
}

// The wait status of a process that does `work`; it exits with 7 if that returns.
int in_process(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);  // as a terminal's program has them
    handle_end_signals();
    try {
      work();
    } catch (const Interrupted& end) {
      _exit(end.exit_status());
    }
    _exit(7);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

class Unfinishing : public testing::Test {
 protected:
  Unfinishing() { fs::create_directories(folder_ + "/deep/deeper"); }
  ~Unfinishing() override { fs::remove_all(folder_); }
  const std::string folder_ = test::temporary_path("unfinished"), file_ = folder_ + "-file";
};

TEST_F(Unfinishing, ASignalIsARequestFirst) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = in_process([&] {
      raise(signal);
      EXPECT_EQ(end_signal(), signal);
      check_interrupt();
    });
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + signal) << signal << " " << status;
  }
}

TEST_F(Unfinishing, OneThatIsIgnoredStaysIgnored) {
  const int status = in_process([&] {
    signal(SIGHUP, SIG_IGN);
    handle_end_signals();
    raise(SIGHUP);
    check_interrupt();
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

TEST_F(Unfinishing, ASecondSignalEndsItAndTakesAwayWhatIsListed) {
  write(file_);
  write(file_ + "-kept");
  for (const char* name : {"/one", "/deep/two", "/deep/deeper/three"}) write(folder_ + name);
  fs::create_symlink(file_ + "-kept", folder_ + "/deep/link");
  const int status = in_process([&] {
    const Unfinished file(file_), folder(folder_);
    { const Unfinished done(file_ + "-kept"); }
    raise(SIGTERM);
    usleep(600'000);
    raise(SIGTERM);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  EXPECT_FALSE(fs::exists(file_));
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_TRUE(fs::remove(file_ + "-kept")) << "finished, and only linked to from the folder";
}

// timeout sends one to the process and one to its group.
TEST_F(Unfinishing, TwoSignalsAtOnceAreOneRequest) {
  const int status = in_process([&] {
    raise(SIGTERM);
    raise(SIGTERM);
    check_interrupt();
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 143) << status;
}

TEST_F(Unfinishing, WorkThatDoesNotLookIsEndedInTheEnd) {
  write(file_);
  const int status = in_process([&] {
    const Unfinished file(file_);
    raise(SIGINT);
    for (unsigned left = kPatienceSeconds + 20; left > 0;) left = sleep(left);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_FALSE(fs::exists(file_));
}

TEST_F(Unfinishing, ATemporaryFolderIsOursAlone) {
  std::string path;
  {
    const TemporaryFolder folder("test");
    path = folder.path();
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    write(path + "/x");
  }
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace rehearse
