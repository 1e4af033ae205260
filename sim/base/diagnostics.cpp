// The text and order of diagnostics, and the nearest word by edit distance.
#include "sim/base/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "sim/base/edit_distance.h"
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
