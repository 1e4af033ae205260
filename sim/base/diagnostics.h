// What is wrong with the user's input, all of it at once. Readers report to a Diagnostics collector and end with
// throw_if_any(); the program prints the InputError as a compiler would (file:line:column: error: ...) and exits 2.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rehearse {

struct Diagnostic {
  std::string file;     // as the user named it; empty for the command line
  int line = 0;         // 1-based; 0 = no position
  int column = 0;       // 1-based
  std::string path;     // key path, e.g. "plan.tensor"; may be empty
  std::string message;  // what was found and what was expected
  std::string hint;     // e.g. "did you mean 'tensor'?"; may be empty

  std::string text() const;  // "file:3:5: error: plan.tensr: unknown key (did you mean 'tensor'?)"
};

class InputError : public std::runtime_error {
 public:
  explicit InputError(std::vector<Diagnostic> diagnostics);
  explicit InputError(Diagnostic diagnostic);
  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

 private:
  std::vector<Diagnostic> diagnostics_;
};

class Diagnostics {
 public:
  // Nobody reads more than kMost of them, and a damaged file may have one at every word: what adds the last throws.
  static constexpr std::size_t kMost = 1000;
  void add(Diagnostic diagnostic);
  bool empty() const { return list_.empty(); }
  const std::vector<Diagnostic>& list() const { return list_; }
  // Throws InputError with all of them, in file order, if there are any; at kMost with one more that says so.
  void throw_if_any() const;

 private:
  std::vector<Diagnostic> list_;
};

// The candidate nearest to `word` by edit distance, or "" if none is near (distance over a third of the longer length +
// 1).
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace rehearse
