// The program's standard streams and interrupts. Answers go to standard output, everything else to standard error; a
// progress line is drawn only when standard error is a terminal.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "sim/base/interrupt.h"

namespace rehearse::cli {

// Opens closed standard streams on /dev/null (a result file must not become descriptor 1), ignores SIGPIPE, and takes
// the signals that ask for the end (sim/base/interrupt.h).
void prepare_process();

// Writes all of `text` to standard output, control characters but line ends and tabs escaped (harmless_text.h; in JSON
// the escapes are JSON's own). A reader that has gone is no error; anything else throws std::runtime_error.
void print(std::string_view text);
// Columns of standard output: the terminal's if it is one, at least kLeastWidth; otherwise reports::kWidth.
inline constexpr std::size_t kLeastWidth = 40;
std::size_t terminal_width();
// A line on standard error, escaped alike.
void note(std::string_view text);

// A progress line "what  45%" that redraws itself; gone when this is destroyed.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // `done` from 0 to 1. Throws Interrupted if a signal asked for the end.
  void operator()(double done);
  void begin();  // where nobody knows how far it is: the words alone

 private:
  void draw(const std::string& how_far) const;

  std::string what_;
  bool terminal_;
  int shown_ = -1;
};

// The words alone, while this lives.
class Busy {
 public:
  explicit Busy(std::string what) : line_(std::move(what)) { line_.begin(); }

 private:
  Progress line_;
};

// The same for work in phases, which take the line one after the other.
class PhasedProgress {
 public:
  void operator()(const std::string& what, double done) { of(what)(done); }
  void begin(const std::string& what) { of(what).begin(); }
  void clear() {
    line_.reset();
    what_.clear();
  }

 private:
  Progress& of(const std::string& what) {
    if (what != what_ || !line_) {
      line_.reset();  // erases itself
      line_.emplace(what_ = what);
    }
    return *line_;
  }

  std::string what_;
  std::optional<Progress> line_;
};

}  // namespace rehearse::cli
