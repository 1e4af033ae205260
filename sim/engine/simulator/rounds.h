// Rounds of micro-batches that would go as those before them are left out: in 1F1B, once the pipeline is full, every
// round of a forward and a backward begins in the state in which the one before did, but for the clock and for the
// numbers of micro-batches, calls and ops.
//
// Why nothing changes. A simulation without noise is a function of its state. Take two ends of instants, A and B, whose
// states differ only so: things that stand still (streams that wait for something behind the repetition) are as they
// were, and of all others times have moved by what passed from A to B, positions by a number of slots of the same
// bodies, what waits refer to (RoleCode::needed) by as many segments as the streams they name have completed meanwhile,
// and calls by as many as there were. What happens after B is then what happened after A, later by that, for as long as
// slots and waits go on alike, which is read from the code before, and nothing that stands still is woken, which its
// wait says. So of n such periods one is simulated, in which all that is added up counts n times, and at its end every
// time and number is moved on by n - 1 periods. What a period adds to records and to the network's log is added again,
// later.
//
// Part by part. Replicas on unlike links take unlike times, and all together never come back to one state. But parts
// (round_parts.h) that share no transfer while rounds go on are simulations of their own as long as they share no port
// either that both load beyond what it carries. So each part's rounds are left out for themselves, and the others go on
// meanwhile: the part is away until what is to come of it has its time. Others may not meet it then: all its transfers
// are of its own ranks, and every port counts, from the beginning of the period that is simulated until the part is
// back, the most that the part has loaded it with (Network::watch). Where that and what others load it with is more
// than a port carries, the simulation is given up (PartsMeet) for one that leaves out rounds of all ranks together
// alone; where they meet before a part is away, that goes on from there, and so that it rarely comes later, parts are
// watched for a period first. No stream is in an
// earlier step then, and the part's own cannot end without it.
//
// Left alone: simulations of every rank (--fold off), which are the oracle; noise, loaders, faults that come and go,
// cores that ranks share, buffered messages, collectives message by message, and several jobs. Launches that come late
// at a host that never waits come less late from round to round: then nothing is left out.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "sim/engine/simulator/accounts.h"
#include "sim/engine/simulator/clock.h"
#include "sim/engine/simulator/hosts.h"
#include "sim/engine/simulator/jobs.h"
#include "sim/engine/simulator/kernels.h"
#include "sim/engine/simulator/op_records.h"
#include "sim/engine/simulator/ranks.h"
#include "sim/engine/simulator/round_parts.h"
#include "sim/engine/simulator/shown_state.h"
#include "sim/engine/simulator/staged_sends.h"
#include "sim/engine/simulator/streams.h"
#include "sim/engine/simulator/transfers.h"
#include "sim/program/link/repetition.h"

namespace rehearse::engine {

// Ranks whose rounds were left out may have met others meanwhile: Options::Rounds::unlike says what would have been.
struct PartsMeet {};

class Rounds {
 public:
  // All must outlive it.
  Rounds(Options::Rounds simulated, Clock& clock, const IdVector<JobId, JobCode>& codes, const Ranks& ranks, Jobs& jobs,
         Accounts& accounts, OpRecords& records, Streams& streams, Hosts& hosts, Kernels& kernels, Devices& devices,
         Transfers& transfers, StagedSends& staged_sends, Matching& matching, Network& network);

  // At the end of an instant, the network settled: may leave out rounds. Throws PartsMeet.
  void look() {
    if (parts_.empty()) return;
    if (network_.parts_meet() && of_.ranks.size() > 1) {
      leave_apart();
      part(false);
    }
    if (streams_.main_slots() == main_slots_ && clock_.now() < next_back_) return;
    main_slots_ = streams_.main_slots();
    look_at_parts();
  }

 private:
  // The beginning of a round.
  struct Beginning {
    std::int32_t round = 0;
    Time time;
    std::int32_t period = 0;             // rounds after which it is expected to come back; 0: never
    std::optional<StateReader> state;    // then
    std::vector<SlotId> slots;           // of streams, then of hosts
    std::vector<std::int64_t> progress;  // the same, in segments and HostSyncs
    std::vector<std::int64_t> late;      // of hosts: launches that have come late
  };
  // A period that is being simulated for `times` of them.
  struct Open {
    std::int64_t times = 0;
    Beginning begin;
    std::size_t records = 0, flown = 0;
  };
  struct Part {
    PartId id;
    const std::vector<RankId>* ranks = nullptr;
    StreamId watched;  // its rounds begin where this one's do: the first rank's compute stream
    program::Repetition repeats;
    SlotId seen;
    std::int32_t step = 0;
    std::deque<Beginning> past;  // of the step, the latest first
    int looked = 0;              // states read in the step
    std::optional<Open> open;
    std::int32_t alone_since = -1;  // Network watches it from this round on; -1: no
    Time back;                      // rounds are left out that would go on until then; Time(): none are
  };
  // What waits of a body look at (Wait).
  struct Waited {
    program::BodyId body;
    std::int32_t row, stream, before;  // row of RoleCode::progress, and segments on top of it
    std::int64_t per_step;
    friend auto operator<=>(const Waited&, const Waited&) = default;
  };
  // Of a rank from one beginning to another: slots passed, from which on, up to which.
  struct Passed {
    std::int32_t slots = 0, first = 0, last = 0;
  };

  void look_at_parts();
  void part(bool apart);
  void leave_apart();
  bool tried(Part& part, std::int32_t round, std::int32_t period);
  void look_at(Part& part);
  bool apart(const Part& part, const Beginning& before, const Beginning& now) const;
  bool own(const Part& part, RankId rank, const Segment& segment) const;
  Beginning read(Part& part);
  template <class Visitor>
  void show(const Part& part, Visitor& visitor);
  std::int64_t periods(const Part& part, const Beginning& before, const Beginning& now) const;
  std::optional<Passed> passed(RankId rank, const Beginning& before, const Beginning& now) const;
  std::int64_t periods_of_code(RankId rank, const Passed& passed, const Beginning& before, const Beginning& now) const;
  std::int32_t alike_until(const Waited& waited, RankId rank, const Passed& passed, std::int32_t until,
                           const Beginning& before, const Beginning& now) const;
  std::int32_t step_of(RankId rank) const;
  std::int64_t periods_of_waits(RankId rank, const Beginning& before, const Beginning& now) const;
  std::int64_t periods_of_host(RankId rank, const Passed& passed, const Beginning& before, const Beginning& now) const;
  void close(Part& part, const Beginning& now);
  bool concerns(const Part& part, const Event& event) const;
  void come_back(Part& part);

  std::size_t host(RankId rank) const { return streams_.size() + rank.index(); }
  // Of a stream of the rank, or -1: its host.
  std::size_t place(RankId rank, std::int32_t stream) const {
    return stream < 0 ? host(rank) : ranks_[rank].stream(stream).index();
  }
  static std::int64_t grown(std::size_t index, const Beginning& before, const Beginning& now) {
    return now.progress[index] - before.progress[index];
  }
  // HostSyncs without a record are no progress.
  static bool moved(std::size_t index, const Beginning& before, const Beginning& now) {
    return grown(index, before, now) != 0 || before.slots[index] != now.slots[index];
  }

  Clock& clock_;
  const Ranks& ranks_;
  Jobs& jobs_;
  Accounts& accounts_;
  OpRecords& records_;
  Streams& streams_;
  Hosts& hosts_;
  Kernels& kernels_;
  Devices& devices_;
  Transfers& transfers_;
  StagedSends& staged_sends_;
  Matching& matching_;
  Network& network_;
  RoundParts of_;
  std::vector<Part> parts_;       // none: nothing is left out
  std::int64_t main_slots_ = -1;  // Streams::main_slots when parts were looked at
  Time next_back_ = Time::max();  // when a part is back
  std::map<const RoleCode*, std::vector<Waited>> waited_;
};

}  // namespace rehearse::engine
