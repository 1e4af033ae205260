// See job_code.h.
#include "sim/engine/job_code.h"

#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "sim/account/grid_view.h"
#include "sim/base/check.h"
#include "sim/program/work.h"

namespace rehearse::engine {

namespace {

// Ranks on CPUs are this program's own, whose memory is an arena (execute/); their sends are copies.
program::Arenas arenas_of(const Job& job, const program::GridView& grid) {
  const bool buffered = job.collectives.buffered_messages();
  if (!job.arena && !(job.costs.device().cpu && buffered)) return {};
  return program::lay_out_arenas(job.program, grid, !buffered);
}

// What copying a message on its device takes, for those that are sent from copies.
void cost_copies(ProgramCode& code) {
  for (RoleCode& role : code.roles)
    for (Segment& segment : role.segments) {
      if (segment.send_slots <= 0) continue;
      program::Op copy = role.op(segment.ops.first);
      copy.shape = program::Elementwise{program::ElementwiseFn::copy,
                                        std::get<program::PointToPoint>(copy.shape).legs.front().elements};
      copy.writes = copy.reads;
      segment.copy = role.costs->kernel(*role.role, copy, {}).duration;
    }
}

// Ranks of one role on devices of several kinds run the same code at each kind's own pace.
void part_by_kind(const DeviceKinds& kinds, JobCode& job) {
  std::map<std::pair<std::int32_t, int>, std::int32_t> codes;  // of a role and a kind but the first
  for (std::size_t rank = 0; rank < job.code_of.size(); ++rank) {
    const int kind = kinds.of_rank[rank];
    if (kind == 0) continue;
    const auto role = static_cast<std::size_t>(job.code_of[rank]);
    const auto [code, fresh] =
        codes.try_emplace({job.code_of[rank], kind}, static_cast<std::int32_t>(job.code.roles.size()));
    if (fresh) {
      job.code.roles.push_back(RoleCode(job.code.roles[role]));
      job.code.roles.back().launch_cost = kinds.launch_cost[static_cast<std::size_t>(kind)];
      job.code.roles.back().costs = kinds.costs[static_cast<std::size_t>(kind)];
    }
    job.code_of[rank] = code->second;
  }
}

}  // namespace

std::shared_ptr<const ProgramLayout> lay_out_program(const program::Program& program, const plan::RankGrid& grid,
                                                     const program::Arenas* arenas,
                                                     const program::KernelKinds& kernels) {
  auto layout =
      std::make_shared<ProgramLayout>(ProgramLayout{program::link(program, account::grid_view(program, grid)), {}});
  layout->code = compile(program, layout->link, arenas == nullptr ? program::Arenas() : *arenas, kernels);
  return layout;
}

IdVector<JobId, JobCode> lay_out(const std::vector<Job>& jobs) {
  IdVector<JobId, JobCode> codes;
  for (const Job& job : jobs) {
    const program::Program& program = job.program;
    const program::GridView grid = account::grid_view(program, job.grid);
    std::shared_ptr<const ProgramLayout> own;
    if (job.layout == nullptr) {
      const program::Arenas made = job.arenas == nullptr ? arenas_of(job, grid) : program::Arenas();
      own =
          lay_out_program(program, job.grid, job.arenas == nullptr ? &made : job.arenas, program::KernelKinds(program));
    }
    const ProgramLayout& layout = own ? *own : *job.layout;
    REHEARSE_CHECK(layout.code.roles.front().role == program.roles.data(), "a layout of another program");
    const JobId id = codes.push_back({&job, own, layout.code, {}});
    for (int rank = 0; rank < grid.ranks; ++rank) codes[id].code_of.push_back(grid.role(rank));
    for (RoleCode& role : codes[id].code.roles) {
      role.job = id;
      role.launch_cost = job.launch_cost;
      role.costs = &job.costs;
    }
    if (job.kinds != nullptr) part_by_kind(*job.kinds, codes[id]);
    cost_copies(codes[id].code);
  }
  return codes;
}

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
