// See ranks.h.
#include "sim/engine/simulator/ranks.h"

#include "sim/base/check.h"

namespace rehearse::engine {

Ranks lay_out_ranks(const IdVector<JobId, JobCode>& jobs, const Folding& folding, const std::vector<int>& recorded) {
  Ranks ranks;
  StreamId next{0};
  for (const JobId id : jobs.ids()) {
    const JobCode& job = jobs[id];
    const Folding::Classes& classes = folding.job(id).ranks;
    for (std::size_t c = 0; c < classes.first.size(); ++c) {
      const std::int32_t rank = classes.first[c];
      const RoleCode& code = job.code.roles[static_cast<std::size_t>(job.code_of[static_cast<std::size_t>(rank)])];
      REHEARSE_CHECK(code.streams <= 32, "{} has {} streams", code.role->name, code.streams);
      RankInfo info{&code, next, {}, rank, classes.alike[c], {}};
      for (const std::int32_t stream : code.compute_streams)
        if (!info.main_stream.exists() && !code.slots_of(stream).empty()) info.main_stream = info.stream(stream);
      next = info.streams().last;
      ranks.push_back(info);
    }
  }
  for (const int rank : recorded)
    ranks.at(RankId(folding.job(JobId(0)).ranks.of.at(static_cast<std::size_t>(rank)))).recorded.push_back(rank);
  return ranks;
}

}  // namespace rehearse::engine
