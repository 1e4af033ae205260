// The text and order of diagnostics, and the nearest word by edit distance. The distance is optimal string alignment
// (Levenshtein with the swap of two neighbours as one edit), because swapped letters are the commonest typing error.
#include "sim/base/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "sim/base/harmless_text.h"

namespace rehearse {
namespace {

std::string joined(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const Diagnostic& diagnostic : diagnostics) {
    if (!text.empty()) text += '\n';
    text += diagnostic.text();
  }
  return text;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string Diagnostic::text() const {
  std::string out = file;
  if (!file.empty() && line > 0) out += fmt::format(":{}:{}", line, column);
  out += file.empty() ? "error: " : ": error: ";
  if (!path.empty()) out += path + ": ";
  out += message;
  if (!hint.empty()) out += fmt::format(" ({})", hint);
  return escaped_controls(out);  // the user's own keys and file names may hold what a terminal obeys
}

InputError::InputError(std::vector<Diagnostic> diagnostics)
    : std::runtime_error(joined(diagnostics)), diagnostics_(std::move(diagnostics)) {}

InputError::InputError(Diagnostic diagnostic) : InputError(std::vector<Diagnostic>{std::move(diagnostic)}) {}

void Diagnostics::add(Diagnostic diagnostic) {
  list_.push_back(std::move(diagnostic));
  if (list_.size() >= kMost) throw_if_any();
}

void Diagnostics::throw_if_any() const {
  if (list_.empty()) return;
  // Files keep the order in which they were first complained about; within a file, by position.
  std::map<std::string_view, std::size_t> file_order;
  std::vector<std::tuple<std::size_t, int, int, std::size_t>> order;  // file, line, column; which
  order.reserve(list_.size());
  for (std::size_t i = 0; i < list_.size(); ++i) {
    const std::size_t file = file_order.emplace(list_[i].file, file_order.size()).first->second;
    order.emplace_back(file, list_[i].line, list_[i].column, i);
  }
  std::sort(order.begin(), order.end());
  const auto same = [](const Diagnostic& a, const Diagnostic& b) {
    return std::tie(a.file, a.line, a.column, a.path, a.message) ==
           std::tie(b.file, b.line, b.column, b.path, b.message);
  };
  std::vector<Diagnostic> sorted;
  for (const auto& place : order) {
    const Diagnostic& diagnostic = list_[std::get<3>(place)];
    if (sorted.empty() || !same(sorted.back(), diagnostic)) sorted.push_back(diagnostic);
  }
  if (list_.size() >= kMost)
    sorted.push_back({list_.back().file, 0, 0, "", fmt::format("reading stopped after {} errors", kMost), ""});
  throw InputError(std::move(sorted));
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = SIZE_MAX;
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(word.size(), candidate.size());
    const std::size_t limit = longer / 3 + 1;
    if (longer - std::min(word.size(), candidate.size()) > limit) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance > limit || distance >= best_distance || distance >= longer) continue;
    best_distance = distance;
    best = candidate;
  }
  return best;
}

}  // namespace rehearse
