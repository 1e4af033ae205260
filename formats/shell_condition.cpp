// See shell_condition.h.
#include "formats/shell_condition.h"

#include <optional>

#include "formats/shell_arithmetic.h"

namespace rehearse::formats {

Truth shell_test(std::vector<ShellWord> words) {
  if (words.size() < 3 || (words[0].text != "[" && words[0].text != "[[")) return Truth::unknown;
  if (words.back().text != "]" && words.back().text != "]]") return Truth::unknown;
  words.erase(words.begin());
  words.pop_back();
  bool negated = false;
  if (words.size() > 1 && words[0].text == "!") {
    negated = true;
    words.erase(words.begin());
  }
  std::optional<bool> holds;
  for (const ShellWord& one : words)
    if (one.unset.starts_with('(')) return Truth::unknown;
  if (words.size() == 2 && words[0].text == "-z") holds = words[1].text.empty();
  if (words.size() == 2 && words[0].text == "-n") holds = !words[1].text.empty();
  if (words.size() == 1 && words[0].text == "-z") holds = true;
  if (words.size() == 1 && words[0].text == "-n") holds = false;
  if (words.size() == 3) {
    const std::string &a = words[0].text, &op = words[1].text, &b = words[2].text;
    if (op == "=" || op == "==") holds = a == b;
    if (op == "!=") holds = a != b;
    const auto x = shell_arithmetic(a, nullptr), y = shell_arithmetic(b, nullptr);
    if (op.starts_with('-') && x && y) {
      if (op == "-eq") holds = *x == *y;
      if (op == "-ne") holds = *x != *y;
      if (op == "-gt") holds = *x > *y;
      if (op == "-ge") holds = *x >= *y;
      if (op == "-lt") holds = *x < *y;
      if (op == "-le") holds = *x <= *y;
    }
  }
  if (!holds) return Truth::unknown;
  return *holds != negated ? Truth::yes : Truth::no;
}

}  // namespace rehearse::formats
