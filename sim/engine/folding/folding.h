// Which ranks are alike, so that one of them is simulated for all: with it the process groups whose transfers go alike,
// and the resources that carry alike loads. A simulation of the representatives, each counted as often as there are
// ranks, groups or resources like it, gives what a simulation of every rank does, to the last bit.
//
// Why. Take a partition of ranks, process groups and resources that is equitable: things of one class have the same
// facts (a rank its role, loader, documents and slowness; a group its kind, its members' number, and of every size it
// is called with what the plan says; an activity what it takes alone; a resource its kind, capacity and faults), and as
// many neighbours of each class, told apart by how they are neighbours:
//   - a rank and the group that its s-th sequence of calls is made on, for every s;
//   - a group and its members, of a channel told apart as sender and receiver;
//   - a group and the activities of its plan for a size, in any order (messages of steps: in theirs);
//   - an activity and a resource that it puts so many bytes on.
// Claim: at every instant all things of a class are in the same state. At the beginning they are. A rank changes its
// state by what its kernels, its host and its loader do, which its facts decide, and at the starts and ends of
// transfers on its groups. A transfer starts when the last member has posted: a maximum over classes of members, the
// same for all groups of the class. It ends as its activities do, whose rates are max-min fair shares of resources
// (max_min.h): these are unique, so a renaming of the things cannot change them, and averaging the shares over a class
// gives a solution again, which must be that one; in integers, because the solver's steps look at sums over the
// activities of a resource and at minima over resources alone, and these are the same all over a class. So no step of
// the simulation can tell things of a class apart. (Orbits of automorphisms are equitable, and not needed.)
//
// The quotient. A rank's post counts for its class; a transfer of a class of groups expects one post of each class
// among the members of one of them. An activity of a class of g activities that puts b bytes each on n of the c
// resources of a class puts them g n / c times on each of these.
//
// How. Colour refinement: classes by facts are split by the colours of neighbours until none splits any more, by
// hashes; then the partition is compared exactly, and if a collision of hashes has joined what differs, nothing is
// folded.
//
// What is drawn by rank or call makes everything differ and folds nothing: jitter of kernels and transfers,
// noise.rank_step, the machine's scatter. Ranks that share the cores of a host are not folded either. A rank that
// noise.slow_ranks makes slow, a link that is degraded, an uneven placement or hashed routes split what they must.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/ids.h"
#include "sim/engine/job_code.h"
#include "sim/engine/network.h"
#include "sim/engine/noise.h"

namespace rehearse::engine {

// Why nothing is folded, whatever is alike; "" where ranks that are alike are.
std::string why_not_folded(const IdVector<JobId, JobCode>& codes, const cluster::Cluster& cluster, bool fold);

class Folding {
 public:
  // Of one job. A class is numbered by its lowest member, which stands for it.
  struct Classes {
    std::vector<std::int32_t> of;     // by rank or process group of the job
    std::vector<std::int32_t> first;  // by class
    std::vector<std::int64_t> alike;  // by class: how many
  };
  struct JobClasses {
    Classes ranks, groups;
    std::vector<std::int32_t> posts;  // by class of groups: how many posts begin a transfer
    // Where anything is folded, by class of groups and size: how often each activity of the plan of the group that
    // stands for the class counts; 0: an earlier one, alike, counts for it.
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int64_t>> activities;
    RankId first_rank{0};  // of the simulation
    IdRange<RankId> simulated() const {
      return {first_rank, first_rank + static_cast<std::int32_t>(ranks.first.size())};
    }
  };

  // `fold`: whether anything may be.
  Folding(const IdVector<JobId, JobCode>& codes, const cluster::Cluster& cluster, const Options& options,
          const LinkFaults& faults);

  const JobClasses& job(JobId id) const { return jobs_[id]; }
  IdRange<RankId> ranks(JobId id) const { return jobs_[id].simulated(); }
  // Without any each resource is a class of its own.
  const ResourceClasses& resources() const { return resources_; }
  // Whether any rank stands for others.
  bool folded() const { return folded_; }

 private:
  void keep_apart(const IdVector<JobId, JobCode>& codes);
  void count_posts(const IdVector<JobId, JobCode>& codes);

  IdVector<JobId, JobClasses> jobs_;
  ResourceClasses resources_;
  bool folded_ = false;
};

}  // namespace rehearse::engine
