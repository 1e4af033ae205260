// Reader of measurement tables (csv.h): splits lines, checks the header against the expected columns, converts cells.
#include "sim/cost/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "sim/base/check.h"
#include "sim/base/document.h"

namespace rehearse::cost {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> cells;
  for (std::size_t start = 0; start <= line.size();) {
    const std::size_t end = std::min(line.find(',', start), line.size());
    cells.emplace_back(trimmed(line.substr(start, end - start)));
    start = end + 1;
  }
  return cells;
}

bool header_ok(const std::string& file, int line, const std::vector<std::string>& header,
               const std::vector<std::string>& columns, Diagnostics& diagnostics) {
  const auto has = [](const std::vector<std::string>& list, const std::string& name) {
    return std::count(list.begin(), list.end(), name) > 0;
  };
  bool ok = true;
  for (const std::string& name : header) {
    if (has(columns, name) && std::count(header.begin(), header.end(), name) == 1) continue;
    const std::string near = has(columns, name) ? "" : nearest(name, columns);
    const std::string hint = near.empty() ? "" : fmt::format("did you mean '{}'?", near);
    diagnostics.add(
        {file, line, 1, "", fmt::format("{} column '{}'", has(columns, name) ? "duplicate" : "unknown", name), hint});
    ok = false;
  }
  for (const std::string& name : columns) {
    if (has(header, name)) continue;
    diagnostics.add({file, line, 1, "", fmt::format("missing column '{}'", name), ""});
    ok = false;
  }
  return ok;
}

}  // namespace

CsvRow::CsvRow(const std::string& file, int line, const std::vector<std::string>& columns,
               std::vector<std::string> cells, Diagnostics& diagnostics)
    : file_(file), line_(line), columns_(columns), cells_(std::move(cells)), diagnostics_(diagnostics) {}

std::size_t CsvRow::index(std::string_view column) const {
  const auto found = std::find(columns_.begin(), columns_.end(), column);
  REHEARSE_CHECK(found != columns_.end(), "column {} was not declared", column);
  return static_cast<std::size_t>(found - columns_.begin());
}

void CsvRow::report(std::size_t column, const std::string& message, const std::string& hint) const {
  std::size_t position = 1;
  for (std::size_t i = 0; i < column; ++i) position += cells_[i].size() + 1;
  diagnostics_.add({file_, line_, static_cast<int>(position), columns_[column], message, hint});
}

const std::string& CsvRow::text(std::string_view column) const {
  return cells_[index(column)];
}

std::int64_t CsvRow::positive_integer(std::string_view column, std::int64_t most) const {
  const std::string& cell = cells_[index(column)];
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (code == std::errc() && end == cell.data() + cell.size() && value > 0 && value <= most) return value;
  const bool large = code == std::errc::result_out_of_range || value > most;
  report(index(column), large && !cell.starts_with('-')
                            ? fmt::format("{} is out of range, expected at most {}", cell, most)
                            : fmt::format("'{}' is not a positive whole number", cell));
  return 1;
}

double CsvRow::positive_number(std::string_view column, double least, double most) const {
  const std::string& cell = cells_[index(column)];
  double value = 0;
  const auto [end, code] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (code == std::errc() && end == cell.data() + cell.size() && value >= least && value <= most) return value;
  report(index(column), fmt::format("'{}' is not a number from {:g} to {:g}", cell, least, most));
  return 1;
}

double CsvRow::number_or_dash(std::string_view column, double least, double most) const {
  return cells_[index(column)] == "-" ? 0 : positive_number(column, least, most);
}

std::int64_t CsvRow::integer_or_dash(std::string_view column) const {
  return cells_[index(column)] == "-" ? 0 : positive_integer(column);
}

bool CsvRow::yes(std::string_view column) const {
  return choice(column, {"no", "yes"}) == 1;
}

int CsvRow::choice(std::string_view column, const std::vector<std::string>& choices) const {
  const std::string& cell = cells_[index(column)];
  const auto found = std::find(choices.begin(), choices.end(), cell);
  if (found != choices.end()) return static_cast<int>(found - choices.begin());
  const std::string near = nearest(cell, choices);
  report(index(column), fmt::format("'{}' is not one of {}", cell, fmt::join(choices, ", ")),
         near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  return 0;
}

void read_csv(const std::string& file, const std::vector<std::string>& columns, Diagnostics& diagnostics,
              const std::function<void(const CsvRow&)>& each) {
  read_csv_text(file, read_text_file(file), 1, columns, diagnostics, each);
}

void read_csv_text(const std::string& file, const std::string& text, int first_line,
                   const std::vector<std::string>& columns, Diagnostics& diagnostics,
                   const std::function<void(const CsvRow&)>& each) {
  std::vector<std::string> header;
  int line_number = first_line - 1;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = trimmed(std::string_view(text).substr(start, end - start));
    start = end + 1;
    ++line_number;
    if (line.empty() || line.front() == '#') continue;
    std::vector<std::string> cells = split(line);
    if (header.empty()) {
      header = std::move(cells);
      if (!header_ok(file, line_number, header, columns, diagnostics)) return;
    } else if (cells.size() != header.size()) {
      diagnostics.add(
          {file, line_number, 1, "", fmt::format("{} cells where the header has {}", cells.size(), header.size()), ""});
    } else {
      each(CsvRow(file, line_number, header, std::move(cells), diagnostics));
    }
  }
  if (header.empty()) diagnostics.add({file, first_line, 1, "", "the table is empty: expected a header line", ""});
}

}  // namespace rehearse::cost
