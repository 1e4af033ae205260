// The program's standard streams and interrupts. Answers go to standard output, everything else to standard error; a
// progress line is drawn only when standard error is a terminal.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>

namespace rehearse::cli {

// Thrown by check_interrupt() after SIGINT.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

// Opens closed standard streams on /dev/null (a result file must not become descriptor 1), ignores SIGPIPE, and takes
// the first SIGINT as a request to stop; a second one ends the program at once.
void prepare_process();
void check_interrupt();

// Writes all of `text` to standard output. A reader that has gone is no error; anything else throws std::runtime_error.
void print(std::string_view text);
// Columns of standard output: the terminal's if it is one, at least kLeastWidth; otherwise reports::kWidth.
inline constexpr std::size_t kLeastWidth = 40;
std::size_t terminal_width();
// A line on standard error.
void note(std::string_view text);

// A progress line "what  45%" that redraws itself; gone when this is destroyed.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // `done` from 0 to 1. Throws Interrupted after SIGINT.
  void operator()(double done);

 private:
  std::string what_;
  bool terminal_;
  int shown_ = -1;
};

// The same for work in phases, which take the line one after the other.
class PhasedProgress {
 public:
  void operator()(const std::string& what, double done) {
    if (what != what_) {
      line_.reset();  // erases itself
      line_.emplace(what_ = what);
    }
    (*line_)(done);
  }
  void clear() { line_.reset(); }

 private:
  std::string what_;
  std::optional<Progress> line_;
};

}  // namespace rehearse::cli
