// See shared_work.h. Numbers are written so that they are the same bits when they are read.
#include "sim/search/shared_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <sstream>

#include "sim/base/check.h"
#include "sim/search/search.h"

namespace rehearse::search {

void Findings::add(std::size_t index, const Plan& plan, const std::string& reason) {
  std::string one_line = reason;
  std::replace(one_line.begin(), one_line.end(), '\n', ' ');
  lines_ +=
      fmt::format("{} {} {} {} {} {} {} {} {} {}\n", index, static_cast<int>(plan.status), plan.least.ps(),
                  plan.least_bytes, plan.gpus, plan.complexity, plan.step.ps(),
                  std::bit_cast<std::uint64_t>(plan.joules), std::bit_cast<std::uint64_t>(plan.objective), one_line);
}

std::string Findings::text(bool limit_reached) const {
  return fmt::format("{}\n{}", limit_reached ? 1 : 0, lines_);
}

bool take_findings(const std::string& text, std::vector<Plan>& plans,
                   const std::function<void(const std::string&)>& forbidden) {
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  const bool limit_reached = line == "1";
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::size_t index = 0;
    int status = 0;
    std::int64_t least = 0, step = 0;
    std::uint64_t joules = 0, objective = 0;
    fields >> index;
    REHEARSE_CHECK(fields && index < plans.size(), "a finding of no plan: {}", line);
    Plan& plan = plans[index];
    fields >> status >> least >> plan.least_bytes >> plan.gpus >> plan.complexity >> step >> joules >> objective;
    REHEARSE_CHECK(static_cast<bool>(fields), "a finding that is cut: {}", line);
    plan.status = static_cast<Status>(status);
    plan.least = Time::from_ps(least), plan.step = Time::from_ps(step);
    plan.joules = std::bit_cast<double>(joules), plan.objective = std::bit_cast<double>(objective);
    std::string reason;
    std::getline(fields >> std::ws, reason);
    if (plan.status == Status::forbidden) forbidden(reason);
  }
  return limit_reached;
}

std::vector<int> shares_by_family(const Space& space, const std::vector<Plan>& plans, int parts,
                                  const std::function<bool(const std::string& key)>& separate) {
  std::vector<bool> counts;
  for (const SpaceKey& key : space.keys) counts.push_back(!separate(key.key));
  std::map<Choice, int> families;
  std::vector<int> shares;
  for (const Plan& plan : plans) {
    Choice family;
    for (std::size_t k = 0; k < plan.choice.size(); ++k)
      if (counts[k]) family.push_back(plan.choice[k]);
    const auto [found, added] = families.emplace(std::move(family), static_cast<int>(families.size()));
    shares.push_back(found->second % parts);
  }
  return shares;
}

}  // namespace rehearse::search
