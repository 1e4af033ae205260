// See loaders.h.
#include "sim/engine/simulator/loaders.h"

#include <algorithm>

#include "sim/base/check.h"
#include "sim/engine/simulator/kernels.h"
#include "sim/engine/wide.h"

namespace rehearse::engine {

Loaders::Loaders(const IdVector<JobId, JobCode>& codes, const Ranks& ranks, Clock& clock, Streams& streams,
                 Kernels& kernels, OpRecords& records)
    : clock_(clock), streams_(streams), kernels_(kernels), records_(records), states_(ranks.size()) {
  for (const JobCode& code : codes) {
    const std::vector<Loader>* loaders = code.job->loaders;
    if (loaders == nullptr) continue;
    REHEARSE_CHECK(static_cast<int>(loaders->size()) == code.job->grid.ranks(), "{} loaders for {} ranks",
                   loaders->size(), code.job->grid.ranks());
  }
  for (const RankId rank : ranks.ids()) {
    const std::vector<Loader>* loaders = codes[ranks[rank].code->job].job->loaders;
    if (loaders != nullptr) states_[rank].loader = &(*loaders)[static_cast<std::size_t>(ranks[rank].number)];
  }
}

// When the micro-batch asked for now is there.
Time Loaders::next(State& state) {
  const Loader& loader = *state.loader;
  const std::int64_t number = state.asked++;
  const Time now = state.asked_at = clock_.now();
  if (loader.workers == 0) return now + loader.batch;
  if (number == 0) state.began = now;
  if (number < loader.workers)
    state.loaded.push_back(
        state.began + Time::from_ps(static_cast<std::int64_t>(Int128{loader.batch.ps()} * number / loader.workers)));
  Time& loaded = state.loaded[static_cast<std::size_t>(number % loader.workers)];
  if (number >= loader.ahead) loaded = std::max(loaded, state.taken[static_cast<std::size_t>(number % loader.ahead)]);
  return loaded += loader.batch;
}

void Loaders::ask(StreamId id) {
  State& state = states_[streams_.place(id).rank];
  REHEARSE_CHECK(state.loader != nullptr, "rank {} takes micro-batches and has no loader",
                 streams_.place(id).rank.value());
  const Time there = next(state);
  if (there <= clock_.now()) {
    take(id, state);
    return;
  }
  streams_.set(id, Status::loading);
  clock_.at(there, EventKind::loaded, id);
}

void Loaders::arrive(StreamId id) {
  const Place& place = streams_.place(id);
  State& state = states_[place.rank];
  streams_.spent(id, result::Share::exposed_input, clock_.now());
  if (records_.wanted(place.rank, place.step)) records_.loaded(id, state.asked_at, clock_.now());
  take(id, state);
}

void Loaders::take(StreamId id, State& state) {
  const std::int64_t number = state.asked - 1, ahead = state.loader->ahead;
  if (number < ahead)
    state.taken.push_back(clock_.now());
  else if (ahead > 0)
    state.taken[static_cast<std::size_t>(number % ahead)] = clock_.now();
  kernels_.make_ready(id);
}

}  // namespace rehearse::engine
