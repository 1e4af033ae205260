// See folding.h.
#include "cli/folding.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "reports/text.h"

namespace rehearse::cli {
namespace {

// "0-7, 64-71, ..." of ascending ranks, cut behind `width` characters.
std::string ranges_of(const std::vector<int>& ranks, std::size_t width) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    const std::string next = end - i == 1 ? std::to_string(ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[end - 1]);
    if (text.size() + next.size() + 2 > width) return text + ", ...";
    text += (text.empty() ? "" : ", ") + next;
    i = end;
  }
  return text;
}

}  // namespace

std::string folding_text(const engine::FoldReport& report, std::size_t most_classes) {
  if (!report.nothing.empty()) return fmt::format("All {} ranks are simulated: {}.\n", report.ranks, report.nothing);
  std::string text =
      fmt::format("{} of {} ranks are simulated, for {} of {} process groups and channels, and {} of {} links.\n",
                  report.classes.size(), report.ranks, report.group_classes, report.groups, report.resource_classes,
                  report.resources);
  std::map<std::pair<int, std::string>, std::vector<const engine::RankClass*>> roles;
  std::vector<std::pair<int, std::string>> order;
  for (const engine::RankClass& one : report.classes) {
    auto& list = roles[{one.job, one.role}];
    if (list.empty()) order.emplace_back(one.job, one.role);
    list.push_back(&one);
  }
  for (const auto& role : order) {
    std::vector<const engine::RankClass*> classes = roles[role];
    text += fmt::format("\n{}{}\n", role.second, role.first > 0 ? fmt::format(" of job {} beside it", role.first) : "");
    std::stable_sort(classes.begin() + 1, classes.end(),
                     [](const auto* a, const auto* b) { return a->ranks.size() > b->ranks.size(); });
    for (std::size_t i = 0; i < std::min(most_classes, classes.size()); ++i) {
      const engine::RankClass& one = *classes[i];
      text += fmt::format("  rank {} for {}: {}\n", one.ranks.front(), one.ranks.size(), ranges_of(one.ranks, 56));
      if (!one.why.empty())
        text += reports::wrap(fmt::format("apart from rank {}: {}", classes[0]->ranks.front(), one.why), 4);
    }
    if (classes.size() > most_classes) text += fmt::format("  and {} classes more\n", classes.size() - most_classes);
  }
  return text;
}

}  // namespace rehearse::cli
