// See recorded_choices.h.
#include "sim/model/recorded_choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "sim/base/csv.h"
#include "sim/base/document.h"

namespace rehearse::model {
namespace {

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 0 && value <= CsvRow::kMostInteger ? std::optional(value) : std::nullopt;
}

// "3 0 1 2"
std::vector<std::int32_t> numbers_in(const CsvRow& row, const char* column) {
  std::vector<std::int32_t> numbers;
  std::string_view text = row.text(column);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const auto value = number_in(text.substr(0, end));
    if (!value) {
      row.error(column, "expected whole numbers with one blank between", "e.g. '3 0 1 2'");
      return {};
    }
    numbers.push_back(static_cast<std::int32_t>(*value));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return numbers;
}

// "0-3 12-15": runs as pairs of the first number and how many; of "5" one.
std::vector<std::int64_t> runs_in(const CsvRow& row, const char* column) {
  std::vector<std::int64_t> runs;
  std::string_view text = row.text(column);
  while (!text.empty()) {
    const std::string_view run = text.substr(0, std::min(text.find(' '), text.size()));
    const std::size_t dash = std::min(run.find('-'), run.size());
    const auto first = number_in(run.substr(0, dash));
    const auto last = dash == run.size() ? first : number_in(run.substr(dash + 1));
    if (!first || !last || *last < *first) {
      row.error(column, "expected runs of whole numbers with one blank between", "e.g. '0-3 12-15'");
      return {};
    }
    runs.insert(runs.end(), {*first, *last - *first + 1});
    text.remove_prefix(std::min(run.size() + 1, text.size()));
  }
  if (runs.empty()) row.error(column, "expected runs of whole numbers", "e.g. '0-3 12-15'");
  return runs;
}

std::string runs_text(const std::vector<std::int64_t>& runs) {
  std::string text;
  for (std::size_t i = 0; i + 1 < runs.size(); i += 2)
    text += fmt::format("{}{}-{}", i == 0 ? "" : " ", runs[i], runs[i] + runs[i + 1] - 1);
  return text;
}

struct ChoicesInLine {
  RoutedChoices tokens;
  int line = 0;
};

// Nothing where the table has no choices. Its other columns RecordedRouting has read.
std::vector<ChoicesInLine> choices_in_lines(const std::string& file, Diagnostics& diagnostics) {
  const std::string text = read_text_file(file);
  CsvTable table(file, text, routing_columns(), diagnostics);
  std::vector<ChoicesInLine> lines;
  if (!table.has("chosen")) return lines;
  while (const CsvRow* row = table.next()) {
    RoutedChoices t;
    t.step = number_in(row->text("step")).value_or(0);
    t.layer = number_in(row->text("layer")).value_or(0);
    for (const std::int32_t rows : numbers_in(*row, "rows")) t.rows.push_back(rows);
    const std::vector<std::int64_t> sequences = runs_in(*row, "sequences");
    if (sequences.size() > 2) row->error("sequences", "expected one run of them", "e.g. '4-5'");
    if (!sequences.empty()) t.first_sequence = sequences[0], t.sequences = sequences[1];
    t.positions = runs_in(*row, "positions");
    t.chosen = numbers_in(*row, "chosen");
    lines.push_back({std::move(t), table.line()});
  }
  return lines;
}

}  // namespace

std::string routing_table_text(std::vector<RoutedChoices> all) {
  std::sort(all.begin(), all.end(),
            [](const RoutedChoices& a, const RoutedChoices& b) { return a.place() < b.place(); });
  std::string out = "step,micro_batch,layer,data,context,tensor,rows,sequences,positions,chosen\n";
  for (const RoutedChoices& t : all)
    out += fmt::format("{},{},{},{},{},{},{},{},{},{}\n", t.step, t.micro_batch, t.layer, t.data, t.context, t.tensor,
                       fmt::join(t.rows, " "), runs_text({t.first_sequence, t.sequences}), runs_text(t.positions),
                       fmt::join(t.chosen, " "));
  return out;
}

std::string RecordedChoices::take(const RoutedChoices& t) {
  const auto size = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  if (size(t.rows.size()) != sizes_.experts)
    return fmt::format("{} experts, the model has {}", t.rows.size(), sizes_.experts);
  if (t.layer < sizes_.first_layer || t.layer >= sizes_.first_layer + sizes_.layers)
    return fmt::format("layer {}, the model's layers with experts are {} to {}", t.layer, sizes_.first_layer,
                       sizes_.first_layer + sizes_.layers - 1);
  if (t.first_sequence + t.sequences > sizes_.sequences)
    return fmt::format("sequence {} of a step, the batch has {}", t.first_sequence + t.sequences - 1, sizes_.sequences);
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < t.positions.size(); i += 2) {
    if (t.positions[i] + t.positions[i + 1] > sizes_.positions)
      return fmt::format("position {}, a sequence has {} tokens", t.positions[i] + t.positions[i + 1] - 1,
                         sizes_.positions);
    tokens += t.positions[i + 1] * t.sequences;
  }
  if (size(t.chosen.size()) != tokens * sizes_.top_k)
    return fmt::format("{} choices, {} tokens that choose {} experts each have {}", t.chosen.size(), tokens,
                       sizes_.top_k, tokens * sizes_.top_k);
  std::vector<std::int64_t> counts(t.rows.size(), 0);
  for (const std::int32_t e : t.chosen) {
    if (e >= sizes_.experts) return fmt::format("expert {}, the model has {}", e, sizes_.experts);
    ++counts[static_cast<std::size_t>(e)];
  }
  if (counts != t.rows) return "other choices than `rows` counts";
  std::vector<std::int32_t>& all = steps_[t.step];
  all.resize(static_cast<std::size_t>(sizes_.layers * sizes_.sequences * sizes_.positions * sizes_.top_k), -1);
  const std::int32_t* from = t.chosen.data();
  for (std::size_t i = 0; i < t.positions.size(); i += 2)
    for (std::int64_t p = t.positions[i]; p < t.positions[i] + t.positions[i + 1]; ++p)
      for (std::int64_t s = t.first_sequence; s < t.first_sequence + t.sequences; ++s, from += sizes_.top_k) {
        std::int32_t* const to = all.data() + at(t.layer, s, p);
        if (*to >= 0) return fmt::format("choices of sequence {}, position {} in layer {} again", s, p, t.layer);
        std::copy_n(from, sizes_.top_k, to);
        for (std::int64_t k = 1; k < sizes_.top_k; ++k)
          if (std::find(to, to + k, to[k]) != to + k)
            return fmt::format("a token of sequence {}, position {} that chooses expert {} twice", s, p, to[k]);
      }
  return "";
}

std::shared_ptr<const RecordedChoices> RecordedChoices::read(const std::string& file, std::int64_t step,
                                                             const Sizes& sizes) {
  const RecordedRouting counts(file, step);  // which says what is wrong with those
  Diagnostics diagnostics;
  const std::vector<ChoicesInLine> lines = choices_in_lines(file, diagnostics);
  diagnostics.throw_if_any();
  if (lines.empty()) return nullptr;
  const auto fail = [&](int line, std::string message, std::string hint) {
    throw InputError(Diagnostic{file, line, 1, "", std::move(message), std::move(hint)});
  };
  std::shared_ptr<RecordedChoices> all(new RecordedChoices(sizes));
  for (const ChoicesInLine& l : lines) {
    if (step > 0 && l.tokens.step != step) continue;
    if (const std::string problem = all->take(l.tokens); !problem.empty())
      fail(l.line, fmt::format("the record has {}", problem),
           "the model, batch and sequences of the run that was recorded");
  }
  if (all->steps_.empty())
    fail(1, step > 0 ? fmt::format("the table has no step {}", step) : std::string("the table has no rows"),
         "model.routing_step");
  for (const auto& [number, chosen] : all->steps_) {
    const auto missing = std::find(chosen.begin(), chosen.end(), -1) - chosen.begin();
    if (missing == static_cast<std::ptrdiff_t>(chosen.size())) continue;
    const std::int64_t token = missing / sizes.top_k, layer = token / sizes.positions / sizes.sequences;
    fail(1,
         fmt::format("step {} has no choices of sequence {}, position {} in layer {}", number,
                     token / sizes.positions % sizes.sequences, token % sizes.positions, sizes.first_layer + layer),
         "the model, batch and sequences of the run that was recorded");
  }
  return all;
}

}  // namespace rehearse::model
