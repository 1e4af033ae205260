// What does not change of the ranks of a simulation: the code they run, which streams are theirs, and how many ranks
// of their job each stands for (sim/engine/folding/folding.h).
#pragma once

#include <vector>

#include "sim/engine/code.h"
#include "sim/engine/folding/folding.h"
#include "sim/engine/ids.h"
#include "sim/engine/job_code.h"

namespace rehearse::engine {

struct RankInfo {
  const RoleCode* code = nullptr;
  StreamId first_stream{0};
  StreamId main_stream;                // the rank's breakdown is about this one: the first that computes
  std::int32_t number = 0;             // in its job
  std::int64_t alike = 1;              // ranks, itself among them
  std::vector<std::int32_t> recorded;  // of these, those whose ops are recorded

  IdRange<StreamId> streams() const { return {first_stream, first_stream + code->streams}; }
  StreamId stream(std::int32_t index) const { return first_stream + index; }
};

using Ranks = IdVector<RankId, RankInfo>;

// Of all jobs, one after the other. The codes must outlive them. `recorded`: ranks of the first job.
Ranks lay_out_ranks(const IdVector<JobId, JobCode>& jobs, const Folding& folding, const std::vector<int>& recorded);

}  // namespace rehearse::engine
