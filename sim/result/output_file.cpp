// See output_file.h.
#include "sim/result/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <stdexcept>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/input_files.h"
#include "sim/base/interrupt.h"

namespace rehearse::result {
namespace {

constexpr std::size_t kPendingBytes = 1 << 18;
constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, with a gzip header (its time stamp is 0 by default)
constexpr int kMostNames = 1000;      // tried for a temporary file

const char* kind_of(mode_t mode) {
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

[[noreturn]] void refuse(const std::string& path, std::string message, std::string hint) {
  throw InputError(Diagnostic{path.empty() ? "''" : path, 0, 0, "", std::move(message), std::move(hint)});
}

}  // namespace

void check_output_file(const std::string& path, Over over) {
  if (path.empty() || path.find('\0') != std::string::npos)
    refuse(path.substr(0, path.find('\0')), "is no name of a file", "expected a regular file or a new name");
  struct stat status {};
  const bool exists = ::lstat(path.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode))
    refuse(path, fmt::format("is {}: outputs go to regular files or new names", kind_of(status.st_mode)),
           S_ISLNK(status.st_mode) ? "name the file it leads to" : "");
  if (over == Over::no_input && is_input(path))
    refuse(path, "is an input of this command, which its output would replace", "name another file");
}

OutputFile::OutputFile(std::string path, Format format, Over over)
    : path_(std::move(path)), over_(over), gzip_(format == Format::gzip) {
  check_output_file(path_, over_);
  open_temporary();
  if (gzip_) {
    const int code = deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY);
    REHEARSE_CHECK(code == Z_OK, "deflateInit2 returned {}", code);
  }
}

// A new file, whatever lies beside: never one that somebody put there.
void OutputFile::open_temporary() {
  for (int attempt = 0; attempt < kMostNames && fd_ < 0; ++attempt) {
    temporary_ = fmt::format("{}.{}-{}.tmp", path_, static_cast<long>(::getpid()), attempt);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ < 0 && errno != EEXIST) fail(file_problem(errno));
  }
  if (fd_ < 0) fail("no free temporary name next to it");
  unfinished_.emplace(temporary_);
}

OutputFile::~OutputFile() {
  if (gzip_) deflateEnd(&stream_);
  if (fd_ >= 0) ::close(fd_);
  if (unfinished_) ::unlink(temporary_.c_str());
}

void OutputFile::write(std::string_view text) {
  pending_ += text;
  if (pending_.size() >= kPendingBytes) flush_pending(false);
}

void OutputFile::finish() {
  flush_pending(true);
  const int closed = ::close(fd_);
  fd_ = -1;
  if (closed != 0) fail(file_problem(errno));
}

void OutputFile::commit() {
  if (fd_ >= 0) finish();
  check_output_file(path_, over_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(file_problem(errno));
  unfinished_.reset();
}

void OutputFile::flush_pending(bool last) {
  check_interrupt();
  if (!gzip_) {
    put(pending_.data(), pending_.size());
    pending_.clear();
    return;
  }
  std::array<char, 1 << 16> block;
  stream_.next_in = reinterpret_cast<Bytef*>(pending_.data());
  stream_.avail_in = static_cast<uInt>(pending_.size());
  do {
    stream_.next_out = reinterpret_cast<Bytef*>(block.data());
    stream_.avail_out = static_cast<uInt>(block.size());
    const int code = deflate(&stream_, last ? Z_FINISH : Z_NO_FLUSH);
    REHEARSE_CHECK(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR, "deflate returned {}", code);
    put(block.data(), block.size() - stream_.avail_out);
  } while (stream_.avail_out == 0);
  pending_.clear();
}

void OutputFile::put(const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(fd_, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(file_problem(errno));
    data += written;
    size -= static_cast<std::size_t>(written);
  }
}

void OutputFile::fail(std::string_view what) const {
  throw std::runtime_error(fmt::format("cannot write {}: {}", path_, what));
}

void write_output(const std::string& path, std::string_view content, Over over) {
  OutputFile file(path, OutputFile::Format::plain, over);
  file.write(content);
  file.commit();
}

}  // namespace rehearse::result
