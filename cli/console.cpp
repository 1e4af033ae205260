// See console.h.
#include "cli/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "reports/text.h"
#include "sim/base/harmless_text.h"
#include "sim/base/interrupt.h"
#include "sim/base/unfinished.h"

namespace rehearse::cli {
namespace {

constexpr std::string_view kKept = "\n\t";
constexpr std::string_view kErase = "\r\x1b[K";

// Whether a progress line stands where the next line of standard error would.
std::atomic<bool> line_drawn = false;

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
  handle_end_signals();
}

void print(std::string_view text) {
  const int error = write_all(STDOUT_FILENO, escaped_controls(text, kKept));
  if (error != 0 && error != EPIPE)
    throw std::runtime_error(fmt::format("cannot write to standard output: {}", file_problem(error)));
}

std::size_t terminal_width() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return reports::kWidth;
  return std::max<std::size_t>(size.ws_col, kLeastWidth);
}

void note(std::string_view text) {
  if (line_drawn.exchange(false)) (void)write_all(STDERR_FILENO, kErase);
  (void)write_all(STDERR_FILENO, escaped_controls(text, kKept) + '\n');
}

Progress::Progress(std::string what) : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (line_drawn.exchange(false)) (void)write_all(STDERR_FILENO, kErase);
}

void Progress::begin() {
  check_interrupt();
  if (terminal_ && shown_ < 0) draw("...");
}

void Progress::operator()(double done) {
  check_interrupt();
  const int percent = static_cast<int>(std::clamp(done, 0.0, 1.0) * 100);
  if (!terminal_ || percent == shown_) return;
  shown_ = percent;
  draw(fmt::format("{:3}%", percent));
}

void Progress::draw(const std::string& how_far) const {
  line_drawn = true;
  (void)write_all(STDERR_FILENO, fmt::format("{}{} {}", kErase, reports::clip(what_, reports::kWidth - 8), how_far));
}

}  // namespace rehearse::cli
