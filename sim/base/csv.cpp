// See csv.h.
#include "sim/base/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/csv_field.h"

namespace rehearse {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

template <typename Number>
std::from_chars_result parse_all(std::string_view text, Number& value) {
  std::from_chars_result result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec == std::errc() && result.ptr != text.data() + text.size()) result.ec = std::errc::invalid_argument;
  return result;
}

}  // namespace

CsvReader::CsvReader(std::string file, std::string_view text, CsvDialect dialect, int first_line)
    : file_(std::move(file)), text_(text), dialect_(dialect), line_(first_line), row_line_(first_line) {}

bool CsvReader::next() {
  while (true) {
    skip_blanks();
    if (dialect_ == CsvDialect::commented && at_ < text_.size() && text_[at_] == '#')
      at_ = std::min(text_.find('\n', at_), text_.size());
    if (!skip_line_end()) break;
  }
  row_line_ = line_;
  count_ = 0;
  if (at_ >= text_.size()) return false;
  do field();
  while (at_ < text_.size() && text_[at_] == ',' && ++at_ > 0);
  skip_line_end();
  return true;
}

std::string_view CsvReader::operator[](std::size_t field) const {
  return csv_text(fields_[field].text);
}

void CsvReader::skip_blanks() {
  if (dialect_ == CsvDialect::plain) return;
  while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
}

bool CsvReader::skip_line_end() {
  if (at_ >= text_.size() || (text_[at_] != '\n' && text_[at_] != '\r')) return false;
  if (text_[at_] == '\r') {
    ++at_;
    if (at_ >= text_.size() || text_[at_] != '\n') fail(line_, column() - 1, "a carriage return without a line feed");
  }
  ++at_;
  ++line_;
  line_start_ = at_;
  return true;
}

void CsvReader::field() {
  if (fields_.size() <= count_) {
    fields_.emplace_back();
    unquoted_.emplace_back();
  }
  const std::size_t place = count_++;
  skip_blanks();
  Field& field = fields_[place];
  field.line = line_, field.column = column();
  if (at_ < text_.size() && text_[at_] == '"') {
    quoted(field, unquoted_[place]);
    return;
  }
  const std::size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
  field.text = text_.substr(at_, end - at_);
  if (dialect_ == CsvDialect::commented)
    while (!field.text.empty() && is_blank(field.text.back())) field.text.remove_suffix(1);
  at_ = end;
}

void CsvReader::quoted(Field& field, std::string& out) {
  out.clear();
  for (++at_; at_ < text_.size(); ++at_) {
    if (text_[at_] != '"') {
      out += text_[at_];
      if (text_[at_] == '\n') ++line_, line_start_ = at_ + 1;
      continue;
    }
    ++at_;
    if (at_ < text_.size() && text_[at_] == '"') {
      out += '"';
      continue;
    }
    field.text = out;
    skip_blanks();
    if (at_ < text_.size() && text_.find_first_of(",\r\n", at_) != at_)
      fail(line_, column(), "text after a closing quote");
    return;
  }
  fail(field.line, field.column, "a quoted field that never ends");
}

void CsvReader::fail(int line, int column, const char* message) const {
  throw InputError(Diagnostic{file_, line, column, "", message, ""});
}

CsvTable::CsvTable(std::string file, std::string text, const CsvColumns& columns, Diagnostics& diagnostics,
                   CsvDialect dialect, int first_line)
    : text_(std::move(text)), reader_(std::move(file), text_, dialect, first_line), diagnostics_(diagnostics) {
  read_heading(columns);
}

void CsvTable::read_heading(const CsvColumns& columns) {
  const std::size_t before = diagnostics_.list().size();
  const auto problem = [this](int column, std::string message, const std::string& near) {
    diagnostics_.add({reader_.file(), reader_.line(), column, "", std::move(message),
                      near.empty() ? "" : fmt::format("did you mean '{}'?", near)});
  };
  if (!reader_.next()) {
    problem(1, "expected a row that names the columns, found none", "");
    return;
  }
  for (std::size_t i = 0; i < reader_.size(); ++i) columns_.emplace_back(reader_[i]);
  const auto known = [&](const std::string& name) {
    return std::find(columns.names.begin(), columns.names.end(), name) != columns.names.end() ||
           std::find(columns.optional.begin(), columns.optional.end(), name) != columns.optional.end();
  };
  for (std::size_t i = 0; i < columns_.size() && !columns.others; ++i) {
    if (!known(columns_[i]))
      problem(reader_.column_of(i), fmt::format("unknown column '{}'", columns_[i]),
              nearest(columns_[i], columns.names));
    else if (index(columns_[i]) < i)
      problem(reader_.column_of(i), fmt::format("there is a second column '{}'", columns_[i]), "");
  }
  for (const std::string& name : columns.names)
    if (!has(name))
      problem(1, fmt::format("there is no column '{}'", name), columns.others ? nearest(name, columns_) : "");
  readable_ = diagnostics_.list().size() == before;
}

const CsvRow* CsvTable::next() {
  while (readable_ && reader_.next()) {
    if (reader_.size() == columns_.size()) return &row_;
    row_.error(fmt::format("expected {} fields, found {}", columns_.size(), reader_.size()));
  }
  return nullptr;
}

bool CsvRow::has(std::string_view column) const {
  return table_.has(column);
}

bool CsvTable::has(std::string_view column) const {
  return std::find(columns_.begin(), columns_.end(), column) != columns_.end();
}

std::size_t CsvTable::index(std::string_view column) const {
  const auto found = std::find(columns_.begin(), columns_.end(), column);
  REHEARSE_CHECK(found != columns_.end(), "a table without a column {}", column);
  return static_cast<std::size_t>(found - columns_.begin());
}

std::string_view CsvRow::text(std::string_view column) const {
  return table_.reader_[table_.index(column)];
}

void CsvRow::error(std::string_view column, std::string message, std::string hint) const {
  const CsvReader& reader = table_.reader_;
  const std::size_t i = table_.index(column);
  table_.diagnostics_.add({reader.file(), reader.line_of(i), reader.column_of(i), std::string(column),
                           std::move(message), std::move(hint)});
}

void CsvRow::error(std::string message) const {
  table_.diagnostics_.add({table_.reader_.file(), table_.reader_.line(), 1, "", std::move(message), ""});
}

std::int64_t CsvRow::positive_integer(std::string_view column, std::int64_t most) const {
  const std::string_view field = text(column);
  std::int64_t value = 0;
  const std::errc code = parse_all(field, value).ec;
  if (code == std::errc() && value > 0 && value <= most) return value;
  const bool large = code == std::errc::result_out_of_range || value > most;
  error(column, large && !field.starts_with('-') ? fmt::format("{} is out of range, expected at most {}", field, most)
                                                 : fmt::format("'{}' is not a positive whole number", field));
  return 1;
}

double CsvRow::positive_number(std::string_view column, double least, double most) const {
  const std::string_view field = text(column);
  double value = 0;
  if (parse_all(field, value).ec == std::errc() && value >= least && value <= most) return value;
  error(column, fmt::format("'{}' is not a number from {:g} to {:g}", field, least, most));
  return 1;
}

double CsvRow::number_or_dash(std::string_view column, double least, double most) const {
  return text(column) == "-" ? 0 : positive_number(column, least, most);
}

std::int64_t CsvRow::integer_or_dash(std::string_view column) const {
  return text(column) == "-" ? 0 : positive_integer(column);
}

bool CsvRow::yes(std::string_view column) const {
  return choice(column, {"no", "yes"}) == 1;
}

int CsvRow::choice(std::string_view column, const std::vector<std::string>& choices) const {
  const std::string_view field = text(column);
  const auto found = std::find(choices.begin(), choices.end(), field);
  if (found != choices.end()) return static_cast<int>(found - choices.begin());
  const std::string near = nearest(field, choices);
  error(column, fmt::format("'{}' is not one of {}", field, fmt::join(choices, ", ")),
        near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  return 0;
}

}  // namespace rehearse
