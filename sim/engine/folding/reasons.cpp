// See reasons.h. What tells two things apart is looked for where refinement found it: in the first round that gave them
// two colours, some neighbours of theirs had two already; and so on, down to facts.
#include "sim/engine/folding/reasons.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "sim/engine/folding/folding.h"
#include "sim/engine/folding/graph.h"
#include "sim/engine/folding/refinement.h"

namespace rehearse::engine {

namespace {

class Reasons {
 public:
  Reasons(const IdVector<JobId, JobCode>& codes, const cluster::Cluster& cluster, const FoldGraph& graph,
          const std::vector<FoldColours>& history)
      : codes_(codes), resources_(cluster.resources()), graph_(graph), history_(history) {
    for (const JobCode& code : codes) {
      for (int rank = 0; rank < code.link().groups.ranks(); ++rank) ranks_.push_back({&code, rank});
      for (std::int32_t group = 0; group < code.link().groups.size(); ++group) groups_.push_back({&code, group});
    }
    group_of_.resize(graph.activities.size());
    users_.resize(graph.resources.size());
    for (std::size_t g = 0; g < graph.groups.size(); ++g)
      for (std::size_t a = graph.first_activity[g]; a < graph.first_activity[g + 1]; ++a) {
        group_of_[a] = g;
        for (std::size_t u = graph.first_use[a]; u < graph.first_use[a + 1]; ++u)
          users_[static_cast<std::size_t>(graph.uses[u].resource)].push_back({a, graph.uses[u].bytes});
      }
  }

  // Of ranks of one role.
  std::string of_ranks(std::size_t a, std::size_t b) const {
    const std::size_t round = parted(&FoldColours::ranks, a, b);
    if (round == 0)
      return fmt::format("rank {} and rank {} are not equally fast, load at two rates, or have other documents",
                         ranks_[a].number, ranks_[b].number);
    const Colours& colours = history_[round].groups;
    for (std::size_t s = 0; s < graph_.first_group[a + 1] - graph_.first_group[a]; ++s) {
      const auto x = static_cast<std::size_t>(graph_.rank_groups[graph_.first_group[a] + s]);
      const auto y = static_cast<std::size_t>(graph_.rank_groups[graph_.first_group[b] + s]);
      if (colours[x] != colours[y]) return fmt::format("{} {}", name_of_group(x, a), of_groups(x, y));
    }
    return "";
  }

 private:
  struct Thing {
    const JobCode* code;
    std::int32_t number;
  };
  struct User {
    std::size_t activity;
    std::int64_t bytes;
  };

  // The first round in which they had two colours.
  std::size_t parted(Colours FoldColours::*of, std::size_t a, std::size_t b) const {
    std::size_t round = 0;
    while ((history_[round].*of)[a] == (history_[round].*of)[b]) ++round;
    return round;
  }

  const program::ProcessGroup& group(std::size_t g) const { return groups_[g].code->link().groups[groups_[g].number]; }

  // As the rank would call it.
  std::string name_of_group(std::size_t g, std::size_t rank) const {
    const program::ProcessGroup& what = group(g);
    if (what.group >= 0)
      return "its group " + groups_[g].code->job->program.groups[static_cast<std::size_t>(what.group)].name;
    const bool sends = what.ranks[0] == ranks_[rank].number;
    return fmt::format("its {} message {} rank {}", name_of(what.axis), sends ? "to" : "from",
                       what.ranks[sends ? 1 : 0]);
  }
  std::string user_name(std::size_t activity) const {
    const program::ProcessGroup& what = group(group_of_[activity]);
    if (what.group < 0) return std::string(name_of(what.axis)) + " messages";
    return groups_[group_of_[activity]].code->job->program.groups[static_cast<std::size_t>(what.group)].name;
  }

  // Of two lists of colours, the place in each of one that the other has less of.
  static std::pair<std::size_t, std::size_t> unmatched(const Colours& x, const Colours& y) {
    const auto one = [](const Colours& of, const Colours& other) {
      for (std::size_t i = 0; i < of.size(); ++i)
        if (std::count(of.begin(), of.end(), of[i]) > std::count(other.begin(), other.end(), of[i])) return i;
      return of.size();
    };
    return {one(x, y), one(y, x)};
  }

  std::string of_groups(std::size_t x, std::size_t y) const {
    const std::size_t round = parted(&FoldColours::groups, x, y);
    if (round == 0) return of_plans(x, y);
    const auto activities = [&](std::size_t g) {
      Colours colours;
      for (std::size_t a = graph_.first_activity[g]; a < graph_.first_activity[g + 1]; ++a)
        colours.push_back(history_[round].activities[a]);
      return colours;
    };
    const Colours of_x = activities(x), of_y = activities(y);
    if (const auto [i, j] = unmatched(of_x, of_y); i < of_x.size() && j < of_y.size())
      return of_activities(graph_.first_activity[x] + i, graph_.first_activity[y] + j);
    const auto members = [&](std::size_t g) {
      Colours colours;
      for (std::size_t m = graph_.first_member[g]; m < graph_.first_member[g + 1]; ++m)
        colours.push_back(history_[round - 1].ranks[static_cast<std::size_t>(graph_.members[m])]);
      return colours;
    };
    const auto [i, j] = unmatched(members(x), members(y));
    const auto a = static_cast<std::size_t>(graph_.members[graph_.first_member[x] + i]);
    const auto b = static_cast<std::size_t>(graph_.members[graph_.first_member[y] + j]);
    return fmt::format("has rank {}, of which {}", ranks_[a].number, of_ranks(a, b));
  }

  // Groups whose facts differ: the first that do.
  std::string of_plans(std::size_t x, std::size_t y) const {
    const auto plan_at = [&](std::size_t g, std::size_t k) -> const FoldGraph::Plan* {
      const auto first =
          std::lower_bound(graph_.plans.begin(), graph_.plans.end(), static_cast<std::int32_t>(g),
                           [](const FoldGraph::Plan& plan, std::int32_t number) { return plan.group < number; });
      const auto at = first + static_cast<std::ptrdiff_t>(k);
      return at < graph_.plans.end() && at->group == static_cast<std::int32_t>(g) ? &*at : nullptr;
    };
    for (std::size_t k = 0; plan_at(x, k) != nullptr && plan_at(y, k) != nullptr; ++k) {
      const auto one = plan_of(*groups_[x].code, group(x), plan_at(x, k)->size);
      const auto other = plan_of(*groups_[y].code, group(y), plan_at(y, k)->size);
      if (one.algorithm != other.algorithm) return fmt::format("goes by {}, not {}", one.algorithm, other.algorithm);
      if (one.startup != other.startup)
        return fmt::format("has {} of latency, not {}", format_time(one.startup), format_time(other.startup));
      if (one.alone() != other.alone())
        return fmt::format("takes {} alone, not {}", format_time(one.alone()), format_time(other.alone()));
      if (one.activities.size() != other.activities.size())
        return fmt::format("has {} channels, not {}", one.activities.size(), other.activities.size());
    }
    return "lies on the nodes in another way";
  }

  std::string of_activities(std::size_t a, std::size_t b) const {
    const std::size_t round = parted(&FoldColours::activities, a, b);
    if (round == 0) return "moves its bytes at another rate";
    const FoldColours& before = history_[round - 1];
    const auto uses = [&](std::size_t activity) {
      std::vector<std::pair<std::int64_t, std::int32_t>> list;  // bytes, resource
      for (std::size_t u = graph_.first_use[activity]; u < graph_.first_use[activity + 1]; ++u)
        list.emplace_back(graph_.uses[u].bytes, graph_.uses[u].resource);
      return list;
    };
    const auto of_a = uses(a), of_b = uses(b);
    const auto resource_colours = [&](const std::vector<std::pair<std::int64_t, std::int32_t>>& list) {
      std::map<std::pair<std::int64_t, std::int32_t>, int> numbers;  // bytes and colour: how many
      for (const auto& [bytes, r] : list) ++numbers[{bytes, before.resources[static_cast<std::size_t>(r)]}];
      return numbers;
    };
    const auto in_a = resource_colours(of_a), in_b = resource_colours(of_b);
    const auto more = [&](const auto& list, const auto& own, const auto& other) -> std::optional<std::size_t> {
      for (const auto& [bytes, r] : list) {
        const std::pair key{bytes, before.resources[static_cast<std::size_t>(r)]};
        const auto found = other.find(key);
        if (own.at(key) > (found == other.end() ? 0 : found->second)) return static_cast<std::size_t>(r);
      }
      return std::nullopt;
    };
    const auto r = more(of_a, in_a, in_b), q = more(of_b, in_b, in_a);
    if (r && q) return of_resources(*r, *q);
    if (r || q || of_a.size() != of_b.size()) return "crosses other links";
    return of_groups(group_of_[a], group_of_[b]);
  }

  std::string of_resources(std::size_t r, std::size_t q) const {
    const std::size_t round = parted(&FoldColours::resources, r, q);
    const std::string &name = resources_[r].name, &other = resources_[q].name;
    if (round == 0) {
      if (resources_[r].capacity == resources_[q].capacity && resources_[r].kind == resources_[q].kind)
        return fmt::format("crosses {}, whose capacity noise changes in another way than that of {}", name, other);
      return fmt::format("crosses {} of {}, where others cross {} of {}", name,
                         format_bandwidth(resources_[r].capacity), other, format_bandwidth(resources_[q].capacity));
    }
    std::map<std::string, std::pair<int, int>> users;  // on either
    for (const User& user : users_[r]) ++users[user_name(user.activity)].first;
    for (const User& user : users_[q]) ++users[user_name(user.activity)].second;
    for (const auto& [what, numbers] : users)
      if (numbers.first != numbers.second)
        return fmt::format("crosses {}, which carries {} of {}; {} carries {}", name, numbers.first, what, other,
                           numbers.second);
    const auto colours = [&](std::size_t resource) {
      Colours list;
      for (const User& user : users_[resource]) list.push_back(history_[round].activities[user.activity]);
      return list;
    };
    const auto [i, j] = unmatched(colours(r), colours(q));
    if (i == users_[r].size() || j == users_[q].size()) return fmt::format("crosses {}, which carries others", name);
    return fmt::format("shares {} with one of {} that {}", name, user_name(users_[r][i].activity),
                       of_activities(users_[r][i].activity, users_[q][j].activity));
  }

  const IdVector<JobId, JobCode>& codes_;
  const std::vector<cluster::Resource>& resources_;
  const FoldGraph& graph_;
  const std::vector<FoldColours>& history_;
  std::vector<Thing> ranks_, groups_;
  std::vector<std::size_t> group_of_;     // by activity
  std::vector<std::vector<User>> users_;  // by resource
};

std::int64_t count_of(const Colours& colours) {
  return static_cast<std::int64_t>(std::set<std::int32_t>(colours.begin(), colours.end()).size());
}

}  // namespace

FoldReport report_folding(const Job& reported, const cluster::Cluster& cluster, const Options& options,
                          const std::vector<Job>& beside) {
  std::vector<Job> jobs{reported};
  for (const Job& job : beside) jobs.push_back(job);
  const IdVector<JobId, JobCode> codes = lay_out(jobs);
  FoldReport report;
  report.nothing = why_not_folded(codes, cluster, true);
  for (const JobCode& code : codes) report.ranks += code.link().groups.ranks();
  if (!report.nothing.empty()) return report;
  FoldGraph graph = fold_graph(codes, cluster, options, LinkFaults(options.noise, options.sample, cluster.resources()));
  std::vector<FoldColours> history;
  refine(graph, &history);
  report.groups = static_cast<std::int64_t>(graph.groups.size());
  report.resources = static_cast<std::int64_t>(graph.resources.size());
  report.group_classes = count_of(graph.groups);
  report.resource_classes = count_of(graph.resources);
  const Reasons reasons(codes, cluster, graph, history);
  std::size_t first_rank = 0;
  for (const JobId job : codes.ids()) {
    const JobCode& code = codes[job];
    std::map<std::int32_t, std::size_t> first_of;  // by role and kind of device: a rank of all
    std::map<std::pair<std::int32_t, std::int32_t>, RankClass> classes;
    for (int rank = 0; rank < code.link().groups.ranks(); ++rank) {
      const std::int32_t role = code.code_of[static_cast<std::size_t>(rank)];
      const std::size_t number = first_rank + static_cast<std::size_t>(rank);
      RankClass& own = classes[{role, graph.ranks[number]}];
      own.ranks.push_back(rank);
      if (own.ranks.size() > 1) continue;
      own.job = job.value();
      const RoleCode& run = code.code.roles[static_cast<std::size_t>(role)];
      own.role = run.role->name;
      if (code.job->kinds != nullptr) own.role += " on " + run.costs->device().name;
      const std::size_t first = first_of.try_emplace(role, number).first->second;
      if (first != number) own.why = reasons.of_ranks(number, first);
    }
    for (auto& [key, rank_class] : classes) report.classes.push_back(std::move(rank_class));
    first_rank += static_cast<std::size_t>(code.link().groups.ranks());
  }
  return report;
}

}  // namespace rehearse::engine
