// See input_files.h. What a file is called may change while the program runs, and one file may have several names; so
// both its identity (device, inode, and the time it was made, since inodes of files that are gone are given again) and
// its absolute name are kept.
#include "sim/base/input_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace rehearse {
namespace {

// Device, inode, and the time it was made: zero where the file system does not tell.
using Identity = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::int64_t, std::uint32_t>;

struct Inputs {
  std::mutex mutex;
  std::set<Identity> files;
  std::set<std::string> names;
};

Inputs& inputs() {
  static Inputs all;
  return all;
}

std::optional<Identity> identity_of(const std::string& path) {
  struct statx status {};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_INO | STATX_BTIME, &status) != 0) return std::nullopt;
  return Identity(status.stx_dev_major, status.stx_dev_minor, status.stx_ino, status.stx_btime.tv_sec,
                  status.stx_btime.tv_nsec);
}

std::string name_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

}  // namespace

void note_input(const std::string& path) {
  const auto identity = identity_of(path);
  std::string name = name_of(path);
  Inputs& all = inputs();
  const std::lock_guard lock(all.mutex);
  if (identity) all.files.insert(*identity);
  all.names.insert(std::move(name));
}

bool is_input(const std::string& path) {
  const auto identity = identity_of(path);
  const std::string name = name_of(path);
  Inputs& all = inputs();
  const std::lock_guard lock(all.mutex);
  return (identity && all.files.contains(*identity)) || all.names.contains(name);
}

}  // namespace rehearse
