// See unfinished.h. The list is an array of fixed size, so that a signal handler can read it whatever was interrupted.
#include "sim/base/unfinished.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace rehearse {
namespace {

namespace fs = std::filesystem;

enum State : int { kFree, kTaken, kListed };
struct Place {
  std::atomic<int> state;
  std::array<char, PATH_MAX> path;
};
constexpr std::size_t kPlaces = 256;
std::array<Place, kPlaces> places;  // zeros: all free

struct Entry {  // as getdents64(2) writes it; readdir() may not be called in a handler
  std::uint64_t inode;
  std::int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[1];
};

void remove_tree(int folder, const char* name, int depth) noexcept;

// Entries of an open folder. Removing some may hide others from this pass; the next sees them.
void remove_entries(int folder, int depth) noexcept {
  constexpr int kPasses = 8;
  alignas(Entry) std::array<char, 4096> block;
  for (int pass = 0; pass < kPasses; ++pass) {
    ::lseek(folder, 0, SEEK_SET);
    for (long bytes = 0; (bytes = ::syscall(SYS_getdents64, folder, block.data(), block.size())) > 0;) {
      for (long at = 0; at < bytes;) {
        const auto* entry = reinterpret_cast<const Entry*>(block.data() + at);
        if (std::strcmp(entry->name, ".") != 0 && std::strcmp(entry->name, "..") != 0)
          remove_tree(folder, entry->name, depth);
        at += entry->length;
      }
    }
  }
}

void remove_tree(int folder, const char* name, int depth) noexcept {
  constexpr int kDeepest = 4;  // ours are two deep
  if (::unlinkat(folder, name, 0) == 0 || (errno != EISDIR && errno != EPERM) || depth == kDeepest) return;
  const int own = ::openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (own < 0) return;
  remove_entries(own, depth + 1);
  ::close(own);
  ::unlinkat(folder, name, AT_REMOVEDIR);
}

std::string make_folder(const std::string& purpose) {
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  if (error) {
    const char* named = std::getenv("TMPDIR");
    throw std::runtime_error(fmt::format("no folder for temporary files{}: {}; TMPDIR names one",
                                         named == nullptr ? "" : fmt::format(" (TMPDIR={})", named), error.message()));
  }
  std::string path = (base / (purpose.empty() ? "rehearse-XXXXXX" : "rehearse-" + purpose + "-XXXXXX")).string();
  if (::mkdtemp(path.data()) == nullptr)
    throw std::runtime_error(fmt::format("cannot make a temporary folder in {}: {}; TMPDIR names another",
                                         base.string(), file_problem(errno)));
  return path;
}

}  // namespace

Unfinished::Unfinished(const std::string& path) {
  if (path.size() >= PATH_MAX) return;
  for (std::size_t i = 0; i < kPlaces && place_ < 0; ++i) {
    int free = kFree;
    if (places[i].state.compare_exchange_strong(free, kTaken)) place_ = static_cast<int>(i);
  }
  if (place_ < 0) return;
  Place& own = places[static_cast<std::size_t>(place_)];
  std::memcpy(own.path.data(), path.c_str(), path.size() + 1);
  own.state = kListed;
}

Unfinished::~Unfinished() {
  if (place_ >= 0) places[static_cast<std::size_t>(place_)].state = kFree;
}

void remove_unfinished() noexcept {
  for (Place& place : places)
    if (place.state == kListed) remove_tree(AT_FDCWD, place.path.data(), 0);
}

TemporaryFolder::TemporaryFolder(const std::string& purpose) : path_(make_folder(purpose)), unfinished_(path_) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

std::string file_problem(int error) {
  std::string text = std::strerror(error);
  rlimit limit{};
  if (error == EFBIG && ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += fmt::format(" (files may have {} bytes here: ulimit -f)", limit.rlim_cur);
  return text;
}

}  // namespace rehearse
