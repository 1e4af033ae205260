// Ranks that share a GPU: the variables they get, and an MPS daemon of our own, here a script that says what is done to
// it.
#include "execute/placement/shared_device.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "execute/placement/devices.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

namespace fs = std::filesystem;

TEST(SharedDevice, EveryRankIsAHostOfItsOwnAndMeetsOthersOnTheLoopback) {
  const execute::Variables one = execute::sharing_variables(1), two = execute::sharing_variables(2);
  ASSERT_EQ(one.front().first, "NCCL_HOSTID");
  EXPECT_NE(one.front().second, two.front().second);
  const auto value = [&](const std::string& name) {
    const auto found = std::find_if(one.begin(), one.end(), [&](const auto& v) { return v.first == name; });
    return found == one.end() ? "" : found->second;
  };
  EXPECT_EQ(value("NCCL_NET"), "Socket");
  EXPECT_EQ(value("NCCL_SOCKET_IFNAME"), "lo");
  EXPECT_EQ(value("NCCL_MAX_CTAS"), "2");
}

TEST(SharedDevice, WhatTheUserHasSetStaysButForTheHost) {
  ::setenv("NCCL_MAX_CTAS", "7", 1);
  ::setenv("NCCL_HOSTID", "mine", 1);
  execute::share_device(3);
  EXPECT_STREQ(std::getenv("NCCL_MAX_CTAS"), "7");
  EXPECT_STREQ(std::getenv("NCCL_HOSTID"), "rehearse3");
  EXPECT_STREQ(std::getenv("NCCL_ALGO"), "Ring");
  for (const auto& [name, unused] : execute::sharing_variables(3)) ::unsetenv(name.c_str());
}

// A folder in front of PATH with a script in place of the daemon.
class FakeMps : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test::temporary_path("mps");
    fs::create_directories(folder_);
    ::setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
  }
  void TearDown() override {
    ::setenv("PATH", path_.c_str(), 1);
    fs::remove_all(folder_);
  }
  void script(const std::string& text) const {
    const std::string file = folder_ + "/nvidia-cuda-mps-control";
    std::ofstream(file) << "#!/bin/sh\nlog=" << folder_ << "/log\n" << text;
    ::chmod(file.c_str(), 0755);
  }
  std::string log() const {
    std::ifstream in(folder_ + "/log");
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  const std::string path_ = std::getenv("PATH");
  std::string folder_;
};

TEST_F(FakeMps, IsStartedWithItsOwnDirectoryAskedToQuitAndGone) {
  script(R"(if [ "$1" = -f ]; then
  echo "daemon $$" >> $log; : > $CUDA_MPS_PIPE_DIRECTORY/control
  while [ ! -e $CUDA_MPS_PIPE_DIRECTORY/quit ]; do sleep 0.05; done
  echo ended >> $log
else
  read word rest; echo "asked to $word" >> $log; : > $CUDA_MPS_PIPE_DIRECTORY/quit
fi
)");
  std::string why, pipe;
  {
    const auto mps = execute::Mps::start(why);
    ASSERT_TRUE(mps) << why;
    for (const auto& [name, value] : mps->variables())
      if (name == "CUDA_MPS_PIPE_DIRECTORY") pipe = value;
    EXPECT_TRUE(fs::exists(pipe + "/control"));
  }
  EXPECT_FALSE(fs::exists(pipe));
  const std::string text = log();
  EXPECT_NE(text.find("asked to quit\nended\n"), std::string::npos) << text;
}

// A daemon without a server: whoever asks under it gets no context, and its environment is as before.
TEST_F(FakeMps, OneUnderWhichNothingRunsIsKnown) {
  script(R"(if [ "$1" = -f ]; then
  : > $CUDA_MPS_PIPE_DIRECTORY/control
  while [ ! -e $CUDA_MPS_PIPE_DIRECTORY/quit ]; do sleep 0.05; done
else
  : > $CUDA_MPS_PIPE_DIRECTORY/quit
fi
)");
  std::string why;
  const auto mps = execute::Mps::start(why);
  ASSERT_TRUE(mps) << why;
  ::setenv("CUDA_MPS_LOG_DIRECTORY", "as before", 1);
  EXPECT_NE(mps->problem(), "");
  EXPECT_STREQ(std::getenv("CUDA_MPS_LOG_DIRECTORY"), "as before");
  EXPECT_EQ(std::getenv("CUDA_MPS_PIPE_DIRECTORY"), nullptr);
  ::unsetenv("CUDA_MPS_LOG_DIRECTORY");
}

TEST_F(FakeMps, OneThatDoesNotQuitIsEnded) {
  script(R"(if [ "$1" = -f ]; then
  echo $$ > $log; : > $CUDA_MPS_PIPE_DIRECTORY/control
  while true; do sleep 0.05; done
fi
)");
  std::string why;
  { ASSERT_TRUE(execute::Mps::start(why)) << why; }
  EXPECT_FALSE(fs::exists("/proc/" + log().substr(0, log().find('\n')) + "/stat"));
}

TEST_F(FakeMps, OneThatEndsAtOnceIsNone) {
  script("exit 1\n");
  std::string why;
  EXPECT_FALSE(execute::Mps::start(why));
  EXPECT_EQ(why, "nvidia-cuda-mps-control ended at once");
}

TEST_F(FakeMps, IsNotStartedWhereItIsOff) {
  script("echo started >> $log\n");
  ::setenv("REHEARSE_MPS", "off", 1);
  std::string why;
  EXPECT_FALSE(execute::Mps::start(why));
  ::unsetenv("REHEARSE_MPS");
  EXPECT_EQ(why, "REHEARSE_MPS is off");
  EXPECT_EQ(log(), "");
}

// On a machine with a GPU there are facts, else a reason; neither hangs nor leaves this process a driver.
TEST(FindDevices, GivesDevicesOrAReason) {
  const execute::Devices found = execute::find_devices(true);
  EXPECT_NE(found.devices.empty(), found.why_none.empty());
  for (const auto& device : found.devices) EXPECT_GT(device.total_bytes, 0);
}

}  // namespace
}  // namespace rehearse
