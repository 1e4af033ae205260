// What does not change of the ranks of a simulation: the code they run, and which streams are theirs.
#pragma once

#include "sim/engine/code.h"
#include "sim/engine/ids.h"
#include "sim/engine/matching.h"

namespace rehearse::engine {

struct RankInfo {
  const RoleCode* code = nullptr;
  StreamId first_stream{0};
  StreamId main_stream;  // the rank's breakdown is about this one: the first that computes
  bool recorded = false;

  IdRange<StreamId> streams() const { return {first_stream, first_stream + code->streams}; }
  StreamId stream(std::int32_t number) const { return first_stream + number; }
};

using Ranks = IdVector<RankId, RankInfo>;

// Of all jobs, one after the other. The codes must outlive them.
Ranks lay_out_ranks(const IdVector<JobId, JobCode>& jobs, const std::vector<int>& recorded);

}  // namespace rehearse::engine
