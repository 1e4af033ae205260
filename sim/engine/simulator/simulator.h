// The simulation of one program, or of several jobs' programs. The simulator owns the parts and conducts them; what
// each part knows is its own:
//
//   clock        what time it is, and the events to come
//   streams      where every stream of every rank is in its program, what it does, and what holds it back
//   hosts        launches ops; waits at HostSyncs
//   kernels      kernels in progress; devices: what transfers hold of the device beside them
//   loaders      when the micro-batches are there that streams copy
//   shared_cores what runs on the cores of a host that ranks share
//   transfers    what is posted and in flight, matched by matching.h; mailboxes: messages that are buffered;
//                staged_sends: sends from copies; network.h and step_runs.h move the bytes
//   jobs         steps of each job, and how long jobs go on
//   rounds       leaves out rounds of micro-batches that would go as those before them
//   accounts     where the time of the step reported goes; op_records: the ops of ranks that are recorded
//
// An instant. All events of the time `now` are taken from the queue; each may complete segments, which record events,
// which wake streams, which post transfers or become ready to run kernels. When nothing is left of this instant,
// kernels are re-costed on ranks whose interference changed and ready ones begin, with the state all of the instant's
// posts and ends have led to. That may bring up events of the same instant (kernels that take no time), so the round
// repeats; when it is quiet, the network solves its shares, once. So nothing depends on the order in which the events
// of an instant come.
//
// Several jobs share the network, the clock and nothing else. After its steps the streams of the first, if it is
// reported, stop as they would alone; what it reports is taken at the end of that instant, and it goes on from there
// (settle_jobs). The others never stop. It is over at the end of the first instant at which all have done their
// repeats.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/folding/folding.h"
#include "sim/engine/job_code.h"
#include "sim/engine/matching.h"
#include "sim/engine/network.h"
#include "sim/engine/noise.h"
#include "sim/engine/simulator/accounts.h"
#include "sim/engine/simulator/clock.h"
#include "sim/engine/simulator/devices.h"
#include "sim/engine/simulator/hosts.h"
#include "sim/engine/simulator/jobs.h"
#include "sim/engine/simulator/kernels.h"
#include "sim/engine/simulator/loaders.h"
#include "sim/engine/simulator/mailboxes.h"
#include "sim/engine/simulator/op_records.h"
#include "sim/engine/simulator/ranks.h"
#include "sim/engine/simulator/rounds.h"
#include "sim/engine/simulator/shared_cores.h"
#include "sim/engine/simulator/staged_sends.h"
#include "sim/engine/simulator/streams.h"
#include "sim/engine/simulator/transfers.h"
#include "sim/engine/step_runs.h"

namespace rehearse::engine {

// A folded simulation is stuck: one of every rank says who waits for whom.
struct FoldedDeadlock {};

class Simulator {
 public:
  // Of jobs the first is reported, unless options.steps is 0. All must outlive it.
  Simulator(const std::vector<Job>& jobs, const cluster::Cluster& cluster, const Options& options);
  // Throws Deadlock, or FoldedDeadlock.
  Outcome run();

 private:
  // simulator.cpp
  void begin();
  void start_job(JobId job);
  void settle_instant();
  void dispatch(const Event& event);
  void advance(StreamId id);
  void change_links();
  bool settle_jobs();
  bool stuck() const;
  void report_progress();

  // outcome.cpp
  Outcome outcome();
  void account_tails();
  StreamId last_beside(RankId rank) const;
  std::map<int, Time> last_ends() const;

  const cluster::Cluster& cluster_;
  const Options& options_;
  const std::int32_t steps_;  // of the reported job, the first; 0: none is
  const bool goes_on_;        // jobs do, until all have done their repeats
  LinkFaults faults_;

  const IdVector<JobId, JobCode> codes_;
  const Folding folding_;
  const Ranks ranks_;
  Clock clock_;
  Devices devices_;
  Network network_;
  StepRuns step_runs_;
  Matching matching_;
  Accounts accounts_;
  OpRecords records_;
  Jobs jobs_;
  Streams streams_;
  Hosts hosts_;
  SharedCores cores_;
  Kernels kernels_;
  Loaders loaders_;
  Transfers transfers_;
  Mailboxes mailboxes_;
  StagedSends staged_sends_;
  Rounds rounds_;

  std::int64_t next_report_;  // of progress, after so many events
  bool taken_ = false;        // what the reported job reports
  Outcome outcome_;
};

}  // namespace rehearse::engine
