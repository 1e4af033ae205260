// Comma-separated tables as RFC 4180 has them: quoted fields may hold commas, doubled quotes and line ends, and what
// csv_field() marks as text (csv_field.h) comes back as it was. Every problem carries file, line and column.
//
// Our own reader: Debian's libcsv says no positions, and fast-cpp-csv-parser stops at the first problem, where we
// report all of them.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/diagnostics.h"

namespace rehearse {

enum class CsvDialect : unsigned char {
  plain,
  // Also lines that begin with '#' (provenance), and blanks around fields, which do not belong to them.
  commented
};

// Row after row of a text, as fast as the largest tables need it: fields without quotes are views of the text, which
// must outlive the reader. Lines without any field are passed over.
class CsvReader {
 public:
  CsvReader(std::string file, std::string_view text, CsvDialect dialect = CsvDialect::plain, int first_line = 1);
  // The next row; false at the end. Throws InputError: an open quote, text after a closing one, a carriage return
  // alone.
  bool next();
  std::size_t size() const { return count_; }
  // Until the next row.
  std::string_view operator[](std::size_t field) const;
  const std::string& file() const { return file_; }
  int line() const { return row_line_; }  // where the row starts, 1-based
  // Where a field starts: in a row with line ends in quotes that may be another line than the row's.
  int line_of(std::size_t field) const { return fields_[field].line; }
  int column_of(std::size_t field) const { return fields_[field].column; }

 private:
  struct Field {
    std::string_view text;
    int line = 0, column = 0;
  };
  void skip_blanks();
  bool skip_line_end();
  void field();
  void quoted(Field& field, std::string& out);
  [[noreturn]] void fail(int line, int column, const char* message) const;
  int column() const { return static_cast<int>(at_ - line_start_) + 1; }

  std::string file_;
  std::string_view text_;
  CsvDialect dialect_;
  std::size_t at_ = 0, line_start_ = 0, count_ = 0;
  int line_, row_line_;
  std::vector<Field> fields_;
  std::deque<std::string> unquoted_;  // never moved: fields_ points into them
};

// What a table's first row must name.
struct CsvColumns {
  std::vector<std::string> names;
  bool others = false;                     // columns beyond these may be there
  std::vector<std::string> optional = {};  // these in any case
};

class CsvTable;

// One row; fields are asked for by column name. A field that is not what is asked for is reported and a neutral value
// returned, so that reading goes on.
class CsvRow {
 public:
  // Of a dimension, a count: products of three fit in a double's exponent, of two in 64 bits.
  static constexpr std::int64_t kMostInteger = std::int64_t{1} << 30;
  // Until the next row.
  std::string_view text(std::string_view column) const;
  std::int64_t positive_integer(std::string_view column, std::int64_t most = kMostInteger) const;
  double positive_number(std::string_view column, double least = 1e-12, double most = 1e24) const;
  // The same, or 0 where the field is "-": not measured, not known.
  double number_or_dash(std::string_view column, double least = 1e-12, double most = 1e24) const;
  std::int64_t integer_or_dash(std::string_view column) const;
  bool yes(std::string_view column) const;  // yes or no
  bool has(std::string_view column) const;  // of a column that may be missing
  // One of `choices`; returns its index.
  int choice(std::string_view column, const std::vector<std::string>& choices) const;
  // Reports that the field is wrong, or the row.
  void error(std::string_view column, std::string message, std::string hint = "") const;
  void error(std::string message) const;

 private:
  friend class CsvTable;
  explicit CsvRow(CsvTable& table) : table_(table) {}
  CsvTable& table_;
};

// The rows of a table whose first row names the columns. Problems go to `diagnostics`.
class CsvTable {
 public:
  // `first_line`: the line of `file` on which the text begins. Where the first row is not what it must be, there are no
  // rows.
  CsvTable(std::string file, std::string text, const CsvColumns& columns, Diagnostics& diagnostics,
           CsvDialect dialect = CsvDialect::plain, int first_line = 1);
  CsvTable(const CsvTable&) = delete;
  CsvTable& operator=(const CsvTable&) = delete;

  // Null at the end. Rows of another number of fields are reported and passed over. Throws as CsvReader does.
  const CsvRow* next();
  int line() const { return reader_.line(); }
  bool has(std::string_view column) const;

 private:
  friend class CsvRow;
  void read_heading(const CsvColumns& columns);
  std::size_t index(std::string_view column) const;

  std::string text_;
  CsvReader reader_;
  Diagnostics& diagnostics_;
  std::vector<std::string> columns_;
  bool readable_ = false;
  CsvRow row_{*this};
};

}  // namespace rehearse
