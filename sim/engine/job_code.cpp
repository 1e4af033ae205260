// See job_code.h.
#include "sim/engine/job_code.h"

#include "sim/program/work.h"

namespace rehearse::engine {

collective::TransferPlan plan_of(const JobCode& job, const program::ProcessGroup& group, std::int32_t size) {
  const collective::CollectiveModel& model = job.job->collectives;
  if (group.group >= 0) {
    const CollectiveSize& what = job.collective(group.group, size);
    if (what.parts < 0 && what.to.experts == 0) return model.collective(what.kind, group.ranks, Bytes(what.bytes));
    return model.exchange(
        group.ranks,
        {program::part_bytes(job.job->program, what.parts, what.bytes, group.ranks.size()), what.back, what.to});
  }
  if (group.ranks[0] == group.ranks[1]) return {};  // a message to oneself is free
  return model.send(group.ranks[0], group.ranks[1], Bytes(job.code.leg_bytes[static_cast<std::size_t>(size)]));
}

}  // namespace rehearse::engine
