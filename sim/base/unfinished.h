// What must not outlive the process if a signal ends it at once (interrupt.h): temporary files on their way to their
// place, and temporary folders. In the ordinary way, exceptions included, their owners remove them.
#pragma once

#include <string>

namespace rehearse {

// Lists a file or a folder, with all in it, for as long as this lives. Thread-safe. Where the list is full, or the
// path is longer than PATH_MAX, it is not listed.
class Unfinished {
 public:
  explicit Unfinished(const std::string& path);
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

 private:
  int place_ = -1;
};

// Removes all that is listed. May be called in a signal handler; links are not followed.
void remove_unfinished() noexcept;

// An empty folder that only we may enter, below TMPDIR (else /tmp); gone with the object. Throws std::runtime_error,
// naming the folder, if it cannot be made.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& purpose = "");  // "calibrate": rehearse-calibrate-XXXXXX
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const Unfinished unfinished_;
};

// What went wrong with a file, for people: strerror, and for a limit of the process the limit.
std::string file_problem(int error);

}  // namespace rehearse
