// See text.h.
#include "reports/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/base/harmless_text.h"

namespace rehearse::reports {
namespace {

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Bytes of the first `width` columns of `text`.
std::size_t prefix(std::string_view text, std::size_t width) {
  std::size_t bytes = 0, seen = 0;
  while (bytes < text.size()) {
    if (!continues(text[bytes]) && seen++ == width) break;
    ++bytes;
  }
  return bytes;
}

std::vector<std::size_t> widths_of(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], columns(row[c]));
  }
  return widths;
}

}  // namespace

std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

std::string clip(std::string_view text, std::size_t width) {
  std::string clean = masked_controls(text);
  if (columns(clean) <= width) return clean;
  if (width == 0) return "";
  clean.resize(prefix(clean, width - 1));
  return clean + '~';
}

std::string wrap(std::string_view text, std::size_t indent, std::size_t width) {
  const std::size_t room = width - indent;
  const std::string margin(indent, ' ');
  std::string out, line;
  const auto finish = [&] {
    if (!line.empty()) out += margin + line + '\n';
    line.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    std::string word = masked_controls(text.substr(at, end - at));
    at = end + 1;
    if (word.empty()) continue;
    if (!line.empty() && columns(line) + 1 + columns(word) > room) finish();
    while (columns(word) > room) {
      const std::size_t cut = prefix(word, room);
      line = word.substr(0, cut);
      word.erase(0, cut);
      finish();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  finish();
  return out;
}

std::string labelled(const std::vector<std::pair<std::string, std::string>>& rows, std::size_t indent) {
  std::string out;
  for (const auto& [label, value] : rows) {
    const std::string wrapped = wrap(value, indent);
    out += left(label, indent) + (wrapped.empty() ? "\n" : wrapped.substr(indent));
  }
  return out;
}

std::string spaced(std::string_view key) {
  std::string name(key);
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string left(std::string_view text, std::size_t width) {
  std::string out = clip(text, width);
  return out + std::string(width - columns(out), ' ');
}

std::string right(std::string_view text, std::size_t width) {
  const std::string out = clip(text, width);
  return std::string(width - columns(out), ' ') + out;
}

std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  const std::size_t sign = digits.starts_with('-') ? 1 : 0;
  for (std::size_t at = digits.size(); at > sign + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string compact(double value) {
  const double size = std::abs(value);
  if (size >= 1e15) return fmt::format("{:.3g}", value);
  if (size >= 1e12) return fmt::format("{:.4g}T", value / 1e12);
  if (size >= 1e9) return fmt::format("{:.4g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  return size >= 999.5 ? grouped(value) : fmt::format("{:.4g}", value);
}

std::string joules_text(double joules) {
  constexpr std::array<std::pair<double, const char*>, 5> kUnits = {
      {{1e12, "TJ"}, {1e9, "GJ"}, {1e6, "MJ"}, {1e3, "kJ"}, {1, "J"}}};
  for (const auto& [size, unit] : kUnits)
    if (joules >= 0.9995 * size) return fmt::format("{:.3g} {}", joules / size, unit);
  return fmt::format("{:.3g} J", joules);
}

std::string loss_text(double loss) {
  return std::isnan(loss) ? "not a number" : fmt::format("{:.4f}", loss);
}

std::string percent(double share) {
  return fmt::format("{:.1f}%", share * 100);
}

std::vector<std::string> without_common_words(std::vector<std::string> names) {
  if (names.size() < 2) return names;
  std::size_t common = names[0].size();
  for (const std::string& name : names) {
    const auto [a, b] = std::mismatch(name.begin(), name.end(), names[0].begin(), names[0].end());
    common = std::min(common, static_cast<std::size_t>(a - name.begin()));
  }
  const std::size_t dash = names[0].substr(0, common).find_last_of('-');
  if (dash != std::string::npos)
    for (std::string& name : names) name.erase(0, dash + 1);
  return names;
}

std::string file_stem(std::string_view path) {
  path.remove_prefix(path.find_last_of('/') + 1);
  const std::size_t dot = path.find_last_of('.');
  return std::string(path.substr(0, dot == 0 ? std::string_view::npos : dot));
}

std::string align(const std::vector<std::vector<std::string>>& rows, std::size_t indent, std::size_t width) {
  std::vector<std::size_t> widths = widths_of(rows);
  std::size_t others = indent;
  for (std::size_t c = 1; c < widths.size(); ++c) others += widths[c] + 2;
  if (!widths.empty() && others + widths[0] > width) widths[0] = others + 4 < width ? width - others : 4;
  std::string out;
  for (const auto& row : rows) {
    std::string line(indent, ' ');
    for (std::size_t c = 0; c < row.size(); ++c)
      line += c == 0 ? left(row[0], widths[0]) : "  " + right(row[c], widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += clip(line, width) + '\n';
  }
  return out;
}

std::size_t aligned_width(const std::vector<std::vector<std::string>>& rows, std::size_t indent) {
  std::size_t width = indent;
  const std::vector<std::size_t> widths = widths_of(rows);
  for (std::size_t c = 0; c < widths.size(); ++c) width += widths[c] + (c == 0 ? 0 : 2);
  return width;
}

}  // namespace rehearse::reports
