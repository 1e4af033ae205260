// Reading whole text files. A reader must never hang or fill memory because of what a path happens to be, so only
// regular files of a stated size are read.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "sim/base/document.h"
#include "sim/base/input_files.h"
#include "sim/base/interrupt.h"
#include "sim/base/text_check.h"
#include "sim/base/unfinished.h"

namespace rehearse {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail_read(const std::string& path, const std::string& message) {
  throw InputError(Diagnostic{path.empty() ? "''" : path, 0, 0, "", message, ""});
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

void require_regular(const std::string& path, const struct stat& status) {
  if (!S_ISREG(status.st_mode)) fail_read(path, fmt::format("is {}, expected a file", kind_of(status.st_mode)));
  if (status.st_size > kMaxFileBytes) {
    fail_read(path, fmt::format("holds {} bytes, the limit is {} ({} MiB)", status.st_size, kMaxFileBytes,
                                kMaxFileBytes >> 20));
  }
}

std::string read_all(const std::string& path, int fd) {
  std::string text;
  std::string chunk(1 << 16, '\0');
  while (true) {
    check_interrupt();
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_read(path, fmt::format("cannot be read: {}", std::strerror(errno)));
    if (got == 0) return text;
    text.append(chunk, 0, static_cast<std::size_t>(got));
    if (static_cast<std::int64_t>(text.size()) > kMaxFileBytes) {
      fail_read(path, fmt::format("holds more than {} bytes, the limit", kMaxFileBytes));
    }
  }
}

}  // namespace

std::string read_text_file(const std::string& path) {
  struct stat status {};
  if (path.find('\0') != std::string::npos) fail_read("''", "the file's name holds a NUL byte");
  if (::stat(path.c_str(), &status) != 0) fail_read(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  require_regular(path, status);
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) fail_read(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  if (::fstat(file.get(), &status) != 0) fail_read(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  require_regular(path, status);
  note_input(path);
  std::string text = read_all(path, file.get());
  if (const auto problem = detail::not_text(text)) fail_read(path, *problem);
  return text;
}

}  // namespace rehearse
