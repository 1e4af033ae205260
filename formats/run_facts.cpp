// See run_facts.h.
#include "formats/run_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "sim/base/diagnostics.h"

namespace rehearse::formats {
namespace {

bool matches_pattern(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || same(pattern[p], text[t]))) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<std::string> patterns_of(const Node& node) {
  std::vector<std::string> out;
  if (node.kind() == Node::Kind::sequence) {
    for (std::size_t i = 0; i < node.size(); ++i)
      if (const auto text = node.at(i).as_text()) out.push_back(*text);
  } else if (const auto text = node.as_text()) {
    out.push_back(*text);
  }
  return out;
}

}  // namespace

const std::string& column(const RunColumns& row, std::string_view name) {
  static const std::string empty;
  const auto found = row.find(name);
  return found == row.end() ? empty : found->second;
}

std::optional<double> column_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

RowPattern::RowPattern(const Node& when) {
  for (const std::string& key : when.keys()) columns_[key] = patterns_of(when.get(key));
}

bool RowPattern::matches(const RunColumns& row) const {
  return std::all_of(columns_.begin(), columns_.end(), [&](const auto& condition) {
    const std::string& text = column(row, condition.first);
    return std::any_of(condition.second.begin(), condition.second.end(),
                       [&](const std::string& pattern) { return matches_pattern(pattern, text); });
  });
}

std::string fact_value(const std::string& value, const RunColumns& row) {
  if (value.find(" * ") == std::string::npos && value.find(" / ") == std::string::npos && row.count(value) == 0)
    return value;
  double result = 1;
  char operation = '*';
  for (std::size_t at = 0; at <= value.size();) {
    const std::size_t space = std::min(value.find(' ', at), value.size());
    const std::string term = value.substr(at, space - at);
    at = space + 1;
    if (term == "*" || term == "/") {
      operation = term.front();
      continue;
    }
    const std::optional<double> number = column_number(row.count(term) > 0 ? column(row, term) : term);
    if (!number || (operation == '/' && *number == 0)) return "";
    result = operation == '*' ? result * *number : result / *number;
  }
  return result == std::floor(result) && std::abs(result) < 1e15 ? fmt::format("{:.0f}", result) : "";
}

RunFacts RunFacts::read(const std::string& path) {
  Diagnostics problems;
  const Document document = Document::from_file(path, problems);
  const Node root = document.root();
  root.integer("run_facts", {}, 1, 1);
  RunFacts out;
  const Node facts = root.get("facts");
  for (std::size_t i = 0; i < facts.size(); ++i) {
    const Node node = facts.at(i);
    Fact fact;
    fact.when = RowPattern(node.get("when"));
    const Node columns = node.get("columns");
    for (const std::string& key : columns.keys()) fact.columns.emplace_back(key, columns.text(key));
    if (fact.columns.empty()) node.error("a fact has columns to fill");
    fact.from = node.text("from");
    node.finish();
    out.facts_.push_back(std::move(fact));
  }
  root.finish();
  problems.throw_if_any();
  return out;
}

std::vector<std::string> RunFacts::complete(RunColumns& row) const {
  std::vector<std::string> said;
  for (const Fact& fact : facts_) {
    if (!fact.when.matches(row)) continue;
    std::string filled;
    for (const auto& [name, value] : fact.columns) {
      if (!column(row, name).empty()) continue;
      const std::string text = fact_value(value, row);
      if (text.empty()) continue;
      row[name] = text;
      filled += fmt::format("{}{} {}", filled.empty() ? "" : ", ", name, text);
    }
    if (!filled.empty()) said.push_back(fmt::format("{} ({})", filled, fact.from));
  }
  return said;
}

}  // namespace rehearse::formats
