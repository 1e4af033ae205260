// Transfers in flight: matched by process group (sim/program/link/process_groups.h) and number of the call. Plans of
// the collective model are asked for once a (process group, kind, bytes) and kept.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/collective/collective.h"
#include "sim/engine/code.h"
#include "sim/engine/engine.h"
#include "sim/engine/interference.h"
#include "sim/engine/network.h"
#include "sim/engine/step_runs.h"
#include "sim/program/link/process_groups.h"

namespace rehearse::engine {

// A plan as the simulator uses it.
struct PlanCode {
  std::int64_t startup = 0;    // ps
  Range activities;            // Matching::activities: ids of Network::define
  std::int32_t steps = -1;     // StepRuns::define, instead of startup and activities
  std::int64_t core_time = 0;  // ps of `threads` cores each, instead of activities
  std::int64_t copy_out = 0, copy_in = 0;
  int threads = 0;
  int sms = 0;
  HoldId sms_hold = 0, bandwidth_hold = 0;
  collective::Coverage coverage = collective::Coverage::spec;
  double low = 1, high = 1;
  std::int32_t job = 0;
  std::int64_t busy = 0;  // ps over all participants
  // Of those that ended in the step reported: how many, and ps from when all had posted.
  std::int64_t ended = 0, spent = 0;
};

// A transfer from the first post to its end.
struct Transfer {
  std::int32_t plan = -1;
  std::int32_t group = -1;      // Matching::group
  std::int32_t next_open = -1;  // of its process group
  std::int64_t call = 0;
  std::int32_t posted = 0, expected = 0;
  std::int32_t size = -1;               // as the first to post saw it; the others must agree
  std::int32_t first = -1;              // collective: lanes that posted, linked by Lane::next_participant
  std::int32_t sides[2] = {-1, -1};     // message: sender's and receiver's lane
  std::int64_t started = 0;             // everybody had posted
  std::int64_t moving_from = 0;         // its start-up was over
  std::int64_t last_post = 0;           // collective
  const RoleCode* last_role = nullptr;  // collective: of who posted last; nullptr: of several roles
  std::int32_t moving = 0;              // activities in flight
  // Buffered message: it was sent; it is there; its receiver has stopped for it.
  bool sent = false, arrived = false, awaited = false;
  // Moved by cores of a shared host: as Lane::work.
  Int128 work = 0;
  std::int64_t anchor = 0, share = 0;
  std::uint32_t version = 0;  // of its end
};

// A job laid out for execution. Ranks of jobs lie one after the other: its rank r is rank first_rank + r of all.
struct JobCode {
  const Job* job = nullptr;
  program::Link link;
  ProgramCode code;
  std::int32_t first_rank = 0;
};

struct GroupState {
  std::int32_t job = 0;
  const program::ProcessGroup* group = nullptr;  // its ranks are the job's
  std::vector<std::int32_t> plans;               // by size class, -1 unknown
  std::int32_t open = -1;                        // transfers that wait for posts

  bool channel() const { return group->group < 0; }
};

class Matching {
 public:
  Matching(const std::vector<JobCode>& jobs, const cluster::Cluster& cluster, InterferenceStates& states,
           Network& network, StepRuns& step_runs);

  // The process group of a sequence of calls of the rank's role.
  std::int32_t group_of(int rank, std::int32_t sequence) const {
    return group_of_[static_cast<std::size_t>(first_sequence_[static_cast<std::size_t>(rank)] + sequence)];
  }
  const GroupState& group(std::int32_t id) const { return groups_[static_cast<std::size_t>(id)]; }

  // The open transfer of `call`, made if this is the first post.
  std::int32_t find_or_open(std::int32_t group, std::int64_t call, std::int32_t size);
  // Everybody has posted: takes it off the list of its process group.
  void close(std::int32_t transfer);
  // It has ended.
  void release(std::int32_t transfer);

  Transfer& transfer(std::int32_t id) { return transfers_[static_cast<std::size_t>(id)]; }
  const Transfer& transfer(std::int32_t id) const { return transfers_[static_cast<std::size_t>(id)]; }
  PlanCode& plan(std::int32_t id) { return plans_[static_cast<std::size_t>(id)]; }
  const PlanCode& plan(std::int32_t id) const { return plans_[static_cast<std::size_t>(id)]; }
  const std::vector<PlanCode>& plans() const { return plans_; }
  // Of a plan: what it is of; without a kind: of a message, or of a collective of one member.
  const result::CollectiveUse& described(std::size_t plan) const { return described_[plan]; }
  std::int32_t activity(std::int32_t index) const { return activities_[static_cast<std::size_t>(index)]; }
  // Whose an activity of the network is, "data all_reduce", of a job beside "NAME: data all_reduce": an index into
  // users().
  std::int32_t user(std::size_t defined) const { return user_[defined]; }
  const std::vector<std::string>& users() const { return users_; }

 private:
  void add_job(std::int32_t job);
  std::int32_t make_plan(GroupState& group, std::int32_t size);
  collective::TransferPlan ask_for_plan(const GroupState& group, std::int32_t size) const;
  std::int32_t user_of(const GroupState& group, std::int32_t size);
  result::CollectiveUse describe(const GroupState& group, std::int32_t size,
                                 const collective::TransferPlan& plan) const;

  const std::vector<JobCode>& jobs_;
  const cluster::Cluster& cluster_;
  InterferenceStates& states_;
  Network& network_;
  StepRuns& step_runs_;
  std::vector<GroupState> groups_;                       // of all jobs
  std::vector<std::int32_t> first_sequence_, group_of_;  // by rank, in group_of_
  std::vector<Transfer> transfers_;
  std::vector<std::int32_t> free_;
  std::vector<PlanCode> plans_;
  std::vector<result::CollectiveUse> described_;  // by plan
  std::vector<std::int32_t> activities_;
  std::vector<std::int32_t> user_;  // by activity of the network
  std::vector<std::string> users_;
};

}  // namespace rehearse::engine
