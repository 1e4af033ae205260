// See folding.h.
#include "sim/engine/folding/folding.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "sim/engine/folding/graph.h"
#include "sim/engine/folding/refinement.h"

namespace rehearse::engine {

namespace {

// The first of each colour.
std::vector<std::int32_t> firsts_of(const Colours& colours) {
  std::vector<std::int32_t> first;
  for (std::size_t i = 0; i < colours.size(); ++i)
    if (static_cast<std::size_t>(colours[i]) == first.size()) first.push_back(static_cast<std::int32_t>(i));
  return first;
}

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
void count_activities(const FoldGraph& graph, IdVector<JobId, Folding::JobClasses>& jobs) {
  std::vector<std::int64_t> alike;
  for (const std::int32_t colour : graph.activities) {
    if (static_cast<std::size_t>(colour) == alike.size()) alike.push_back(0);
    ++alike[static_cast<std::size_t>(colour)];
  }
  JobId job{0};
  std::int32_t first_group = 0;  // of the job
  for (const FoldGraph::Plan& plan : graph.plans) {
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

}  // namespace

std::string why_not_folded(const IdVector<JobId, JobCode>& codes, const cluster::Cluster& cluster, bool fold) {
  if (!fold) return "--fold off";
  if (cluster.host_sharing().cores > 0) return "ranks of a host share its cores";
  for (const JobCode& code : codes) {
    const plan::Noise& noise = code.job->noise;
    if (code.job->collectives.buffered_messages()) return "messages are buffered by their hosts";
    if (noise.kernels > 0) return "noise.kernels is drawn for each rank";
    if (noise.transfers > 0) return "noise.transfers is drawn for each transfer";
    if (noise.rank_step.any()) return "noise.rank_step is drawn for each rank";
    if (noise.machine && code.job->costs.device().jitter.any()) return "the machine's scatter is drawn for each rank";
  }
  return "";
}

Folding::Folding(const IdVector<JobId, JobCode>& codes, const cluster::Cluster& cluster, const Options& options,
                 const LinkFaults& faults) {
  keep_apart(codes);
  if (why_not_folded(codes, cluster, options.fold).empty()) {
    FoldGraph graph = fold_graph(codes, cluster, options, faults);
    const FoldColours facts = graph;
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
    jobs_.push_back({each_by_itself(static_cast<std::size_t>(code.link().groups.ranks())),
                     each_by_itself(static_cast<std::size_t>(code.link().groups.size())),
                     {},
                     {},
                     {}});
}

void Folding::count_posts(const IdVector<JobId, JobCode>& codes) {
  for (const JobId id : codes.ids()) {
    JobClasses& job = jobs_[id];
    for (const std::int32_t group : job.groups.first) {
      const program::ProcessGroup& what = codes[id].link().groups[group];
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
