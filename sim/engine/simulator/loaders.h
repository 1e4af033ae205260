// The loaders of training examples, one a rank that reads them: when each micro-batch is there. Micro-batch j, counted
// from the run's begin, is worker j mod `workers`'s. It begins with it once it has ended the one before, and
// micro-batch j - `ahead` has been taken, and then needs `batch`; the first ones begin batch / workers apart. So where
// loading limits, micro-batches come evenly, batch / workers after one another, and else there are up to `ahead` of
// them to take. Workers that begin together, as those of PyTorch's DataLoader do, give micro-batches in bursts of as
// many; the mean step is the same, which a simulation of two steps should show. The queue is empty at first: filling
// it is in the first step alone. Without workers the process loads when it asks.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/engine/ids.h"
#include "sim/engine/simulator/clock.h"
#include "sim/engine/simulator/op_records.h"
#include "sim/engine/simulator/streams.h"

namespace rehearse::engine {

class Kernels;

class Loaders {
 public:
  Loaders(const IdVector<JobId, JobCode>& codes, const Ranks& ranks, Clock& clock, Streams& streams, Kernels& kernels,
          OpRecords& records);

  // The stream has come to a segment that takes its rank's next micro-batch: it begins once that is there.
  void ask(StreamId id);
  // The event of a micro-batch that was asked for before it was there.
  void arrive(StreamId id);

 private:
  struct State {
    const Loader* loader = nullptr;
    std::int64_t asked = 0;           // micro-batches
    Time began, asked_at;             // the first was asked for; the last one
    std::vector<Time> taken, loaded;  // of the last `ahead` micro-batches; of each worker's last
  };
  Time next(State& state);
  void take(StreamId id, State& state);

  Clock& clock_;
  Streams& streams_;
  Kernels& kernels_;
  OpRecords& records_;
  IdVector<RankId, State> states_;
};

}  // namespace rehearse::engine
