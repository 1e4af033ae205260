#include "sim/base/size_or_share.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace rehearse {

Bytes SizeOrShare::of(Bytes whole) const {
  if (percent <= 0) return size;
  return Bytes(static_cast<std::int64_t>(std::ceil(percent * static_cast<double>(whole.count()) / 100)));
}

std::optional<SizeOrShare> parse_size_or_share(std::string_view text) {
  if (!text.ends_with('%')) {
    const auto size = parse_bytes(text);
    return size ? std::optional(SizeOrShare{*size, 0}) : std::nullopt;
  }
  text.remove_suffix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  const bool starts_a_number = !text.empty() && text.front() >= '0' && text.front() <= '9';
  double percent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), percent);
  if (!starts_a_number || error != std::errc() || end != text.data() + text.size() || percent >= 100)
    return std::nullopt;
  return SizeOrShare{Bytes(), percent};
}

std::string text_of(const SizeOrShare& value) {
  return value.percent > 0 ? fmt::format("{}%", value.percent) : fmt::format("{}B", value.size.count());
}

}  // namespace rehearse
