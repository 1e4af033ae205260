// See collective_ways.h. Each rank that takes part counts a call's share: one over the members.
#include "execute/collective_ways.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "sim/account/program_facts.h"
#include "sim/program/describe.h"
#include "sim/program/work.h"

namespace rehearse::execute {
namespace {

using CallKey = std::tuple<std::string, std::string, std::int64_t, std::int64_t, std::string>;

struct Calls {
  result::CollectiveUse use;
  double count = 0, spent_ps = 0;
  std::int64_t timed = 0;
};

result::CollectiveUse use_of(const Run& run, const program::Role& role, const program::Op& op) {
  const auto& collective = std::get<program::Collective>(op.shape);
  const program::Group& g = run.program.groups[static_cast<std::size_t>(collective.group)];
  result::CollectiveUse use;
  use.kind = program::kind_name(op.shape), use.group = g.name;
  use.ranks = static_cast<std::int64_t>(
      run.grid.members(account::first_rank(run.grid, role), g.axes, g.pipeline_only, g.tensor_block).size());
  use.nodes = 1, use.bytes = program::collective_bytes(op), use.fidelity = "performed";
  const int here = run.world.here().front();
  use.algorithm = run.world.communicator(here).way(collective.kind, collective.elements, use.ranks, op.dtype);
  return use;
}

CallKey call_key_of(const result::CollectiveUse& use) {
  return {use.group, use.kind, use.bytes, use.ranks, use.algorithm};
}

}  // namespace

void add_collectives(const Run& run, result::Result& out) {
  std::map<CallKey, Calls> all;
  const double ranks = static_cast<double>(run.grid.ranks()) / static_cast<double>(run.program.roles.size());
  for (const program::Role& role : run.program.roles)
    for (const program::Slot& slot : role.slots) {
      const program::Body& body = role.bodies[static_cast<std::size_t>(slot.body)];
      for (const program::Op& op : body.ops) {
        if (!std::holds_alternative<program::Collective>(op.shape)) continue;
        result::CollectiveUse use = use_of(run, role, op);
        if (use.ranks < 2) continue;
        Calls& calls = all[call_key_of(use)];
        calls.count += ranks / static_cast<double>(use.ranks);
        calls.use = std::move(use);
      }
    }
  for (const result::OpRecord& record : out.records) {
    const program::Role& role = *run.timeline(record.rank).role;
    const program::Op& op = role.bodies[static_cast<std::size_t>(record.body)].ops[static_cast<std::size_t>(record.op)];
    if (!std::holds_alternative<program::Collective>(op.shape)) continue;
    const auto found = all.find(call_key_of(use_of(run, role, op)));
    if (found == all.end()) continue;
    found->second.spent_ps += static_cast<double>(record.duration_ps - record.waited_ps);
    ++found->second.timed;
  }
  for (auto& [key, calls] : all) {
    calls.use.count = std::llround(calls.count);
    if (calls.timed > 0) calls.use.mean_ps = std::llround(calls.spent_ps / static_cast<double>(calls.timed));
    out.collectives.push_back(std::move(calls.use));
  }
  std::stable_sort(out.collectives.begin(), out.collectives.end(), [](const auto& a, const auto& b) {
    return std::pair(a.count * a.mean_ps, a.count * a.bytes) > std::pair(b.count * b.mean_ps, b.count * b.bytes);
  });
}

}  // namespace rehearse::execute
