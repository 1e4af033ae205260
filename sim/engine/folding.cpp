// See folding.h.
#include "sim/engine/folding.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/base/random.h"
#include "sim/collective/steps.h"

namespace rehearse::engine {

namespace {

using Colours = std::vector<std::int32_t>;

// Numbers for texts: facts that are the same to the byte are one colour.
class FactColours {
 public:
  std::int32_t of(const std::string& facts) {
    return numbers_.try_emplace(facts, static_cast<std::int32_t>(numbers_.size())).first->second;
  }

 private:
  std::unordered_map<std::string, std::int32_t> numbers_;
};

// Facts as bytes.
class Facts {
 public:
  Facts& add(std::int64_t value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Facts& add(double value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Facts& add(std::string_view value) {
    add(static_cast<std::int64_t>(value.size()));
    text_.append(value);
    return *this;
  }
  Facts& add(Time value) { return add(value.ps()); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Of ranks and groups of all jobs, one after the other, the activities of the groups' plans, and the cluster's
// resources.
struct GraphColours {
  Colours ranks, groups, activities, resources;
};

// What is refined; colours are by facts at first.
struct Graph : GraphColours {
  std::vector<std::size_t> first_group;     // by rank, in rank_groups; one more at the end, as in the others
  std::vector<std::int32_t> rank_groups;    // of each of the rank's sequences with calls
  std::vector<std::size_t> first_member;    // by group, in members
  std::vector<std::int32_t> members;        // ranks; of a channel sender and receiver
  std::vector<char> channel;                // by group
  std::vector<std::size_t> first_activity;  // by group
  std::vector<std::size_t> first_use;       // by activity, in uses
  std::vector<collective::Use> uses;
  struct Plan {
    std::int32_t group, size;
    std::size_t first_activity;
    std::int32_t activities;  // without messages of steps
  };
  std::vector<Plan> plans;
};

// ---- the graph of a simulation ----

// Of a role: the sizes that its sequences are called with.
std::vector<std::set<std::int32_t>> sizes_of(const RoleCode& role) {
  std::vector<std::set<std::int32_t>> sizes(role.sequences.size());
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
    const std::vector<cluster::Resource>& resources = cluster.resources();
    FactColours colours;
    for (std::size_t r = 0; r < resources.size(); ++r)
      graph_.resources.push_back(colours.of(Facts()
                                                .add(static_cast<std::int64_t>(resources[r].kind))
                                                .add(resources[r].capacity.per_s())
                                                .add(faults.alike(static_cast<std::int32_t>(r)))
                                                .text()));
    graph_.first_group.push_back(graph_.rank_groups.size());
    graph_.first_member.push_back(graph_.members.size());
    graph_.first_activity.push_back(graph_.activities.size());
    graph_.first_use.push_back(graph_.uses.size());
  }

  Graph take() { return std::move(graph_); }

 private:
  void add_job(JobId id, const JobCode& job, const Options& options) {
    const program::ProcessGroups& groups = job.link.groups;
    const auto first_rank = static_cast<std::int32_t>(graph_.ranks.size());
    const auto first_group = static_cast<std::int32_t>(graph_.groups.size());
    const bool reported = id == JobId(0) && options.steps > 0;
    const Noise noise(job.job->noise, options.sample, reported ? options.spared : std::vector<int>(), groups.ranks());
    std::vector<std::vector<std::set<std::int32_t>>> role_sizes;
    for (const RoleCode& role : job.code.roles) role_sizes.push_back(sizes_of(role));
    std::vector<std::set<std::int32_t>> sizes(static_cast<std::size_t>(groups.size()));
    std::vector<std::int64_t> sequences(static_cast<std::size_t>(groups.size()));  // what its members call it
    for (int rank = 0; rank < groups.ranks(); ++rank) {
      const auto role = static_cast<std::size_t>(job.role_of[static_cast<std::size_t>(rank)]);
      Facts facts;
      facts.add(static_cast<std::int64_t>(id.value())).add(static_cast<std::int64_t>(role)).add(noise.slowness(rank));
      if (job.job->loaders != nullptr) {
        const Loader& loader = (*job.job->loaders)[static_cast<std::size_t>(rank)];
        facts.add(loader.batch).add(std::int64_t{loader.workers}).add(std::int64_t{loader.ahead});
      }
      graph_.ranks.push_back(rank_facts_.of(facts.text()));
      graph_.first_group.push_back(graph_.rank_groups.size());
      std::size_t sequence = 0;
      for (const std::int32_t group : groups.of(rank)) {
        if (group >= 0) {
          graph_.rank_groups.push_back(first_group + group);
          const auto g = static_cast<std::size_t>(group);
          sizes[g].insert(role_sizes[role][sequence].begin(), role_sizes[role][sequence].end());
          if (groups[group].group < 0)
            sequences[g] += (1 + static_cast<std::int64_t>(sequence)) *
                            (groups[group].ranks[0] == rank ? std::int64_t{1} << 32 : 1);
        }
        ++sequence;
      }
    }
    for (std::int32_t group = 0; group < groups.size(); ++group) {
      check_interrupt();
      const auto g = static_cast<std::size_t>(group);
      add_group(id, job, groups[group], sizes[g], sequences[g], first_rank);
    }
  }

  void add_group(JobId id, const JobCode& job, const program::ProcessGroup& group, const std::set<std::int32_t>& sizes,
                 std::int64_t sequences, std::int32_t first_rank) {
    graph_.first_member.push_back(graph_.members.size());
    graph_.first_activity.push_back(graph_.activities.size());
    graph_.channel.push_back(group.group < 0 ? 1 : 0);
    std::set<int> nodes;
    for (const int member : group.ranks) {
      graph_.members.push_back(first_rank + member);
      nodes.insert(cluster_.node_of(member));
    }
    Facts facts;
    facts.add(static_cast<std::int64_t>(id.value())).add(std::int64_t{group.group}).add(std::int64_t{group.channel});
    facts.add(static_cast<std::int64_t>(group.axis)).add(sequences).add(static_cast<std::int64_t>(group.ranks.size()));
    if (group.group < 0)
      facts.add(std::int64_t{group.ranks[0] == group.ranks[1]});
    else
      facts.add(static_cast<std::int64_t>(nodes.size()));  // which a result says of collectives
    for (const std::int32_t size : sizes) {
      facts.add(std::int64_t{size});
      const collective::TransferPlan plan = plan_of(job, group, size);
      graph_.plans.push_back({static_cast<std::int32_t>(graph_.groups.size()), size, graph_.activities.size(),
                              static_cast<std::int32_t>(plan.activities.size())});
      add_plan(plan, size, facts);
    }
    graph_.groups.push_back(group_facts_.of(facts.text()));
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
    Facts facts;
    facts.add(std::int64_t{size}).add(std::int64_t{message}).add(activity.min_duration);
    graph_.activities.push_back(activity_facts_.of(facts.text()));
    graph_.first_use.push_back(graph_.uses.size());
    for (const collective::Use& use : activity.uses)
      if (use.bytes > 0) graph_.uses.push_back(use);
  }

  const cluster::Cluster& cluster_;
  Graph graph_;
  FactColours rank_facts_, group_facts_, activity_facts_;
};

// ---- refinement ----

std::uint64_t mixed(std::uint64_t a, std::int64_t b) {
  return mix_key(a, static_cast<std::uint64_t>(b));
}

// New colours by hashes, numbered by first appearance; returns how many.
std::size_t number(const std::vector<std::uint64_t>& hashes, Colours& colours) {
  std::unordered_map<std::uint64_t, std::int32_t> numbers;
  for (std::size_t i = 0; i < hashes.size(); ++i)
    colours[i] = numbers.try_emplace(hashes[i], static_cast<std::int32_t>(numbers.size())).first->second;
  return numbers.size();
}

// One round: every colour with those of its neighbours, whose order means nothing unless it is said to in the header.
std::size_t split(Graph& graph) {
  const auto at = [](const Colours& colours, std::int32_t index) { return colours[static_cast<std::size_t>(index)]; };
  std::vector<std::uint64_t> of_group(graph.groups.size()), of_resource(graph.resources.size());
  for (std::size_t r = 0; r < of_resource.size(); ++r) of_resource[r] = mixed(0, graph.resources[r]);
  std::vector<std::uint64_t> hashes(graph.activities.size());
  for (std::size_t g = 0; g < of_group.size(); ++g)
    for (std::size_t a = graph.first_activity[g]; a < graph.first_activity[g + 1]; ++a) {
      std::uint64_t sum = mixed(static_cast<std::uint64_t>(graph.activities[a]), graph.groups[g]);
      for (std::size_t u = graph.first_use[a]; u < graph.first_use[a + 1]; ++u)
        sum += mixed(static_cast<std::uint64_t>(graph.uses[u].bytes), at(graph.resources, graph.uses[u].resource));
      hashes[a] = sum;
    }
  std::size_t colours = number(hashes, graph.activities);
  for (std::size_t g = 0; g < of_group.size(); ++g) {
    std::uint64_t sum = 0;
    for (std::size_t m = graph.first_member[g]; m < graph.first_member[g + 1]; ++m) {
      const std::uint64_t place = graph.channel[g] != 0 ? m - graph.first_member[g] + 1 : 0;
      sum += mixed(place, at(graph.ranks, graph.members[m]));
    }
    for (std::size_t a = graph.first_activity[g]; a < graph.first_activity[g + 1]; ++a) {
      sum += mixed(3, graph.activities[a]);
      for (std::size_t u = graph.first_use[a]; u < graph.first_use[a + 1]; ++u)
        of_resource[static_cast<std::size_t>(graph.uses[u].resource)] +=
            mixed(static_cast<std::uint64_t>(graph.uses[u].bytes), graph.activities[a]);
    }
    of_group[g] = mixed(sum, graph.groups[g]);
  }
  colours += number(of_group, graph.groups) + number(of_resource, graph.resources);
  hashes.assign(graph.ranks.size(), 0);
  for (std::size_t r = 0; r < hashes.size(); ++r) {
    auto hash = static_cast<std::uint64_t>(graph.ranks[r]);
    for (std::size_t s = graph.first_group[r]; s < graph.first_group[r + 1]; ++s)
      hash = mixed(hash, at(graph.groups, graph.rank_groups[s]));
    hashes[r] = hash;
  }
  return colours + number(hashes, graph.ranks);
}

void refine(Graph& graph) {
  for (std::size_t before = 0;;) {
    check_interrupt();
    const std::size_t colours = split(graph);
    if (colours == before) return;
    before = colours;
  }
}

// ---- the exact comparison ----

// The first of each colour.
std::vector<std::int32_t> firsts_of(const Colours& colours) {
  std::vector<std::int32_t> first;
  for (std::size_t i = 0; i < colours.size(); ++i)
    if (static_cast<std::size_t>(colours[i]) == first.size()) first.push_back(static_cast<std::int32_t>(i));
  return first;
}

// Whether signature(i), in any order, is that of the first of i's colour, for all.
template <class Item, class Signature>
bool same_in_classes(const Colours& colours, const Signature& signature) {
  struct OfFirst {
    std::vector<Item> items, sorted;
  };
  std::vector<OfFirst> of_first;
  std::vector<Item> own;
  for (std::size_t i = 0; i < colours.size(); ++i) {
    own.clear();
    signature(i, own);
    if (static_cast<std::size_t>(colours[i]) == of_first.size()) {
      of_first.push_back({own, {}});
      continue;
    }
    OfFirst& first = of_first[static_cast<std::size_t>(colours[i])];
    if (own == first.items) continue;  // even in order, which is usual
    if (first.sorted.empty()) {
      first.sorted = first.items;
      std::sort(first.sorted.begin(), first.sorted.end());
    }
    std::sort(own.begin(), own.end());
    if (own != first.sorted) return false;
  }
  return true;
}

// `facts`: the graph's colours before refinement.
bool equitable(const Graph& graph, const GraphColours& facts) {
  using Item = std::tuple<std::int32_t, std::int64_t, std::int64_t>;  // what it is of, and twice what it says
  enum Of : std::int32_t { facts_of, member, activity, use };
  const auto at = [](const Colours& colours, std::int32_t index) { return colours[static_cast<std::size_t>(index)]; };
  std::vector<std::vector<Item>> resources(graph.resources.size());
  std::vector<std::int32_t> group_of(graph.activities.size());
  for (std::size_t g = 0; g < graph.groups.size(); ++g)
    for (std::size_t a = graph.first_activity[g]; a < graph.first_activity[g + 1]; ++a) {
      group_of[a] = graph.groups[g];
      for (std::size_t u = graph.first_use[a]; u < graph.first_use[a + 1]; ++u)
        resources[static_cast<std::size_t>(graph.uses[u].resource)].emplace_back(use, graph.activities[a],
                                                                                 graph.uses[u].bytes);
    }
  const auto of_resource = [&](std::size_t r, std::vector<Item>& items) {
    items.swap(resources[r]);
    items.emplace_back(facts_of, facts.resources[r], 0);
  };
  const auto of_activity = [&](std::size_t a, std::vector<Item>& items) {
    items.emplace_back(facts_of, facts.activities[a], group_of[a]);
    for (std::size_t u = graph.first_use[a]; u < graph.first_use[a + 1]; ++u)
      items.emplace_back(use, graph.uses[u].bytes, at(graph.resources, graph.uses[u].resource));
  };
  const auto of_group = [&](std::size_t g, std::vector<Item>& items) {
    items.emplace_back(facts_of, facts.groups[g], 0);
    for (std::size_t m = graph.first_member[g]; m < graph.first_member[g + 1]; ++m)
      items.emplace_back(member, graph.channel[g] != 0 ? static_cast<std::int64_t>(m - graph.first_member[g]) : 0,
                         at(graph.ranks, graph.members[m]));
    for (std::size_t a = graph.first_activity[g]; a < graph.first_activity[g + 1]; ++a)
      items.emplace_back(activity, graph.activities[a], 0);
  };
  const auto of_rank = [&](std::size_t r, std::vector<Item>& items) {
    items.emplace_back(facts_of, facts.ranks[r], 0);
    for (std::size_t s = graph.first_group[r]; s < graph.first_group[r + 1]; ++s)
      items.emplace_back(member, static_cast<std::int64_t>(s - graph.first_group[r]),
                         at(graph.groups, graph.rank_groups[s]));
  };
  return same_in_classes<Item>(graph.resources, of_resource) && same_in_classes<Item>(graph.activities, of_activity) &&
         same_in_classes<Item>(graph.groups, of_group) && same_in_classes<Item>(graph.ranks, of_rank);
}

// ---- classes ----

Folding::Classes each_by_itself(std::size_t count) {
  Folding::Classes classes;
  classes.of.resize(count);
  std::iota(classes.of.begin(), classes.of.end(), 0);
  classes.first = classes.of;
  classes.alike.assign(count, 1);
  return classes;
}

// Of colours that appear in the order of their numbers, from the first in [from, to) on.
Folding::Classes classes_of(const Colours& colours, std::size_t from, std::size_t to) {
  Folding::Classes classes;
  std::int32_t base = 0;
  for (std::size_t i = from; i < to; ++i) {
    if (i == from) base = colours[i];
    const std::int32_t own = colours[i] - base;
    if (static_cast<std::size_t>(own) == classes.first.size()) {
      classes.first.push_back(static_cast<std::int32_t>(i - from));
      classes.alike.push_back(0);
    }
    ++classes.alike[static_cast<std::size_t>(own)];
    classes.of.push_back(own);
  }
  return classes;
}

// Of plans of the groups that stand for others: how often each activity counts. Of those of one plan that are alike the
// first counts for all.
void count_activities(const Graph& graph, IdVector<JobId, Folding::JobClasses>& jobs) {
  std::vector<std::int64_t> alike;
  for (const std::int32_t colour : graph.activities) {
    if (static_cast<std::size_t>(colour) == alike.size()) alike.push_back(0);
    ++alike[static_cast<std::size_t>(colour)];
  }
  JobId job{0};
  std::int32_t first_group = 0;  // of the job
  for (const Graph::Plan& plan : graph.plans) {
    while (plan.group - first_group >= static_cast<std::int32_t>(jobs[job].groups.of.size())) {
      first_group += static_cast<std::int32_t>(jobs[job].groups.of.size());
      ++job;
    }
    const Folding::Classes& groups = jobs[job].groups;
    const auto own = static_cast<std::size_t>(plan.group - first_group);
    const std::int32_t group = groups.of[own];
    if (groups.first[static_cast<std::size_t>(group)] != static_cast<std::int32_t>(own)) continue;
    std::vector<std::int64_t>& counts = jobs[job].activities[{group, plan.size}];
    std::set<std::int32_t> seen;
    for (std::int32_t a = 0; a < plan.activities; ++a) {
      const std::int32_t colour = graph.activities[plan.first_activity + static_cast<std::size_t>(a)];
      counts.push_back(seen.insert(colour).second ? alike[static_cast<std::size_t>(colour)] : 0);
    }
  }
}

bool may_fold(const IdVector<JobId, JobCode>& codes, const cluster::Cluster& cluster, const Options& options) {
  return options.fold && cluster.host_sharing().cores == 0 &&
         std::all_of(codes.begin(), codes.end(), [](const JobCode& code) {
           const Job& job = *code.job;
           const plan::Noise& noise = job.noise;
           return !job.collectives.buffered_messages() && noise.kernels == 0 && noise.transfers == 0 &&
                  !noise.rank_step.any() && !(noise.machine && job.costs.device().jitter.any());
         });
}

}  // namespace

Folding::Folding(const IdVector<JobId, JobCode>& codes, const cluster::Cluster& cluster, const Options& options,
                 const LinkFaults& faults) {
  keep_apart(codes);
  if (may_fold(codes, cluster, options)) {
    Graph graph = GraphBuilder(codes, cluster, options, faults).take();
    const GraphColours facts = graph;
    refine(graph);
    std::size_t rank = 0, group = 0, simulated = 0;
    IdVector<JobId, JobClasses> jobs(codes.size());
    for (const JobId job : codes.ids()) {
      const std::size_t ranks = jobs_[job].ranks.of.size(), groups = jobs_[job].groups.of.size();
      jobs[job].ranks = classes_of(graph.ranks, rank, rank + ranks);
      jobs[job].groups = classes_of(graph.groups, group, group + groups);
      rank += ranks, group += groups;
      simulated += jobs[job].ranks.first.size();
    }
    folded_ = simulated < rank && equitable(graph, facts);
    if (folded_) {
      jobs_ = std::move(jobs);
      resources_.of = graph.resources;
      resources_.first = firsts_of(graph.resources);
      resources_.alike.assign(resources_.first.size(), 0);
      for (const std::int32_t colour : graph.resources) ++resources_.alike[static_cast<std::size_t>(colour)];
      count_activities(graph, jobs_);
    }
  }
  RankId next{0};
  for (JobClasses& job : jobs_) {
    job.first_rank = next;
    next = job.simulated().last;
  }
  count_posts(codes);
}

void Folding::keep_apart(const IdVector<JobId, JobCode>& codes) {
  for (const JobCode& code : codes)
    jobs_.push_back({each_by_itself(static_cast<std::size_t>(code.link.groups.ranks())),
                     each_by_itself(static_cast<std::size_t>(code.link.groups.size())),
                     {},
                     {},
                     {}});
}

void Folding::count_posts(const IdVector<JobId, JobCode>& codes) {
  for (const JobId id : codes.ids()) {
    JobClasses& job = jobs_[id];
    for (const std::int32_t group : job.groups.first) {
      const program::ProcessGroup& what = codes[id].link.groups[group];
      if (what.group < 0 || !folded_) {
        job.posts.push_back(static_cast<std::int32_t>(what.ranks.size()));
        continue;
      }
      std::set<std::int32_t> classes;
      for (const int member : what.ranks) classes.insert(job.ranks.of[static_cast<std::size_t>(member)]);
      job.posts.push_back(static_cast<std::int32_t>(classes.size()));
    }
  }
}

}  // namespace rehearse::engine
