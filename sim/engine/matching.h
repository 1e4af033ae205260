// Transfers in flight: matched by process group (sim/program/link/process_groups.h) and number of the call. Plans of
// the collective model are asked for once a (process group, kind, bytes) and kept. Of process groups that are alike
// there is one here (folding.h), and what is counted of its transfers counts for all.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/collective/collective.h"
#include "sim/engine/engine.h"
#include "sim/engine/folding/folding.h"
#include "sim/engine/interference.h"
#include "sim/engine/job_code.h"
#include "sim/engine/network.h"
#include "sim/engine/step_runs.h"
#include "sim/program/link/process_groups.h"

namespace rehearse::engine {

// A plan as the simulator uses it.
struct PlanCode {
  Time startup;
  IdRange<ActivityId> activities;
  StepsId steps;   // instead of startup and activities
  Time core_time;  // of `threads` cores each, instead of activities
  Time copy_out, copy_in;
  int threads = 0;
  int sms = 0;
  HoldId sms_hold = kHoldsNothing, bandwidth_hold = kHoldsNothing;
  collective::Coverage coverage = collective::Coverage::spec;
  double low = 1, high = 1;
  JobId job{0};
  // Of one transfer of all process groups that are alike.
  std::int64_t groups = 1, participants = 0;
  Int128 memory_bytes = 0;  // of devices, all participants' together
  Int128 port_bytes = 0;    // that leave or enter devices
  // Of all transfers: ps over all participants. Of those that ended in the step reported: how many, counted once for
  // all groups, and how long from when all had posted.
  Int128 busy_ps = 0;
  std::int64_t ended = 0;
  Time spent;
};

// A transfer from the first post to its end: what it is, by Matching, and how far it is, by Transfers.
struct Transfer {
  PlanId plan;
  ProcessGroupId group;
  TransferId next_open;  // of its process group
  std::int32_t posted = 0, expected = 0;
  std::int64_t call = 0;
  std::int32_t size = -1;               // as the first to post saw it; the others must agree
  std::int32_t moving = 0;              // activities in flight
  bool from_copy = false;               // message: its sender has gone on (staged_sends.h)
  StreamId first;                       // collective: the last to post, the others linked from it
  StreamId sides[2];                    // message: of sender and receiver
  Time started;                         // everybody had posted
  Time moving_from;                     // its start-up was over
  Time last_post;                       // collective
  const RoleCode* last_role = nullptr;  // collective: of who posted last; nullptr: of several roles
};

struct GroupState {
  JobId job{0};
  TransferId open;                               // transfers that wait for posts
  const program::ProcessGroup* group = nullptr;  // its ranks are the job's
  std::int32_t posts = 0;                        // that begin a transfer
  std::int64_t alike = 1;                        // process groups, this among them
  const Folding::JobClasses* classes = nullptr;  // of its job
  std::int32_t number = 0;                       // among them
  std::size_t first_plan = 0;                    // in Matching::plan_of_, one a size
  PartId part = {};                              // that all its ranks are of; none: no one

  bool channel() const { return group->group < 0; }
};

class Matching {
 public:
  Matching(const IdVector<JobId, JobCode>& jobs, const Folding& folding, const cluster::Cluster& cluster,
           InterferenceStates& states, Network& network, StepRuns& step_runs);

  // The process group of a sequence of calls of the rank's role.
  ProcessGroupId group_of(RankId rank, std::int32_t sequence) const {
    return group_of_[static_cast<std::size_t>(first_sequence_[rank] + sequence)];
  }
  const GroupState& group(ProcessGroupId id) const { return groups_[id]; }
  std::size_t groups() const { return groups_.size(); }
  // Before anything is posted: the process group is one part's.
  void set_part(ProcessGroupId id, PartId part) { groups_[id].part = part; }

  // The open transfer of `call`, made if this is the first post.
  TransferId find_or_open(ProcessGroupId group, std::int64_t call, std::int32_t size);
  // Everybody has posted: takes it off the list of its process group.
  void close(TransferId transfer);
  // It has ended.
  void release(TransferId transfer) { free_.push_back(transfer); }

  // Those that have been opened and have not ended, by process group and call.
  std::vector<TransferId> live() const;
  template <class Visitor>
  void show(TransferId id, Visitor& visitor) {
    Transfer& transfer = transfers_[id];
    visitor.count(transfer.call);
    visitor.same(transfer.plan);
    visitor.same(transfer.group);
    visitor.same(transfer.posted);
    visitor.same(transfer.moving);
    visitor.same(transfer.from_copy);
    visitor.same(transfer.last_role);
    if (!groups_[transfer.group].channel()) visitor.time(transfer.last_post);
    if (transfer.posted == transfer.expected) visitor.recent(transfer.started);
    if (transfer.moving > 0) visitor.recent(transfer.moving_from);
  }

  Transfer& transfer(TransferId id) { return transfers_[id]; }
  const Transfer& transfer(TransferId id) const { return transfers_[id]; }
  PlanCode& plan(PlanId id) { return plans_[id]; }
  const PlanCode& plan(PlanId id) const { return plans_[id]; }
  const IdVector<PlanId, PlanCode>& plans() const { return plans_; }
  // Of a plan: what it is of; without a kind: of a message, or of a collective of one member.
  const result::CollectiveUse& described(PlanId plan) const { return described_[plan]; }
  // Whose an activity of the network is, "data all_reduce", of a job beside "NAME: data all_reduce": an index into
  // users().
  std::int32_t user(ActivityId activity) const { return user_[activity]; }
  const std::vector<std::string>& users() const { return users_; }

 private:
  void add_job(JobId job, const Folding::JobClasses& classes);
  TransferId slot_for_one_more();
  PlanId make_plan(GroupState& group, std::int32_t size);
  Int128 port_bytes(const collective::TransferPlan& plan) const;
  std::int32_t user_of(const GroupState& group, std::int32_t size);
  result::CollectiveUse describe(const GroupState& group, std::int32_t size,
                                 const collective::TransferPlan& plan) const;

  const IdVector<JobId, JobCode>& jobs_;
  const cluster::Cluster& cluster_;
  InterferenceStates& states_;
  Network& network_;
  StepRuns& step_runs_;
  IdVector<ProcessGroupId, GroupState> groups_;    // of all jobs
  IdVector<RankId, std::int32_t> first_sequence_;  // in group_of_
  std::vector<ProcessGroupId> group_of_;
  IdVector<TransferId, Transfer> transfers_;
  std::vector<TransferId> free_;
  std::vector<PlanId> plan_of_;  // of each process group by size; none: not asked for yet
  IdVector<PlanId, PlanCode> plans_;
  IdVector<PlanId, result::CollectiveUse> described_;
  IdVector<ActivityId, std::int32_t> user_;
  std::vector<std::string> users_;
};

}  // namespace rehearse::engine
