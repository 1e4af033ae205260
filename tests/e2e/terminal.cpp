// See terminal.h.
#include "terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>

extern char** environ;

namespace rehearse::e2e {
namespace {

constexpr std::chrono::seconds kPatience{120};

// Processor time of a process so far: fields 14 and 15 of proc(5)'s stat.
double cpu_of(pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/stat");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  std::istringstream rest(text.substr(text.rfind(')') + 1));
  std::string word;
  double ticks = 0;
  for (int field = 3; rest >> word; ++field)
    if (field == 14 || field == 15) ticks += std::stod(word);
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

pid_t spawn(std::vector<std::string> words, int terminal) {
  setenv("REHEARSE_ROOT", REHEARSE_SOURCE_DIR, 1);
  setenv("REHEARSE_DEVICE", "cpu", 0);
  words.insert(words.begin(), REHEARSE_BINARY);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, terminal, 2);
  pid_t child = 0;
  EXPECT_EQ(posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

// Reads what there is within a moment; false once the terminal is closed by the program.
bool read_some(int terminal, std::string& text) {
  pollfd ready{terminal, POLLIN, 0};
  if (::poll(&ready, 1, 100) == 0) return true;
  char block[4096];
  const ssize_t got = ::read(terminal, block, sizeof block);
  if (got > 0) text.append(block, static_cast<std::size_t>(got));
  return got > 0;
}

}  // namespace

Shown interrupt_at(const std::vector<std::string>& arguments, const std::string& awaited) {
  int ours = -1, theirs = -1;
  EXPECT_EQ(::openpty(&ours, &theirs, nullptr, nullptr, nullptr), 0);
  ::fcntl(ours, F_SETFD, FD_CLOEXEC);
  const pid_t child = spawn(arguments, theirs);
  ::close(theirs);
  Shown shown;
  double before = 0;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (read_some(ours, shown.text)) {
    if (std::chrono::steady_clock::now() > until) ::kill(child, SIGKILL);
    if (shown.seen || shown.text.find(awaited) == std::string::npos) continue;
    shown.seen = true;
    before = cpu_of(child);
    ::kill(child, SIGINT);
  }
  ::close(ours);
  int status = 0;
  rusage used{};
  EXPECT_EQ(::wait4(child, &status, 0, &used), child);
  shown.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  shown.cpu_after_s = seconds(used.ru_utime) + seconds(used.ru_stime) - before;
  return shown;
}

}  // namespace rehearse::e2e
