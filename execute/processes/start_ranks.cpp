// See start_ranks.h. The children ignore SIGINT and SIGHUP, which a terminal sends to all of them: the parent decides,
// and asks them to end with SIGTERM, so that they take away what they have begun to write. They are
// killed with their parent (PR_SET_PDEATHSIG), and only processes started here are ever signalled.
#include "execute/processes/start_ranks.h"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "execute/processes/failures.h"
#include "execute/processes/status_board.h"
#include "sim/base/unfinished.h"

namespace rehearse::execute {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{20};
constexpr std::chrono::milliseconds kForChildrenToEnd{2000};  // for ranks to say what they waited for, and to end

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

std::vector<std::string> environment_of(int rank, const StartOptions& options, const std::string& folder) {
  std::vector<std::string> ours = {
      fmt::format("RANK={}", rank), fmt::format("LOCAL_RANK={}", rank), fmt::format("WORLD_SIZE={}", options.ranks),
      fmt::format("{}={}", kRendezvousVariable, folder), fmt::format("{}=1", kSupervisedVariable)};
  if (options.variables)
    for (const auto& [name, value] : options.variables(rank)) ours.push_back(name + "=" + value);
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const auto same_name = [&](const std::string& other) {
      return text.starts_with(other.substr(0, other.find('=') + 1));
    };
    if (std::none_of(ours.begin(), ours.end(), same_name)) all.push_back(text);
  }
  all.insert(all.end(), ours.begin(), ours.end());
  return all;
}

pid_t start(int rank, const StartOptions& options, const std::string& folder) {
  std::vector<std::string> words = own_command_line(), variables = environment_of(rank, options, folder);
  const std::vector<char*> argv = pointers(words), envp = pointers(variables);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) throw std::runtime_error(fmt::format("rank {} cannot be started: {}", rank, std::strerror(errno)));
  if (child > 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it died before we asked
  for (const int signal : {SIGINT, SIGHUP}) ::signal(signal, SIG_IGN);
  ::execve("/proc/self/exe", argv.data(), envp.data());
  ::_exit(127);
}

// The processes of the ranks. Ends and reaps those that are left when it goes.
class Children {
 public:
  Children(const StartOptions& options, const std::string& folder)
      : pids_(static_cast<std::size_t>(options.ranks)), ended_(pids_.size()) {
    for (int rank = 0; rank < options.ranks; ++rank)
      pids_[static_cast<std::size_t>(rank)] = start(rank, options, folder);
  }
  ~Children() { kill_all(); }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  // Reaps who has ended.
  void look() {
    for (std::size_t i = 0; i < pids_.size(); ++i) {
      int status = 0;
      if (pids_[i] > 0 && !ended_[i] && ::waitpid(pids_[i], &status, WNOHANG) == pids_[i]) ended_[i] = status;
    }
  }
  // Until all have ended, at most for `limit`.
  void wait(std::chrono::milliseconds limit) {
    const auto deadline = Clock::now() + limit;
    for (look(); !all_ended() && Clock::now() < deadline; look()) std::this_thread::sleep_for(kBetweenLooks);
  }
  void kill_all() {
    for (std::size_t i = 0; i < pids_.size(); ++i) {
      if (pids_[i] <= 0 || ended_[i]) continue;
      ::kill(pids_[i], SIGKILL);
      int status = 0;
      while (::waitpid(pids_[i], &status, 0) < 0 && errno == EINTR) {
      }
      pids_[i] = 0;
    }
  }
  void ask_to_end() const {
    for (std::size_t i = 0; i < pids_.size(); ++i)
      if (pids_[i] > 0 && !ended_[i]) ::kill(pids_[i], SIGTERM);
  }
  bool all_ended() const {
    return std::all_of(ended_.begin(), ended_.end(), [](const auto& status) { return status.has_value(); });
  }
  bool any_failed() const {
    return std::any_of(ended_.begin(), ended_.end(), [](const auto& status) { return status && *status != 0; });
  }
  // How many were killed or told to end, by a signal or as their exit status says; none that crashed.
  int left() const {
    return static_cast<int>(std::count_if(ended_.begin(), ended_.end(), [](const auto& status) {
      if (!status) return false;
      const int signal = WIFSIGNALED(*status) ? WTERMSIG(*status) : WEXITSTATUS(*status) - 128;
      return told_to_end(signal);
    }));
  }
  // Wait status of those that have ended by themselves.
  const std::vector<std::optional<int>>& ended() const { return ended_; }

 private:
  std::vector<pid_t> pids_;
  std::vector<std::optional<int>> ended_;
};

// By rank, how its process ended, of those that could not say it. An exit status tells only while nobody has stopped
// the run.
std::map<int, std::string> deaths_of(const Children& children, bool by_status) {
  std::map<int, std::string> deaths;
  int rank = 0;
  for (const auto& status : children.ended()) {
    if (status && WIFSIGNALED(*status))
      deaths[rank] = fmt::format("was killed by signal {} ({})", WTERMSIG(*status), ::strsignal(WTERMSIG(*status)));
    else if (status && *status != 0 && by_status)
      deaths[rank] = fmt::format("ended with exit status {}", WEXITSTATUS(*status));
    ++rank;
  }
  return deaths;
}

}  // namespace

std::vector<std::string> own_command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  return words;
}

bool supervised() {
  return std::getenv(kSupervisedVariable) != nullptr;
}

bool told_to_end(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

int start_ranks(const StartOptions& options) {
  const TemporaryFolder folder;
  StatusBoard board(files_folder(folder.path()) + "/" + kBoardFile, options.ranks, StatusBoard::kObserver);
  Children children(options, folder.path());
  try {
    for (children.look(); !children.all_ended() && !children.any_failed() && !board.stopped(); children.look()) {
      if (options.poll) options.poll();
      std::this_thread::sleep_for(kBetweenLooks);
    }
  } catch (...) {
    board.stop();
    children.ask_to_end();
    children.wait(kForChildrenToEnd);
    throw;
  }
  if (!board.stopped() && !children.any_failed()) return 0;

  std::map<int, std::string> deaths = deaths_of(children, !board.stopped());
  board.stop();
  children.wait(kForChildrenToEnd);
  if (options.poll) options.poll();  // the signal that ended a rank may be ours too
  // A broken connection shows before the death that broke it.
  deaths.merge(deaths_of(children, false));
  const std::optional<int> root = children.ended().front();
  const int left = children.left();
  children.kill_all();
  const auto whereabouts_of = [&](int rank) { return options.whereabouts_of(rank, board.whereabouts(rank)); };
  FailureFacts facts = board.facts();
  facts.deaths = std::move(deaths);
  const std::string text = failure_text(facts, whereabouts_of);
  // Input and memory: rank 0 has said it. From 128 on a signal asked it to end, of which it leaves the telling to us.
  if (root && WIFEXITED(*root) && WEXITSTATUS(*root) > 1 && WEXITSTATUS(*root) < 128) return WEXITSTATUS(*root);
  throw RankFailure(text.empty() ? "the ranks ended without saying why" : text, left);
}

}  // namespace rehearse::execute
