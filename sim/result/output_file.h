// A file written piece by piece beside its final place and renamed over it on commit(), so that a reader sees the old
// content or the new one, never half of it. Without commit() nothing is left behind. Optionally gzip (RFC 1952, time
// stamp 0, so equal content gives equal bytes). Errors throw std::runtime_error naming the path; a
// signal that asks for the end (interrupt.h) ends write() and finish() with Interrupted. Not copyable.
#pragma once

#include <zlib.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/unfinished.h"

namespace rehearse::result {

class OutputFile {
 public:
  enum class Format { plain, gzip };
  OutputFile(std::string path, Format format);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view text);
  void finish();  // all of it is on disk, not yet at its place: what may fail for lack of space has happened
  void commit();  // finishes if that was not done

 private:
  void flush_pending(bool last);
  void put(const char* data, std::size_t size);
  [[noreturn]] void fail(std::string_view what) const;

  std::string path_, temporary_, pending_;
  int fd_ = -1;
  bool gzip_;
  std::optional<Unfinished> unfinished_;  // while the temporary file is there
  z_stream stream_{};
};

// Files of a directory, names and contents, all or none: none takes its place before all are written. Makes the
// directory. Throws std::exception.
void write_files(const std::string& dir, const std::vector<std::pair<std::string, std::string>>& files);

}  // namespace rehearse::result
