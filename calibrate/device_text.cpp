#include "calibrate/device_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rehearse::calibrate {

std::string yaml_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  return out + '"';
}

std::string rows_block(const std::string& heading, const std::vector<std::string>& columns,
                       const std::vector<std::string>& rows) {
  if (rows.empty()) return "";
  std::string text = fmt::format("{}  rows: |\n    {}\n", heading, fmt::join(columns, ","));
  for (const std::string& row : rows) text += "    " + row + '\n';
  return text;
}

std::string key_cells(const cost::ProductKey& k) {
  const std::string_view epilogue = program::name_of(k.epilogue);
  return fmt::format("{},{},{}{},{},{},{},{},{},{}", name_of(k.dtype), name_of(k.out), k.transpose_a ? 't' : 'n',
                     k.transpose_b ? 't' : 'n', k.accumulate ? "yes" : "no", k.bias ? "yes" : "no",
                     epilogue.empty() ? "none" : epilogue, k.m, k.n, k.k);
}

}  // namespace rehearse::calibrate
