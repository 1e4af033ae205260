// See csv_field.h.
#include "sim/base/csv_field.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace rehearse {
namespace {

constexpr std::array<std::string_view, 11> kFormulaStarts = {"=",  "+",      "-",      "@",      "\t",    "\r",
                                                             "\n", "\uFF1D", "\uFF0B", "\uFF0D", "\uFF20"};

bool is_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

// Apostrophes and then what a spreadsheet takes for a formula: with one apostrophe more it is text, and with each one
// taken off it is what it was.
bool reads_as_formula(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\''), text.size()));
  return std::any_of(kFormulaStarts.begin(), kFormulaStarts.end(),
                     [text](std::string_view start) { return text.starts_with(start); });
}

}  // namespace

std::string csv_field(std::string_view text) {
  const bool marked = reads_as_formula(text) && !is_number(text);
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return (marked ? "'" : "") + std::string(text);
  std::string out = marked ? "\"'" : "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::string_view csv_text(std::string_view field) {
  if (field.starts_with('\'') && reads_as_formula(field)) field.remove_prefix(1);
  return field;
}

}  // namespace rehearse
