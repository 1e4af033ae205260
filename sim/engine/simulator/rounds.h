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
#include "sim/engine/simulator/shown_state.h"
#include "sim/engine/simulator/staged_sends.h"
#include "sim/engine/simulator/streams.h"
#include "sim/engine/simulator/transfers.h"
#include "sim/program/link/repetition.h"

namespace rehearse::engine {

class Rounds {
 public:
  // All must outlive it. `wanted`: whether any may be left out.
  Rounds(bool wanted, Clock& clock, const IdVector<JobId, JobCode>& codes, const Ranks& ranks, Jobs& jobs,
         Accounts& accounts, OpRecords& records, Streams& streams, Hosts& hosts, Kernels& kernels, Devices& devices,
         Transfers& transfers, StagedSends& staged_sends, Matching& matching, Network& network);

  // At the end of an instant, the network settled: whether a round has begun, by the first rank's compute stream.
  bool begun() {
    if (!watched_.exists()) return false;
    const Place& place = streams_.place(watched_);
    if (place.slot == seen_ && place.step == step_) return false;
    if (place.step != step_) forget();
    seen_ = place.slot, step_ = place.step;
    return repeats_.rounds_before(place.slot.value()) >= 0;
  }
  // Then: may leave out rounds.
  void look();

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

  void forget();
  Beginning read();
  template <class Visitor>
  void show(Visitor& visitor);
  std::int64_t periods(const Beginning& before, const Beginning& now) const;
  std::optional<Passed> passed(RankId rank, const Beginning& before, const Beginning& now) const;
  std::int64_t periods_of_code(RankId rank, const Passed& passed, const Beginning& before, const Beginning& now) const;
  std::int32_t alike_until(const Waited& waited, RankId rank, const Passed& passed, std::int32_t until,
                           const Beginning& before, const Beginning& now) const;
  std::int32_t step_of(RankId rank) const;
  std::int64_t periods_of_waits(RankId rank, const Beginning& before, const Beginning& now) const;
  std::int64_t periods_of_host(RankId rank, const Passed& passed, const Beginning& before, const Beginning& now) const;
  void close(const Beginning& now);

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
  StreamId watched_;  // none: nothing is left out
  program::Repetition repeats_;
  SlotId seen_;
  std::int32_t step_ = 0;
  std::deque<Beginning> past_;  // of the step, the latest first
  int looked_ = 0;              // states read in the step
  std::optional<Open> open_;
  std::map<const RoleCode*, std::vector<Waited>> waited_;
};

}  // namespace rehearse::engine
