// UTF-8 validation by the well-formed byte sequences of the Unicode Standard, table 3-7, and safe quotation of user
// text.
#include "sim/base/text_check.h"

#include <fmt/format.h>

#include "sim/base/harmless_text.h"

namespace rehearse::detail {

std::size_t sequence_length(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U; };
  const auto continues = [&](std::size_t i) { return at(i) >= 0x80 && at(i) <= 0xBF; };
  const unsigned first = at(0), second = at(1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned low = first == 0xE0 ? 0xA0 : 0x80, high = first == 0xED ? 0x9F : 0xBF;
    return second >= low && second <= high && continues(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned low = first == 0xF0 ? 0x90 : 0x80, high = first == 0xF4 ? 0x8F : 0xBF;
    return second >= low && second <= high && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

std::optional<std::string> not_text(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = bytes[at] == '\0' ? 0 : sequence_length(bytes.substr(at, 4));
    if (length == 0) {
      const char* what = bytes[at] == '\0' ? "a NUL byte" : "no valid UTF-8";
      return fmt::format("is a binary file, expected text ({} at offset {})", what, at);
    }
    at += length;
  }
  return std::nullopt;
}

std::string shown(std::string_view word) {
  constexpr std::size_t kShown = 60;
  std::size_t end = word.size();
  if (end > kShown) {
    end = kShown;
    while (end > 0 && (static_cast<unsigned char>(word[end]) & 0xC0U) == 0x80U) --end;
  }
  return "'" + escaped_controls(word.substr(0, end)) + (end < word.size() ? "...'" : "'");
}

}  // namespace rehearse::detail
