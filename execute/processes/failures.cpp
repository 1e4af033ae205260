// See failures.h.
#include "execute/processes/failures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace rehearse::execute {

std::string had_not_begun(int rank) {
  return fmt::format("rank {} had not begun", rank);
}

std::string ranks_text(std::span<const int> ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string waited_text(std::chrono::milliseconds time, std::span<const int> missing) {
  const double seconds = static_cast<double>(time.count()) / 1000;
  return missing.empty() ? fmt::format("waited {:.3g} s", seconds)
                         : fmt::format("waited {:.3g} s for {}", seconds, ranks_text(missing));
}

std::string silent_text(int rank) {
  return fmt::format("rank {} does not answer: stopped, perhaps", rank);
}

std::string failure_text(const FailureFacts& facts, const WhereaboutsOf& whereabouts_of) {
  constexpr std::size_t kShown = 8;
  if (!facts.from_outside.empty()) return facts.from_outside;
  std::vector<std::string> lines;
  if (!facts.cause.empty()) lines.push_back(facts.cause);
  for (const auto& [rank, death] : facts.deaths)
    lines.push_back(fmt::format("rank {} {}\n  {}", rank, death, whereabouts_of(rank)));
  if (lines.empty() && facts.lost >= 0)
    lines.push_back(fmt::format("the connection to rank {} was lost\n  {}", facts.lost, whereabouts_of(facts.lost)));
  if (lines.empty()) return "";
  for (const auto& [rank, text] : facts.waiting)
    if (rank != facts.failed) lines.push_back(text);
  for (const int rank : facts.silent)
    if (!facts.deaths.contains(rank)) lines.push_back(fmt::format("{}\n  {}", silent_text(rank), whereabouts_of(rank)));
  std::string text = lines.front();
  const std::size_t shown = std::min(kShown, lines.size() - 1);
  for (std::size_t i = 1; i <= shown; ++i) {
    // Several may have waited for the same ranks: where those were is said once.
    std::istringstream rest(lines[i]);
    std::string line;
    for (const char* indent = "\n  "; std::getline(rest, line); indent = "\n")
      if (const std::string next = indent + line; text.find(next) == std::string::npos) text += next;
  }
  if (lines.size() - 1 > shown) text += fmt::format("\n  and {} more", lines.size() - 1 - shown);
  return text;
}

void FailureLog::failed(int rank, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!facts_.cause.empty() || !facts_.deaths.empty()) {
    facts_.waiting.emplace(rank, text);
    return;
  }
  facts_.failed = rank;
  facts_.cause = text;
}

void FailureLog::waited(int rank, const std::string& text) {
  const std::lock_guard lock(mutex_);
  facts_.waiting.emplace(rank, text);
}

void FailureLog::died(int rank) {
  const std::lock_guard lock(mutex_);
  facts_.deaths.emplace(rank, kEndedSilently);
}

FailureFacts FailureLog::facts() const {
  const std::lock_guard lock(mutex_);
  return facts_;
}

void LocalFailures::fail(int rank, const std::string& text) {
  log_.failed(rank, text);
  stop_.request();
}

std::string LocalFailures::report(const WhereaboutsOf& whereabouts_of) {
  return failure_text(log_.facts(), whereabouts_of);
}

}  // namespace rehearse::execute
