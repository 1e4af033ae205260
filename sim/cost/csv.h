// Measurement tables: comma-separated text with a header line; lines that start with '#' are comments (the provenance).
// Cells are not quoted. Every problem is reported with file, line and column; unknown columns are errors.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/base/diagnostics.h"

namespace rehearse::cost {

// One data row; cells are asked for by column name. A cell that is not what is asked for is reported and a neutral
// value returned, so that reading goes on.
class CsvRow {
 public:
  // Of a dimension, a count: products of three fit in a double's exponent, of two in 64 bits.
  static constexpr std::int64_t kMostInteger = std::int64_t{1} << 30;
  CsvRow(const std::string& file, int line, const std::vector<std::string>& columns, std::vector<std::string> cells,
         Diagnostics& diagnostics);
  const std::string& text(std::string_view column) const;
  std::int64_t positive_integer(std::string_view column, std::int64_t most = kMostInteger) const;
  double positive_number(std::string_view column, double least = 1e-12, double most = 1e24) const;
  // The same, or 0 where the cell is "-": not measured, not known.
  double number_or_dash(std::string_view column, double least = 1e-12, double most = 1e24) const;
  std::int64_t integer_or_dash(std::string_view column) const;
  bool yes(std::string_view column) const;  // yes or no
  // One of `choices`; returns its index.
  int choice(std::string_view column, const std::vector<std::string>& choices) const;

 private:
  std::size_t index(std::string_view column) const;
  void report(std::size_t column, const std::string& message, const std::string& hint = "") const;

  const std::string& file_;
  int line_;
  const std::vector<std::string>& columns_;
  std::vector<std::string> cells_;
  Diagnostics& diagnostics_;
};

// Calls `each` for every data row. The header must hold exactly `columns`, in any order. Throws InputError if the file
// cannot be read; everything else goes to `diagnostics`.
void read_csv(const std::string& file, const std::vector<std::string>& columns, Diagnostics& diagnostics,
              const std::function<void(const CsvRow&)>& each);
// The same of text that stands in `file` from line `first_line` on.
void read_csv_text(const std::string& file, const std::string& text, int first_line,
                   const std::vector<std::string>& columns, Diagnostics& diagnostics,
                   const std::function<void(const CsvRow&)>& each);

}  // namespace rehearse::cost
