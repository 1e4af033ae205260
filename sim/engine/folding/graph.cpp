// See graph.h.
#include "sim/engine/folding/graph.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "sim/base/interrupt.h"
#include "sim/collective/steps.h"

namespace rehearse::engine {

namespace {

// Facts, as whole words.
class Facts {
 public:
  Facts& add(std::int64_t value) {
    words_.push_back(value);
    return *this;
  }
  Facts& add(double value) { return add(std::bit_cast<std::int64_t>(value)); }
  Facts& add(std::string_view value) {
    constexpr std::size_t kWord = sizeof(std::int64_t);
    add(static_cast<std::int64_t>(value.size()));
    for (; !value.empty(); value.remove_prefix(std::min(kWord, value.size()))) {
      std::int64_t word = 0;
      std::memcpy(&word, value.data(), std::min(kWord, value.size()));
      add(word);
    }
    return *this;
  }
  Facts& add(Time value) { return add(value.ps()); }
  Facts& clear() {
    words_.clear();
    return *this;
  }
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(words_.data()), words_.size() * sizeof(std::int64_t)};
  }

 private:
  std::vector<std::int64_t> words_;
};

// Numbers for facts: what is the same to the byte is one colour.
class FactColours {
 public:
  std::int32_t of(const Facts& facts) {
    const auto known = numbers_.find(facts.bytes());
    if (known != numbers_.end()) return known->second;
    return numbers_.emplace(facts.bytes(), static_cast<std::int32_t>(numbers_.size())).first->second;
  }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view bytes) const { return std::hash<std::string_view>()(bytes); }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> numbers_;
};

using Sizes = std::set<std::int32_t>;

// Of a role: the sizes that its sequences are called with.
std::vector<Sizes> sizes_of(const RoleCode& role) {
  std::vector<Sizes> sizes(role.sequences.size());
  for (const Segment& segment : role.segments)
    if (segment.kind == SegmentKind::collective) sizes[static_cast<std::size_t>(segment.sequence)].insert(segment.size);
  for (const LegCode& leg : role.legs) sizes[static_cast<std::size_t>(leg.sequence)].insert(leg.size);
  return sizes;
}

class GraphBuilder {
 public:
  GraphBuilder(const IdVector<JobId, JobCode>& codes, const cluster::Cluster& cluster, const Options& options,
               const LinkFaults& faults)
      : cluster_(cluster) {
    for (const JobId job : codes.ids()) add_job(job, codes[job], options);
    add_resources(faults);
    graph_.first_group.push_back(graph_.rank_groups.size());
    graph_.first_member.push_back(graph_.members.size());
    graph_.first_activity.push_back(graph_.activities.size());
    graph_.first_use.push_back(graph_.uses.size());
  }

  FoldGraph take() { return std::move(graph_); }

 private:
  void add_resources(const LinkFaults& faults) {
    const std::vector<cluster::Resource>& resources = cluster_.resources();
    using Known = std::tuple<cluster::ResourceKind, Bandwidth, std::int64_t>;
    std::optional<Known> before;  // most are as the one before
    FactColours colours;
    std::int32_t colour = 0;
    for (std::size_t r = 0; r < resources.size(); ++r) {
      const Known known{resources[r].kind, resources[r].capacity, faults.alike(static_cast<std::int32_t>(r))};
      if (known != before) {
        Facts& facts = facts_.clear();
        facts.add(static_cast<std::int64_t>(resources[r].kind)).add(resources[r].capacity.per_s());
        colour = colours.of(facts.add(std::get<2>(known)));
        before = known;
      }
      graph_.resources.push_back(colour);
    }
  }

  void add_job(JobId id, const JobCode& job, const Options& options) {
    const program::ProcessGroups& groups = job.link().groups;
    const auto first_rank = static_cast<std::int32_t>(graph_.ranks.size());
    const auto first_group = static_cast<std::int32_t>(graph_.groups.size());
    const bool reported = id == JobId(0) && options.steps > 0;
    const Noise noise(job.job->noise, options.sample, reported ? options.spared : std::vector<int>(), groups.ranks());
    std::vector<std::vector<Sizes>> role_sizes;
    for (const RoleCode& role : job.code.roles) role_sizes.push_back(sizes_of(role));
    std::vector<const Sizes*> sizes(static_cast<std::size_t>(groups.size()));  // those of a role, or of several joined
    std::vector<const Sizes*> last(sizes.size());  // added: of members of one role it is the same
    std::deque<Sizes> joined;
    std::vector<std::int64_t> sequences(static_cast<std::size_t>(groups.size()));  // what its members call it
    for (int rank = 0; rank < groups.ranks(); ++rank) {
      const auto role = static_cast<std::size_t>(job.code_of[static_cast<std::size_t>(rank)]);
      Facts& facts = facts_.clear();
      facts.add(static_cast<std::int64_t>(id.value())).add(static_cast<std::int64_t>(role)).add(noise.slowness(rank));
      if (job.job->loaders != nullptr) {
        const Loader& loader = (*job.job->loaders)[static_cast<std::size_t>(rank)];
        facts.add(loader.batch).add(std::int64_t{loader.workers}).add(std::int64_t{loader.ahead});
      }
      if (job.job->attention_loads != nullptr)
        facts.add(std::int64_t{job.job->attention_loads->row_of[static_cast<std::size_t>(rank)]});
      graph_.ranks.push_back(rank_facts_.of(facts));
      graph_.first_group.push_back(graph_.rank_groups.size());
      std::size_t sequence = 0;
      for (const std::int32_t group : groups.of(rank)) {
        if (group >= 0) {
          graph_.rank_groups.push_back(first_group + group);
          const auto g = static_cast<std::size_t>(group);
          const Sizes& own = role_sizes[role][sequence];
          if (sizes[g] == nullptr) {
            sizes[g] = &own;
          } else if (last[g] != &own && !std::includes(sizes[g]->begin(), sizes[g]->end(), own.begin(), own.end())) {
            Sizes& all = joined.emplace_back(*sizes[g]);
            all.insert(own.begin(), own.end());
            sizes[g] = &all;
          }
          last[g] = &own;
          if (groups[group].group < 0)
            sequences[g] += (1 + static_cast<std::int64_t>(sequence)) *
                            (groups[group].ranks[0] == rank ? std::int64_t{1} << 32 : 1);
        }
        ++sequence;
      }
    }
    const Sizes none;
    for (std::int32_t group = 0; group < groups.size(); ++group) {
      check_interrupt();
      const auto g = static_cast<std::size_t>(group);
      add_group(id, job, groups[group], sizes[g] == nullptr ? none : *sizes[g], sequences[g], first_rank);
    }
  }

  void add_group(JobId id, const JobCode& job, const program::ProcessGroup& group, const Sizes& sizes,
                 std::int64_t sequences, std::int32_t first_rank) {
    graph_.first_member.push_back(graph_.members.size());
    graph_.first_activity.push_back(graph_.activities.size());
    graph_.channel.push_back(group.group < 0 ? 1 : 0);
    for (const int member : group.ranks) graph_.members.push_back(first_rank + member);
    Facts& facts = facts_.clear();
    facts.add(static_cast<std::int64_t>(id.value())).add(std::int64_t{group.group}).add(std::int64_t{group.channel});
    facts.add(static_cast<std::int64_t>(group.axis)).add(sequences).add(static_cast<std::int64_t>(group.ranks.size()));
    if (group.group < 0)
      facts.add(std::int64_t{group.ranks[0] == group.ranks[1]});
    else
      facts.add(nodes_of(group));  // which a result says of collectives
    for (const std::int32_t size : sizes) {
      facts.add(std::int64_t{size});
      const collective::TransferPlan plan = plan_of(job, group, size);
      graph_.plans.push_back({static_cast<std::int32_t>(graph_.groups.size()), size, graph_.activities.size(),
                              static_cast<std::int32_t>(plan.activities.size())});
      add_plan(plan, size, facts);
    }
    graph_.groups.push_back(group_facts_.of(facts));
  }

  // How many nodes its ranks are on.
  std::int64_t nodes_of(const program::ProcessGroup& group) {
    nodes_.clear();
    for (const int member : group.ranks) nodes_.push_back(cluster_.node_of(member));
    std::sort(nodes_.begin(), nodes_.end());
    return std::unique(nodes_.begin(), nodes_.end()) - nodes_.begin();
  }

  // Activities move on their own, and may change places; messages of steps depend on one another.
  void add_plan(const collective::TransferPlan& plan, std::int32_t size, Facts& facts) {
    facts.add(plan.startup).add(std::int64_t{plan.sms}).add(plan.memory_bytes).add(std::int64_t{plan.threads});
    facts.add(static_cast<std::int64_t>(plan.coverage)).add(plan.low).add(plan.high);
    facts.add(plan.algorithm).add(plan.protocol).add(std::int64_t{plan.pinned}).add(plan.copy_out).add(plan.copy_in);
    facts.add(static_cast<std::int64_t>(plan.activities.size()));
    for (const collective::Activity& activity : plan.activities) add_activity(activity, size, -1);
    if (plan.steps == nullptr) return;
    const collective::Steps& steps = *plan.steps;
    facts.add(steps.latency).add(static_cast<std::int64_t>(steps.edges.size()));
    std::int32_t number = 0;
    for (const collective::Steps::Edge& edge : steps.edges) {
      facts.add(std::int64_t{edge.receiver});
      add_activity(edge.activity, size, number++);
    }
    for (const auto& list : {steps.waits, steps.sends, steps.first_stage}) {
      facts.add(static_cast<std::int64_t>(list.size()));
      for (const std::int32_t item : list) facts.add(std::int64_t{item});
    }
    for (const collective::Steps::Stage& stage : steps.stages)
      for (const std::int64_t item : {std::int64_t{stage.waits.first}, std::int64_t{stage.waits.last},
                                      std::int64_t{stage.sends.first}, std::int64_t{stage.sends.last}, stage.repeat})
        facts.add(item);
  }

  void add_activity(const collective::Activity& activity, std::int32_t size, std::int32_t message) {
    // Most are as the one before.
    const ActivityFacts facts{size, message, activity.min_duration};
    if (facts != last_activity_) {
      last_activity_ = facts;
      last_colour_ =
          activity_colours_.try_emplace(facts, static_cast<std::int32_t>(activity_colours_.size())).first->second;
    }
    graph_.activities.push_back(last_colour_);
    graph_.first_use.push_back(graph_.uses.size());
    for (const collective::Use& use : activity.uses)
      if (use.bytes > 0) graph_.uses.push_back(use);
  }

  const cluster::Cluster& cluster_;
  FoldGraph graph_;
  FactColours rank_facts_, group_facts_;
  using ActivityFacts = std::tuple<std::int32_t, std::int32_t, Time>;  // size, message, least duration
  std::map<ActivityFacts, std::int32_t> activity_colours_;
  ActivityFacts last_activity_{-1, -1, Time::from_ps(-1)};
  std::int32_t last_colour_ = 0;
  Facts facts_;  // of the rank or group being added
  std::vector<int> nodes_;
};

}  // namespace

FoldGraph fold_graph(const IdVector<JobId, JobCode>& codes, const cluster::Cluster& cluster, const Options& options,
                     const LinkFaults& faults) {
  return GraphBuilder(codes, cluster, options, faults).take();
}

}  // namespace rehearse::engine
