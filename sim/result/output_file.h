// The one place where files are written that a user asked for. The rule, the same for every command: an output is a
// regular file or a new name. A symbolic link is neither followed nor replaced, and a device, a pipe, a socket or a
// directory never touched; nor is a file that this process has read as an input (sim/base/input_files.h), by whatever
// name. Directories on the way to it may be links. What breaks the rule is an InputError that names the path.
//
// A file is written piece by piece next to its final place and renamed over it on commit(), so that a reader sees the
// old content or the new one, never half of it. Without commit() nothing is left behind. Optionally gzip (RFC 1952,
// time stamp 0, so equal content gives equal bytes). Other errors throw std::runtime_error naming the path. A
// signal that asks for the end (sim/base/interrupt.h) ends write() and finish() with Interrupted. Not copyable; one
// thread.
#pragma once

#include <zlib.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/unfinished.h"

namespace rehearse::result {

// An output that adds to a file has read it before.
enum class Over { no_input, its_own_input };

// Throws InputError if `path` breaks the rule; makes nothing. Commands ask before they work for minutes.
void check_output_file(const std::string& path, Over over = Over::no_input);

class OutputFile {
 public:
  enum class Format { plain, gzip };
  OutputFile(std::string path, Format format, Over over = Over::no_input);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view text);
  void finish();  // all of it is on disk, not yet at its place: what may fail for lack of space has happened
  void commit();  // finishes if that was not done; asks for the rule again

  // Where the content is until commit(), and its descriptor until finish(): for a program that is to write it.
  const std::string& temporary() const { return temporary_; }
  int descriptor() const { return fd_; }

 private:
  void open_temporary();
  void flush_pending(bool last);
  void put(const char* data, std::size_t size);
  [[noreturn]] void fail(std::string_view what) const;

  std::string path_, temporary_, pending_;
  int fd_ = -1;
  Over over_;
  bool gzip_;
  std::optional<Unfinished> unfinished_;  // while the temporary file is there
  z_stream stream_{};
};

// All of a file at once.
void write_output(const std::string& path, std::string_view content, Over over = Over::no_input);

// Files of a directory, names and contents, all or none: none takes its place before all are written. Makes the
// directory. Throws std::exception.
void write_files(const std::string& dir, const std::vector<std::pair<std::string, std::string>>& files);

}  // namespace rehearse::result
