// Reading and writing whole text files. A reader must never hang or fill memory because of what a path happens to be,
// so only regular files of a stated size are read; a writer must never leave half a file, so it writes beside and
// renames.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "sim/base/document.h"
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
  int close() { return ::close(std::exchange(fd_, -1)); }

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

[[noreturn]] void fail_write(const std::string& path, const std::string& reason) {
  throw std::runtime_error(fmt::format("{}: cannot be written: {}", path, reason));
}

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t put = ::write(fd, content.data(), content.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    content.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

// Where the content goes: the file a symbolic link leads to, so that the link survives. Anything that exists and is not
// a regular file is refused: renaming over a device as root would replace it.
std::string write_target(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return path;
  if (!S_ISREG(status.st_mode)) fail_write(path, fmt::format("it is {}, not a file", kind_of(status.st_mode)));
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr), &std::free);
  return resolved ? std::string(resolved.get()) : path;
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
  std::string text = read_all(path, file.get());
  if (const auto problem = detail::not_text(text)) fail_read(path, *problem);
  return text;
}

void write_file_atomically(const std::string& path, std::string_view content) {
  const std::string target = write_target(path);
  std::string temporary;
  int fd = -1;
  for (int attempt = 0; fd < 0 && attempt < 1000; ++attempt) {
    temporary = fmt::format("{}.{}-{}.tmp", target, ::getpid(), attempt);
    fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno != EEXIST) fail_write(path, file_problem(errno));
  }
  if (fd < 0) fail_write(path, "no free temporary name beside it");
  const Unfinished unfinished(temporary);
  FileDescriptor file(fd);
  const bool done =
      write_all(file.get(), content) && file.close() == 0 && ::rename(temporary.c_str(), target.c_str()) == 0;
  if (!done) {
    const std::string reason = file_problem(errno);
    ::unlink(temporary.c_str());
    fail_write(path, reason);
  }
}

}  // namespace rehearse
