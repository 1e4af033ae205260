// A job of a simulation, laid out for execution, and how its transfers go.
#pragma once

#include <vector>

#include "sim/collective/collective.h"
#include "sim/engine/code.h"
#include "sim/engine/engine.h"

namespace rehearse::engine {

struct JobCode {
  const Job* job = nullptr;
  program::Link link;
  ProgramCode code;
  std::vector<std::int32_t> code_of;  // by rank: of code.roles

  const CollectiveSize& collective(program::GroupId group, std::int32_t size) const {
    return code.collectives[static_cast<std::size_t>(group)][static_cast<std::size_t>(size)];
  }
};

// Programs of all jobs as code. The jobs must outlive it.
IdVector<JobId, JobCode> lay_out(const std::vector<Job>& jobs);

// Of calls of a size on a process group: of a collective an index into ProgramCode::collectives, of a channel's
// messages into leg_bytes. Throws InputError where the collective model does.
collective::TransferPlan plan_of(const JobCode& job, const program::ProcessGroup& group, std::int32_t size);

}  // namespace rehearse::engine
