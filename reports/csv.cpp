// See csv.h.
#include "reports/csv.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/diagnostics.h"
#include "sim/result/csv_field.h"

namespace rehearse::reports {
namespace {

// Reads rows from text; a blank line is no row.
class Reader {
 public:
  Reader(std::string file, std::string_view text) : file_(std::move(file)), text_(text) {}

  std::vector<CsvRow> read() {
    std::vector<CsvRow> rows;
    while (at_ < text_.size()) {
      CsvRow row{line_, {}};
      do row.fields.emplace_back(result::csv_text(field()));
      while (take(','));
      take('\r');
      if (take('\n')) ++line_;
      if (row.fields.size() > 1 || !row.fields[0].empty()) rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::string field() {
    if (take('"')) return quoted();
    const std::size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    std::string out(text_.substr(at_, end - at_));
    at_ = end;
    if (at_ < text_.size() && text_[at_] == '\r' && (at_ + 1 == text_.size() || text_[at_ + 1] != '\n'))
      fail(line_, "a carriage return inside a field");
    return out;
  }

  std::string quoted() {
    const int start = line_;
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '\n') ++line_;
      if (c != '"' || take('"')) {
        out += c;
        continue;
      }
      if (at_ < text_.size() && text_.find_first_of(",\r\n", at_) != at_) fail(line_, "text after a closing quote");
      return out;
    }
    fail(start, "a quoted field that never ends");
  }

  [[noreturn]] void fail(int line, std::string message) const {
    throw InputError(Diagnostic{file_, line, 1, "", std::move(message), ""});
  }

  std::string file_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

CsvTable parse_csv(const std::string& file, std::string_view text, const std::vector<std::string>& required) {
  CsvTable table{file, {}, Reader(file, text).read()};
  if (table.rows.empty())
    throw InputError(Diagnostic{file, 1, 1, "", "expected a row that names the columns, found none", ""});
  table.columns = table.rows.front().fields;
  table.rows.erase(table.rows.begin());
  Diagnostics problems;
  for (const std::string& name : required) {
    if (column_of(table, name) >= 0) continue;
    const std::string near = nearest(name, table.columns);
    problems.add({file, 1, 1, "", fmt::format("there is no column '{}'", name),
                  near.empty() ? "" : fmt::format("did you mean '{}'?", near)});
  }
  for (const CsvRow& row : table.rows)
    if (row.fields.size() != table.columns.size())
      problems.add({file, row.line, 1, "",
                    fmt::format("expected {} fields, found {}", table.columns.size(), row.fields.size()), ""});
  problems.throw_if_any();
  return table;
}

int column_of(const CsvTable& table, std::string_view name) {
  const auto found = std::find(table.columns.begin(), table.columns.end(), name);
  return found == table.columns.end() ? -1 : static_cast<int>(found - table.columns.begin());
}

}  // namespace rehearse::reports
