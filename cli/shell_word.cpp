// See shell_word.h.
#include "cli/shell_word.h"

#include <algorithm>
#include <string_view>

namespace rehearse::cli {

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "_-./=:,@%+";
  const bool plain = std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kPlain.find(c) != std::string_view::npos;
  });
  if (plain && !text.empty()) return text;
  std::string out = "'";
  for (const char c : text) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

}  // namespace rehearse::cli
