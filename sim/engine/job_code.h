// A job of a simulation, laid out for execution, and how its transfers go.
#pragma once

#include <memory>
#include <vector>

#include "sim/collective/collective.h"
#include "sim/engine/code.h"
#include "sim/engine/engine.h"

namespace rehearse::engine {

struct ProgramLayout {
  program::Link link;
  ProgramCode code;  // of jobs that launch nothing yet
};

struct JobCode {
  const Job* job = nullptr;
  std::shared_ptr<const ProgramLayout> own;  // unless the job has it
  ProgramCode code;
  std::vector<std::int32_t> code_of;  // by rank: of code.roles

  const program::Link& link() const { return own ? own->link : job->layout->link; }
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
