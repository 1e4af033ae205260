// See input_files.h. What a file is called may change while the program runs, and one file may have several names; so
// both its identity (device and inode) and its absolute name are kept.
#include "sim/base/input_files.h"

#include <sys/stat.h>

#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

namespace rehearse {
namespace {

using Identity = std::pair<dev_t, ino_t>;

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
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return Identity(status.st_dev, status.st_ino);
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
