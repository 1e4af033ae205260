#include "sim/account/program_facts.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "sim/program/describe.h"
#include "sim/program/work.h"

namespace rehearse::account {

using program::Op;
using program::Program;
using program::Role;

namespace {

// Of one rank in a step.
double flops_of_role(const Role& role) {
  double sum = 0;
  std::vector<double> of_body(role.bodies.size(), 0);
  for (std::size_t b = 0; b < role.bodies.size(); ++b)
    for (const Op& op : role.bodies[b].ops)
      if (!program::is_transfer(op) && !op.ends())
        of_body[b] += program::work_of(role, op).flops / static_cast<double>(role.bodies[b].every);
  for (const program::Slot& slot : role.slots) sum += of_body[static_cast<std::size_t>(slot.body)];
  return sum;
}

}  // namespace

std::vector<program::RoleId> shown_roles(const Program& program) {
  std::map<int, std::vector<program::RoleId>> of_stage;
  for (std::size_t r = 0; r < program.roles.size(); ++r)
    of_stage[program.roles[r].pipeline].push_back(static_cast<program::RoleId>(r));
  std::vector<program::RoleId> shown;
  for (const auto& [stage, roles] : of_stage) {
    shown.push_back(roles.front());
    double most = roles.size() > 1 ? flops_of_role(program.roles[static_cast<std::size_t>(roles.front())]) : 0;
    for (std::size_t i = 1; i < roles.size(); ++i) {
      const double flops = flops_of_role(program.roles[static_cast<std::size_t>(roles[i])]);
      if (flops > most) most = flops, shown.back() = roles[i];
    }
  }
  return shown;
}

double hardware_flops(const Program& program, const plan::RankGrid& grid) {
  double total = 0;
  for (const Role& role : program.roles) total += flops_of_role(role);
  const int ranks_a_role = grid.ranks() / static_cast<int>(program.roles.size());
  return total * ranks_a_role;
}

int first_rank(const plan::RankGrid& grid, const Role& role) {
  return grid.rank(role.ranks.first());
}

namespace {

// The op that records an event, as "body/op"; an event has one.
std::vector<std::string> recorders(const Role& role) {
  std::vector<std::string> names(role.events.size());
  for (const program::Body& body : role.bodies)
    for (const Op& op : body.ops)
      if (op.records >= 0) names[static_cast<std::size_t>(op.records)] = body.name + '/' + op.name;
  return names;
}

std::string names_after(const Op& op, const std::vector<std::string>& recorders) {
  std::string text;
  for (const program::EventId event : op.waits) {
    if (!text.empty()) text += ';';
    text += recorders[static_cast<std::size_t>(event)];
  }
  return text;
}

result::OpName name_op(const Program& program, const Role& role, const program::Body& body, const Op& op,
                       const plan::RankGrid& grid) {
  static constexpr const char* kPhases[] = {"forward",      "recompute", "backward", "grad_reduce",
                                            "param_gather", "optimizer", "pipeline"};
  result::OpName name;
  name.body = body.name;
  name.op = op.name;
  name.kind = program::kind_name(op.shape);
  name.phase = kPhases[static_cast<int>(op.phase)];
  name.stream = role.streams[static_cast<std::size_t>(op.stream)].name;
  name.shape = program::shape_text(role, op);
  if (const auto* collective = std::get_if<program::Collective>(&op.shape)) {
    const program::Group& g = program.groups[static_cast<std::size_t>(collective->group)];
    name.bytes = program::collective_bytes(op);
    name.dtype = program::name_of(op.dtype);
    name.group = g.name;
    name.elements = collective->elements;
    name.group_size =
        static_cast<std::int32_t>(grid.members(first_rank(grid, role), g.axes, g.pipeline_only, g.tensor_block).size());
  } else if (const auto* legs = std::get_if<program::PointToPoint>(&op.shape)) {
    for (const program::Leg& leg : legs->legs) name.bytes += program::leg_bytes(op, leg);
    name.group_size = 2;
    if (!legs->legs.empty()) name.group = name_of(legs->legs.front().axis);
  } else if (!std::holds_alternative<program::HostSync>(op.shape)) {
    const program::Work work = program::work_of(role, op);
    name.bytes = work.bytes_read + work.bytes_written;
    name.flops = work.flops;
  }
  return name;
}

// The other ranks of a rank's transfers; a group's are looked up once.
class Peers {
 public:
  Peers(const Program& program, const plan::RankGrid& grid, int rank) : program_(program), grid_(grid), rank_(rank) {}

  std::string of(const Op& op) {
    if (const auto* collective = std::get_if<program::Collective>(&op.shape)) return of_group(collective->group);
    const auto* messages = std::get_if<program::PointToPoint>(&op.shape);
    if (messages == nullptr) return "";
    std::set<int> ranks;
    for (const program::Leg& leg : messages->legs) ranks.insert(grid_.peer(rank_, leg.axis, leg.offset));
    return others(std::move(ranks));
  }

 private:
  const std::string& of_group(program::GroupId id) {
    const auto [known, fresh] = of_group_.try_emplace(id);
    if (!fresh) return known->second;
    const program::Group& g = program_.groups[static_cast<std::size_t>(id)];
    const std::vector<int> members = grid_.members(rank_, g.axes, g.pipeline_only, g.tensor_block);
    return known->second = others({members.begin(), members.end()});
  }
  std::string others(std::set<int> ranks) const {
    ranks.erase(rank_);
    return peers_text({ranks.begin(), ranks.end()});
  }

  const Program& program_;
  const plan::RankGrid& grid_;
  const int rank_;
  std::map<program::GroupId, std::string> of_group_;
};

}  // namespace

std::string peers_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first + 1;
    const int step = last < ranks.size() ? ranks[last] - ranks[first] : 0;
    while (last + 1 < ranks.size() && ranks[last + 1] - ranks[last] == step) ++last;
    if (last - first < 2) last = first;
    if (!text.empty()) text += ';';
    text += std::to_string(ranks[first]);
    if (last > first) text += fmt::format("-{}", ranks[last]);
    if (last > first && step > 1) text += fmt::format("/{}", step);
    first = last + 1;
  }
  return text;
}

void name_ops(const Program& program, const plan::RankGrid& grid, const CoverageOf& coverage, result::Result& out) {
  for (const program::RoleId shown : shown_roles(program)) {
    const Role& role = program.roles[static_cast<std::size_t>(shown)];
    const std::vector<std::string> recorded_by = recorders(role);
    auto& bodies = out.names[role.pipeline];
    for (const program::Body& body : role.bodies) {
      auto& ops = bodies.emplace_back();
      for (const Op& op : body.ops) {
        ops.push_back(name_op(program, role, body, op, grid));
        ops.back().after = names_after(op, recorded_by);
        ops.back().micro_batch_delta = op.micro_batch_delta;
        if (coverage) ops.back().coverage = coverage(role, op);
      }
    }
    for (const program::Stream& stream : role.streams) out.streams[role.pipeline].push_back(stream.name);
    for (const program::Slot& slot : role.slots) out.micro_batch_of_slot[role.pipeline].push_back(slot.micro_batch);
  }
  for (const auto& [rank, stage] : out.role_of_rank) {
    auto& bodies = out.peers[rank];
    Peers peers(program, grid, rank);
    const program::RoleId role = program::role_of(program, grid.coordinates(rank));
    for (const program::Body& body : program.roles[static_cast<std::size_t>(role)].bodies) {
      auto& ops = bodies.emplace_back();
      for (const Op& op : body.ops) ops.push_back(peers.of(op));
    }
  }
}

}  // namespace rehearse::account
