// See first_weights.h.
#include "sim/account/first_weights.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "sim/base/half.h"

namespace rehearse::account {
namespace {

using program::Buffer;
using program::BufferId;
using program::GroupId;
using program::Program;

GroupId group_named(const Program& program, const std::string& name) {
  for (std::size_t g = 0; g < program.groups.size(); ++g)
    if (program.groups[g].name == name) return static_cast<GroupId>(g);
  return -1;
}

// Of tables that each rank has for itself (plan.embedding_tables: sharded), where every rank is a role of its own.
bool held_by_all(const Program& trained, const program::Role& role, const Buffer& parameter) {
  if (group_named(trained, "tables") < 0) return true;
  return std::all_of(trained.roles.begin(), trained.roles.end(), [&](const program::Role& other) {
    return other.pipeline != role.pipeline || std::any_of(other.buffers.begin(), other.buffers.end(),
                                                          [&](const Buffer& b) { return b.name == parameter.name; });
  });
}

// The groups, one after the other, over which ranks that hold the same as we do are reached; empty: there are none.
// Of what is spread over ranks, experts may have others that hold the same.
std::vector<GroupId> groups_of(const Program& trained, const program::Role& role, const Buffer& parameter) {
  std::vector<GroupId> groups;
  if (!held_by_all(trained, role, parameter)) return groups;
  const std::string within = parameter.init.spread.bits() != 0 ? "expert_data" : "data";
  for (const std::string& name : {within, std::string("replica")})
    if (const GroupId id = group_named(trained, name); id >= 0) groups.push_back(id);
  return groups;
}

bool is_drawn(const Buffer& b) {
  return b.init.kind != program::Init::Kind::none && !b.init.global_shape.empty();
}

DType sent_as(const plan::Scenario& scenario, const Buffer& parameter) {
  if (parameter.dtype == DType::f32 || !scenario.framework.first_weights_cast) return DType::f32;
  return is_half(parameter.dtype) ? parameter.dtype : DType::bf16;
}

program::Role role_of(const program::Role& trained, const std::vector<FirstMessage>& messages) {
  program::Role role;
  role.name = trained.name, role.ranks = trained.ranks, role.pipeline = trained.pipeline;
  role.streams = {{"compute", program::StreamKind::compute}, {"data", program::StreamKind::data}};
  program::Body body;
  body.name = "first_weights";
  for (const FirstMessage& message : messages) {
    const auto buffer = static_cast<BufferId>(role.buffers.size());
    Buffer sent;
    sent.name = "first_weights." + std::to_string(buffer);
    sent.dtype = message.type, sent.shape = {message.elements};
    sent.cls = program::BufferClass::parameter, sent.lifetime = program::Lifetime::persistent;
    sent.init.kind = program::Init::Kind::zeros;  // there is something before the first op: what was drawn
    role.buffers.push_back(sent);
    for (const GroupId group : message.groups) {
      program::Op op;
      op.name = sent.name + (group == message.groups.front() ? "" : ".replicas");
      op.shape = program::Collective{program::CollectiveKind::broadcast, group, message.elements};
      op.dtype = message.type, op.phase = program::Phase::param_gather, op.stream = 1;
      op.reads = op.writes = {{buffer}};
      body.ops.push_back(std::move(op));
    }
  }
  role.bodies.push_back(std::move(body));
  role.slots = {{0, -1}};
  return role;
}

}  // namespace

std::vector<FirstMessage> first_messages(const plan::Scenario& scenario, const Program& trained,
                                         const program::Role& role) {
  if (scenario.training.first_weights != plan::FirstWeights::broadcast) return {};
  const std::int64_t full = scenario.framework.first_weights_bucket.count();
  std::vector<FirstMessage> done;
  std::map<std::pair<std::vector<GroupId>, DType>, FirstMessage> open;
  for (std::size_t b = 0; b < role.buffers.size(); ++b) {
    const Buffer& buffer = role.buffers[b];
    if (!is_drawn(buffer)) continue;
    const std::vector<GroupId> groups = groups_of(trained, role, buffer);
    if (groups.empty()) continue;
    const DType type = sent_as(scenario, buffer);
    FirstMessage& message = open[{groups, type}];
    message.groups = groups, message.type = type;
    message.parts.push_back({static_cast<BufferId>(b), message.elements});
    message.elements += buffer.elements();
    if (message.elements * size_of(type) < full) continue;
    done.push_back(std::move(message));
    message = {};
  }
  for (auto& [key, message] : open)
    if (message.elements > 0) done.push_back(std::move(message));
  return done;
}

bool FirstWeights::any() const {
  return std::any_of(messages.begin(), messages.end(), [](const auto& of_role) { return !of_role.empty(); });
}

FirstWeights first_weights(const plan::Scenario& scenario, const Program& trained) {
  FirstWeights first;
  first.program.name = trained.name + ", first weights";
  first.program.groups = trained.groups;
  for (const program::Role& role : trained.roles) {
    first.messages.push_back(first_messages(scenario, trained, role));
    first.program.roles.push_back(role_of(role, first.messages.back()));
  }
  return first;
}

result::FirstWeights first_weights_facts(const std::vector<std::vector<FirstMessage>>& messages) {
  result::FirstWeights facts;
  for (const std::vector<FirstMessage>& of_role : messages) {
    std::int64_t bytes = 0;
    for (const FirstMessage& message : of_role) bytes += message.elements * size_of(message.type);
    if (bytes <= facts.bytes) continue;
    facts.known = true;
    facts.bytes = bytes, facts.messages = static_cast<std::int64_t>(of_role.size());
  }
  return facts;
}

}  // namespace rehearse::account
