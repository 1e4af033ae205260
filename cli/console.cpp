// See console.h.
#include "cli/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "reports/text.h"

namespace rehearse::cli {
namespace {

// Lock-free, so that the handler may set it and every thread may read it.
std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int) {
  interrupted = true;
}

// Returns the error, 0 if all was written.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

void prepare_process() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)::open("/dev/null", O_RDWR);
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, nullptr);
  struct sigaction inherited {};
  ::sigaction(SIGINT, nullptr, &inherited);
  if (inherited.sa_handler == SIG_IGN) return;  // started in the background: the terminal's interrupt is not for us
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
}

void check_interrupt() {
  if (interrupted) throw Interrupted();
}

void print(std::string_view text) {
  const int error = write_all(STDOUT_FILENO, text);
  if (error != 0 && error != EPIPE)
    throw std::runtime_error(fmt::format("cannot write to standard output: {}", std::strerror(error)));
}

std::size_t terminal_width() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return reports::kWidth;
  return std::max<std::size_t>(size.ws_col, kLeastWidth);
}

void note(std::string_view text) {
  (void)write_all(STDERR_FILENO, std::string(text) + '\n');
}

Progress::Progress(std::string what) : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (terminal_ && shown_ >= 0) (void)write_all(STDERR_FILENO, "\r\x1b[K");
}

void Progress::operator()(double done) {
  check_interrupt();
  const int percent = static_cast<int>(std::clamp(done, 0.0, 1.0) * 100);
  if (!terminal_ || percent == shown_) return;
  shown_ = percent;
  (void)write_all(STDERR_FILENO, fmt::format("\r\x1b[K{} {:3}%", reports::clip(what_, reports::kWidth - 8), percent));
}

}  // namespace rehearse::cli
