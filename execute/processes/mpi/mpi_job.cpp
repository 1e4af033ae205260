// See mpi_job.h. mpirun passes a SIGTERM on to the ranks, and is sent one if this process dies.
#include "execute/processes/mpi/mpi_job.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "execute/processes/failures.h"
#include "execute/processes/start_ranks.h"
#include "sim/base/unfinished.h"

namespace rehearse::execute {
namespace {

using JobClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooksAtJob{20}, kForJobToEnd{5000}, kBetweenLooksBelow{500};
constexpr std::chrono::milliseconds kWithoutRanks{10'000};

std::vector<std::string> job_command_line(int ranks) {
  const char* named = std::getenv(kMpirunVariable);
  std::istringstream launcher(named != nullptr ? named : "mpirun");
  std::vector<std::string> words;
  for (std::string word; launcher >> word;) words.push_back(word);
  if (words.empty()) words.emplace_back("mpirun");
  words.insert(words.end(), {"-n", fmt::to_string(ranks), std::filesystem::read_symlink("/proc/self/exe").string()});
  const std::vector<std::string> own = own_command_line();
  words.insert(words.end(), own.begin() + 1, own.end());
  return words;
}

// A job of mpirun; ended and reaped when it goes.
class Job {
 public:
  explicit Job(const MpiJobOptions& options) : end_(folder_.path() + "/end") {
    std::vector<std::string> words = job_command_line(options.ranks);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0)
      throw std::runtime_error(fmt::format("{} cannot be started: {}", words.front(), std::strerror(errno)));
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);
    for (const int signal : {SIGINT, SIGHUP}) ::signal(signal, SIG_IGN);
    for (const auto& [name, value] : options.variables) ::setenv(name.c_str(), value.c_str(), 1);
    ::setenv(kSupervisedVariable, "1", 1);
    ::setenv(kJobEndVariable, end_.c_str(), 1);
    ::execvp(argv.front(), argv.data());
    ::_exit(127);
  }
  ~Job() {
    if (ended()) return;
    const std::ofstream end(end_);
    ::kill(pid_, SIGTERM);
    for (const auto deadline = JobClock::now() + kForJobToEnd; !ended() && JobClock::now() < deadline;)
      std::this_thread::sleep_for(kBetweenLooksAtJob);
    if (ended()) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  bool ended() {
    ended_ = ended_ || ::waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }
  pid_t pid() const { return pid_; }
  int status() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_); }
  // Ranks that were killed or told to end. mpirun ends all when one has died, and its exit status is that one's: of
  // several that died at once one is known.
  int left() const { return WIFEXITED(status_) && told_to_end(WEXITSTATUS(status_) - 128) ? 1 : 0; }

 private:
  const TemporaryFolder folder_{"job"};
  const std::string end_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

// Whether anything lives below a process, as mpirun's ranks do, or what starts them elsewhere. Zombies do not.
bool any_lives_below(pid_t pid) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator task(fmt::format("/proc/{}/task", pid), error), end; !error && task != end;
       task.increment(error)) {
    std::ifstream children(task->path() / "children");
    for (pid_t child = 0; children >> child;) {
      std::ifstream file(fmt::format("/proc/{}/stat", child));
      std::string stat;  // "pid (name) state ..."
      std::getline(file, stat);
      const std::size_t name = stat.rfind(')');
      const char state = name != std::string::npos && name + 2 < stat.size() ? stat[name + 2] : 'X';
      if (state != 'Z' && state != 'X') return true;
    }
  }
  return false;
}

// Of a rank that is killed while MPI starts, Open MPI's mpirun may end the others and then wait for ever, with nothing
// but zombies below it. Known where the kernel says who is below whom, and once somebody was.
class JobWithoutRanks {
 public:
  bool looks_so(pid_t pid) {
    const JobClock::time_point now = JobClock::now();
    if (now < next_) return false;
    next_ = now + kBetweenLooksBelow;
    if (any_lives_below(pid)) begun_ = true, alive_ = now;
    return begun_ && now - alive_ >= kWithoutRanks;
  }

 private:
  JobClock::time_point next_, alive_;
  bool begun_ = false;
};

}  // namespace

bool ended_by_its_starter() {
  const char* const end = std::getenv(kJobEndVariable);
  return end != nullptr && ::access(end, F_OK) == 0;
}

int start_mpi_job(const MpiJobOptions& options) {
  constexpr int kCannotBeStarted = 127;
  Job job(options);
  for (JobWithoutRanks without; !job.ended();) {
    if (options.poll) options.poll();
    if (without.looks_so(job.pid()))  // where a rank was killed
      throw RankFailure(
          fmt::format("{} goes on, and none of its ranks is left", job_command_line(options.ranks).front()), 1);
    std::this_thread::sleep_for(kBetweenLooksAtJob);
  }
  if (options.poll) options.poll();  // the signal that ended the job may be ours too
  const int status = job.status();
  if (status == 0 || status == 2 || status == 3) return status;
  if (status == kCannotBeStarted)
    throw std::runtime_error(
        fmt::format("{} cannot be started, or cannot start this program", job_command_line(options.ranks).front()));
  throw RankFailure(
      fmt::format("the job of {} ended with exit status {}", job_command_line(options.ranks).front(), status),
      job.left());
}

}  // namespace rehearse::execute
