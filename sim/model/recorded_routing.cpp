#include "sim/model/recorded_routing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>

#include "sim/base/csv.h"
#include "sim/base/document.h"

namespace rehearse::model {
namespace {

constexpr std::array kPlaces = {"step", "micro_batch", "layer", "data", "context", "tensor"};

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 0 && value <= CsvRow::kMostInteger ? std::optional(value) : std::nullopt;
}

std::int64_t place_in(const CsvRow& row, const char* column, std::int64_t least) {
  const auto value = whole_number(row.text(column));
  if (value && *value >= least) return *value;
  row.error(column, fmt::format("expected a whole number from {}", least));
  return least;
}

std::vector<std::int64_t> rows_in(const CsvRow& row) {
  std::vector<std::int64_t> rows;
  std::string_view text = row.text("rows");
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const auto value = whole_number(text.substr(0, end));
    if (!value) {
      row.error("rows", "expected how many tokens chose each expert, whole numbers with one blank between",
                "e.g. '3 5 0 8'");
      return {};
    }
    rows.push_back(*value);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (rows.size() < 2) row.error("rows", "expected a number for each of 2 or more experts", "e.g. '3 5 0 8'");
  return rows;
}

struct Line {
  RoutedTokens tokens;
  int line = 0;
};

std::vector<Line> lines_of(const std::string& file, Diagnostics& diagnostics) {
  CsvTable table(file, read_text_file(file), routing_columns(), diagnostics);
  std::vector<Line> lines;
  std::size_t experts = 0;
  while (const CsvRow* row = table.next()) {
    RoutedTokens t;
    t.step = place_in(*row, "step", 1);
    t.micro_batch = place_in(*row, "micro_batch", 0);
    t.layer = place_in(*row, "layer", 0);
    t.data = place_in(*row, "data", 0);
    t.context = place_in(*row, "context", 0);
    t.tensor = place_in(*row, "tensor", 0);
    t.rows = rows_in(*row);
    if (experts == 0) experts = t.rows.size();
    if (!t.rows.empty() && t.rows.size() != experts)
      row->error("rows", fmt::format("{} numbers, but {} in the first row", t.rows.size(), experts));
    lines.push_back({std::move(t), table.line()});
  }
  return lines;
}

}  // namespace

CsvColumns routing_columns() {
  CsvColumns columns;
  columns.names.assign(kPlaces.begin(), kPlaces.end());
  columns.names.emplace_back("rows");
  columns.optional = {"sequences", "positions", "chosen"};
  return columns;
}

RecordedRouting::RecordedRouting(const std::string& file, std::int64_t step) {
  Diagnostics diagnostics;
  std::vector<Line> lines = lines_of(file, diagnostics);
  diagnostics.throw_if_any();
  const auto fail = [&](int line, std::string message, std::string hint = "") {
    throw InputError(Diagnostic{file, line, line > 0 ? 1 : 0, "", std::move(message), std::move(hint)});
  };
  if (lines.empty()) fail(1, "the table has no rows");
  std::int64_t first = lines.front().tokens.step, last = first;
  for (const Line& l : lines) first = std::min(first, l.tokens.step), last = std::max(last, l.tokens.step);
  step_ = step == 0 ? last : step;
  std::erase_if(lines, [this](const Line& l) { return l.tokens.step != step_; });
  if (lines.empty())
    fail(1, fmt::format("the table has no step {}", step_), fmt::format("model.routing_step: {} to {}", first, last));
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.tokens.place() < b.tokens.place(); });
  first_layer_ = lines.front().tokens.layer;
  for (const Line& l : lines) {
    const RoutedTokens& t = l.tokens;
    first_layer_ = std::min(first_layer_, t.layer);
    const std::array<std::int64_t, 5> here = {t.micro_batch, t.layer, t.data, t.context, t.tensor};
    for (std::size_t i = 0; i < sizes_.size(); ++i) sizes_[i] = std::max(sizes_[i], here[i] + 1);
  }
  sizes_[1] -= first_layer_;
  // In their order, each place is the next one.
  const auto place_at = [this](std::size_t i) {
    std::array<std::int64_t, 5> place{};
    for (std::size_t k = sizes_.size(); k-- > 0; i /= static_cast<std::size_t>(sizes_[k]))
      place[k] = static_cast<std::int64_t>(i % static_cast<std::size_t>(sizes_[k]));
    return place;
  };
  double places = 1;
  for (const std::int64_t size : sizes_) places *= static_cast<double>(size);
  for (std::size_t i = 0; i < lines.size() || static_cast<double>(i) < places; ++i) {
    if (i > 0 && i < lines.size() && lines[i].tokens.place() == lines[i - 1].tokens.place())
      fail(lines[i].line, fmt::format("the same place is in line {} too", lines[i - 1].line));
    const auto [micro_batch, layer, data, context, tensor] = place_at(i);
    const RoutedTokens* t = i < lines.size() ? &lines[i].tokens : nullptr;
    if (t == nullptr || std::tie(t->micro_batch, t->layer, t->data, t->context, t->tensor) !=
                            std::tuple(micro_batch, layer + first_layer_, data, context, tensor))
      fail(1, fmt::format("step {} has no row for micro_batch {}, layer {}, data {}, context {}, tensor {}", step_,
                          micro_batch, layer + first_layer_, data, context, tensor));
  }
  for (Line& l : lines) {
    all_.push_back(std::move(l.tokens));
    lines_.push_back(l.line);
  }
}

const RoutedTokens& RecordedRouting::of(std::int64_t micro_batch, std::int64_t layer, std::int64_t data,
                                        std::int64_t context, std::int64_t tensor) const {
  const std::array<std::int64_t, 5> place = {micro_batch, layer - first_layer_, data, context, tensor};
  std::int64_t at = 0;
  for (std::size_t i = 0; i < place.size(); ++i) at = at * sizes_[i] + place[i];
  return all_.at(static_cast<std::size_t>(at));
}

}  // namespace rehearse::model
