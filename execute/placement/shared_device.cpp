// See shared_device.h. The daemon runs in the foreground as our child, so that its process id is known.
#include "execute/placement/shared_device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include "execute/placement/devices.h"

namespace rehearse::execute {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kControl = "nvidia-cuda-mps-control";
constexpr const char* kMpsVariable = "REHEARSE_MPS";
constexpr std::chrono::milliseconds kMpsPause{20};
constexpr std::chrono::seconds kToStart{10}, kToEnd{10};

bool in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (::access((rest.substr(0, end) + "/" + program).c_str(), X_OK) == 0) return true;
    rest.erase(0, end + 1);
  }
  return false;
}

Variables directories(const std::string& folder) {
  return {{"CUDA_MPS_PIPE_DIRECTORY", folder + "/pipe"}, {"CUDA_MPS_LOG_DIRECTORY", folder + "/log"}};
}

// Runs the program with the daemon's directories; `input` is its standard input.
pid_t run(const std::vector<const char*>& words, const std::string& folder, int input) {
  const Variables variables = directories(folder);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);
  ::signal(SIGINT, SIG_IGN);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  if (input >= 0) ::dup2(input, STDIN_FILENO);
  if (const int nowhere = ::open("/dev/null", O_WRONLY); nowhere >= 0) {
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
  }
  std::vector<char*> argv;
  for (const char* word : words) argv.push_back(const_cast<char*>(word));
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  ::_exit(127);
}

bool ended(pid_t pid, std::chrono::milliseconds limit) {
  int status = 0;
  for (const auto until = Clock::now() + limit;; std::this_thread::sleep_for(kMpsPause)) {
    const pid_t who = ::waitpid(pid, &status, WNOHANG);
    if (who == pid || (who < 0 && errno == ECHILD)) return true;
    if (Clock::now() >= until) return false;
  }
}

}  // namespace

Variables sharing_variables(int rank) {
  return {{"NCCL_HOSTID", fmt::format("rehearse{}", rank)},
          {"NCCL_NET", "Socket"},
          {"NCCL_NET_PLUGIN", "none"},
          {"NCCL_SOCKET_IFNAME", "lo"},
          {"NCCL_SOCKET_FAMILY", "AF_INET"},
          {"NCCL_MNNVL_ENABLE", "0"},  // else several hosts ask the fabric
          {"NCCL_NVLS_ENABLE", "0"},
          {"NCCL_RAS_ENABLE", "0"},
          {"NCCL_IB_DISABLE", "1"},
          {"NCCL_P2P_DISABLE", "1"},
          {"NCCL_SHM_DISABLE", "1"},
          {"NCCL_MAX_CTAS", "2"},
          {"NCCL_ALGO", "Ring"},
          {"NCCL_PROTO", "Simple"},
          // A kernel that is loaded while another waits for a peer could wait for it.
          {"CUDA_MODULE_LOADING", "EAGER"}};
}

void share_device(int rank) {
  const Variables variables = sharing_variables(rank);
  for (const auto& [name, value] : variables)
    ::setenv(name.c_str(), value.c_str(), name == variables.front().first ? 1 : 0);
}

std::optional<Mps> Mps::start(std::string& why) {
  if (const char* wish = std::getenv(kMpsVariable); wish != nullptr && std::string_view(wish) == "off") {
    why = fmt::format("{} is off", kMpsVariable);
    return {};
  }
  if (!in_path(kControl)) {
    why = fmt::format("there is no {}", kControl);
    return {};
  }
  std::error_code error;
  std::string folder = (fs::temp_directory_path() / "rehearse-mps-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    why = fmt::format("{} cannot be made: {}", folder, std::strerror(errno));
    return {};
  }
  for (const char* part : {"/pipe", "/log"}) fs::create_directories(folder + part, error);
  Mps mps(folder, run({kControl, "-f"}, folder, -1));
  if (mps.pid_ < 0) {
    why = std::strerror(errno);
    return {};
  }
  for (const auto until = Clock::now() + kToStart; Clock::now() < until; std::this_thread::sleep_for(kMpsPause)) {
    if (fs::exists(folder + "/pipe/control", error)) return mps;
    if (ended(mps.pid_, std::chrono::milliseconds(0))) {
      mps.pid_ = 0;
      why = fmt::format("{} ended at once", kControl);
      return {};
    }
  }
  why = fmt::format("{} does not come up", kControl);
  return {};
}

// First asked to quit, which ends its server too; then killed.
Mps::~Mps() {
  end();
  std::error_code error;
  if (!folder_.empty()) fs::remove_all(folder_, error);
}

void Mps::end() const {
  if (pid_ <= 0) return;
  int ends[2] = {-1, -1};
  if (::pipe(ends) == 0) {
    constexpr std::string_view kQuit = "quit -t 2\n";
    if (::write(ends[1], kQuit.data(), kQuit.size()) > 0) {
      ::close(ends[1]);
      if (const pid_t asking = run({kControl}, folder_, ends[0]); asking > 0 && !ended(asking, kToEnd)) {
        ::kill(asking, SIGKILL);
        ended(asking, kToEnd);
      }
    }
    ::close(ends[0]);
  }
  for (const int signal : {0, SIGTERM, SIGKILL}) {
    if (signal != 0) ::kill(pid_, signal);
    if (ended(pid_, kToEnd / 5)) break;
  }
}

// The daemon comes up where its server, which starts with the first context, may not.
std::string Mps::problem() const {
  constexpr std::chrono::seconds kForServer{20};
  std::vector<std::pair<std::string, std::optional<std::string>>> before;
  for (const auto& [name, value] : variables()) {
    const char* old = std::getenv(name.c_str());
    before.emplace_back(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  const Devices found = find_devices(true, kForServer);
  for (const auto& [name, value] : before) {
    if (value) {
      ::setenv(name.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name.c_str());
    }
  }
  return found.why_none;
}

Variables Mps::variables() const {
  return directories(folder_);
}

}  // namespace rehearse::execute
