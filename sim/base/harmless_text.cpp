// See harmless_text.h.
#include "sim/base/harmless_text.h"

#include <fmt/format.h>

#include "sim/base/text_check.h"

namespace rehearse {
namespace {

// The code point of a well-formed sequence of `length` bytes.
unsigned code_point(std::string_view bytes, std::size_t length) {
  constexpr unsigned kFirstBits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  unsigned code = static_cast<unsigned char>(bytes[0]) & kFirstBits[length];
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(bytes[i]) & 0x3F);
  return code;
}

bool is_harmful(unsigned code) {
  if (code < 0x20 || (code >= 0x7F && code <= 0x9F)) return true;
  return code == 0x61C || code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

// replacement(code, is_text): the code point, or a byte that is no UTF-8.
template <typename Replacement>
std::string replaced(std::string_view text, std::string_view kept, Replacement&& replacement) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = detail::sequence_length(text.substr(at, 4));
    const unsigned code = length == 0 ? static_cast<unsigned char>(text[at]) : code_point(text.substr(at), length);
    const bool kept_as_is = length == 1 && kept.find(text[at]) != std::string_view::npos;
    if (length > 0 && (kept_as_is || !is_harmful(code)))
      out += text.substr(at, length);
    else
      out += replacement(code, length > 0);
    at += length == 0 ? 1 : length;
  }
  return out;
}

}  // namespace

std::string escaped_controls(std::string_view text, std::string_view kept) {
  return replaced(text, kept, [](unsigned code, bool is_text) {
    return is_text && code >= 0x20 ? fmt::format("\\u{:04x}", code) : fmt::format("\\x{:02x}", code);
  });
}

std::string masked_controls(std::string_view text, std::string_view kept) {
  return replaced(text, kept, [](unsigned, bool) { return "?"; });
}

}  // namespace rehearse
