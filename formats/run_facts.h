// Facts that complete rows of published runs (calibrate/published/run-facts.yaml): what is publicly known of a named
// model, or of what a source ran, and does not stand in the source's own table. A fact fills columns that a row leaves
// empty and changes none that it has; each is kept with where it stands, so that a row says what was inferred.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/document.h"

namespace rehearse::formats {

// One row of the table, by column; a column that is missing is an empty text.
using RunColumns = std::map<std::string, std::string, std::less<>>;

const std::string& column(const RunColumns& row, std::string_view name);
// The number that a whole text is.
std::optional<double> column_number(std::string_view text);

// Which rows: column -> patterns, any of which has to match. `*` stands for any run of characters, `?` for one; letters
// of either case are the same.
class RowPattern {
 public:
  RowPattern() = default;
  explicit RowPattern(const Node& when);
  bool matches(const RunColumns& row) const;

 private:
  std::map<std::string, std::vector<std::string>> columns_;
};

class RunFacts {
 public:
  // Throws InputError with every problem of the file.
  static RunFacts read(const std::string& path);

  // Fills empty columns of `row`, by the first fact that matches and has them, in the order of the file; later facts
  // see what earlier ones filled. Returns what was filled, each with its source: "vocab 64000 (arXiv 2402.15627,
  // section 6.1)".
  std::vector<std::string> complete(RunColumns& row) const;

 private:
  struct Fact {
    RowPattern when;
    std::vector<std::pair<std::string, std::string>> columns;  // column -> value; in order
    std::string from;
  };
  std::vector<Fact> facts_;
};

// A fact's value for this row: a text, or whole numbers and other columns with " * " and " / " between, from left to
// right ("layers / pp"). "" where a column of it is empty or the result is no whole number.
std::string fact_value(const std::string& value, const RunColumns& row);

}  // namespace rehearse::formats
