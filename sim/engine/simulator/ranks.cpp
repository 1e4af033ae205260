// See ranks.h.
#include "sim/engine/simulator/ranks.h"

#include "sim/account/grid_view.h"
#include "sim/base/check.h"

namespace rehearse::engine {

Ranks lay_out_ranks(const IdVector<JobId, JobCode>& jobs, const std::vector<int>& recorded) {
  Ranks ranks;
  StreamId next{0};
  for (const JobCode& job : jobs) {
    const program::GridView grid = account::grid_view(job.job->program, job.job->grid);
    for (std::int32_t rank = 0; rank < grid.ranks; ++rank) {
      const RoleCode& code = job.code.roles[static_cast<std::size_t>(grid.role(rank))];
      REHEARSE_CHECK(code.streams <= 32, "{} has {} streams", code.role->name, code.streams);
      RankInfo info{&code, next, {}, false};
      for (const std::int32_t stream : code.compute_streams)
        if (!info.main_stream.exists() && !code.slots_of(stream).empty()) info.main_stream = info.stream(stream);
      next = info.streams().last;
      ranks.push_back(info);
    }
  }
  for (const int rank : recorded) ranks.at(RankId(rank)).recorded = true;
  return ranks;
}

}  // namespace rehearse::engine
