// Comma-separated tables as RFC 4180 has them: quoted fields may hold commas, quotes (doubled) and line ends, and what
// csv_field() marks as text (sim/result/csv_field.h) comes back as it was. The first row names the columns. Every
// problem carries the file and line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rehearse::reports {

struct CsvRow {
  int line = 0;                     // where it starts, 1-based
  std::vector<std::string> fields;  // as many as there are columns
};
struct CsvTable {
  std::string file;
  std::vector<std::string> columns;
  std::vector<CsvRow> rows;
};

// Throws InputError: an open quote at the end, a row with another number of fields, no heading, a column of `required`
// that is missing (with the nearest that is there).
CsvTable parse_csv(const std::string& file, std::string_view text, const std::vector<std::string>& required);
// The index of a column; -1 if there is none.
int column_of(const CsvTable& table, std::string_view name);

}  // namespace rehearse::reports
