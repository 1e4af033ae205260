// Small machines and programs for the engine's tests and benchmarks: a cluster that is a list of resources, costs by op
// name, transfers by a function, and a builder of roles. Ops carry no operands; the engine reads none.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/engine.h"

namespace rehearse::engine::testing {

using program::BodyId;
using program::EventId;
using program::StreamId;
using program::StreamKind;

class TestCluster : public cluster::Cluster {
 public:
  explicit TestCluster(int devices, std::vector<std::int64_t> capacities = {}) : devices_(devices) {
    for (const std::int64_t capacity : capacities)
      resources_.push_back({fmt::format("r{}", resources_.size()), cluster::ResourceKind::link, Bandwidth(capacity)});
  }
  cluster::HostSharing sharing;
  int per_node = 8;

  const std::string& name() const override { return name_; }
  const std::string& device_name() const override { return name_; }
  int devices() const override { return devices_; }
  int devices_per_node() const override { return per_node; }
  const std::vector<cluster::Resource>& resources() const override { return resources_; }
  cluster::Route route(int, int) const override { return {}; }
  cluster::HostSharing host_sharing() const override { return sharing; }

 private:
  int devices_;
  std::string name_ = "test";
  std::vector<cluster::Resource> resources_;
};

// Kernels by op name, in picoseconds; with SMs held or bandwidth taken the duration is multiplied by the factors.
class TestCosts : public cost::CostModel {
 public:
  std::map<std::string, std::int64_t> ps;
  std::int64_t otherwise = 1000;
  std::function<std::int64_t(std::int64_t alone, const cost::Interference& beside)> slowed;
  cost::Coverage coverage = cost::Coverage::exact;

  cost::Device machine;

  const cost::Device& device() const override { return machine; }
  cost::Estimate kernel(const program::Role&, const program::Op& op, const cost::Interference& beside) const override {
    const auto found = ps.find(op.name);
    std::int64_t duration = found == ps.end() ? otherwise : found->second;
    if (slowed) duration = slowed(duration, beside);
    return {Time::from_ps(duration), coverage, 0.9, 1.2};
  }
};

class TestModel : public collective::CollectiveModel {
 public:
  std::function<collective::TransferPlan(const std::vector<int>& members, std::int64_t bytes)> groups;
  std::function<collective::TransferPlan(int from, int to, std::int64_t bytes)> messages;
  bool buffered = false;

  bool buffered_messages() const override { return buffered; }
  collective::TransferPlan collective(program::CollectiveKind, const std::vector<int>& members,
                                      Bytes bytes) const override {
    return groups ? groups(members, bytes.count()) : collective::TransferPlan();
  }
  collective::TransferPlan send(int from, int to, Bytes bytes) const override {
    return messages ? messages(from, to, bytes.count()) : collective::TransferPlan();
  }
};

// A transfer that takes `ps` on the given uses (none: nothing to share).
inline collective::TransferPlan plan_of(std::int64_t ps, std::vector<collective::Use> uses = {}) {
  collective::TransferPlan plan;
  plan.activities.push_back({std::move(uses), Time::from_ps(ps)});
  return plan;
}

class RoleBuilder {
 public:
  explicit RoleBuilder(int pipeline = 0) {
    role_.name = fmt::format("stage{}", pipeline);
    role_.ranks = program::RankSet::of_stage(pipeline);
    role_.pipeline = pipeline;
  }
  StreamId stream(const std::string& name, StreamKind kind) {
    role_.streams.push_back({name, kind});
    return static_cast<StreamId>(role_.streams.size() - 1);
  }
  EventId event(const std::string& name) {
    role_.events.push_back({name});
    return static_cast<EventId>(role_.events.size() - 1);
  }
  BodyId body(const std::string& name) {
    role_.bodies.push_back({name, {}});
    return static_cast<BodyId>(role_.bodies.size() - 1);
  }
  void slot(BodyId body, int micro_batch = -1) { role_.slots.push_back({body, micro_batch}); }

  program::Op& op(BodyId body, const std::string& name, StreamId stream, program::OpShape shape,
                  std::vector<EventId> waits = {}, EventId records = -1) {
    program::Op op;
    op.name = name, op.stream = stream, op.shape = std::move(shape);
    op.waits = std::move(waits), op.records = records;
    auto& ops = role_.bodies[static_cast<std::size_t>(body)].ops;
    ops.push_back(std::move(op));
    return ops.back();
  }
  program::Op& kernel(BodyId body, const std::string& name, StreamId stream, std::vector<EventId> waits = {},
                      EventId records = -1) {
    return op(body, name, stream, program::Gemm{}, std::move(waits), records);
  }
  program::Op& all_reduce(BodyId body, const std::string& name, StreamId stream, program::GroupId group,
                          std::int64_t elements, std::vector<EventId> waits = {}, EventId records = -1) {
    return op(body, name, stream,
              program::Collective{program::CollectiveKind::all_reduce, group, elements, program::ReduceOp::sum},
              std::move(waits), records);
  }
  program::Op& message(BodyId body, const std::string& name, StreamId stream, bool send, int offset, int channel,
                       std::int64_t elements, std::vector<EventId> waits = {}, EventId records = -1) {
    return op(body, name, stream, program::PointToPoint{{{send, Axis::pipeline, offset, channel, elements}}},
              std::move(waits), records);
  }
  program::Role build() { return std::move(role_); }

 private:
  program::Role role_;
};

// Sizes by axis: tensor, context, expert, data, pipeline; tensor varies fastest.
inline plan::RankGrid grid_of(int tensor, int data, int pipeline) {
  return {{tensor, 1, 1, data, pipeline}, {Axis::tensor, Axis::context, Axis::expert, Axis::data, Axis::pipeline}};
}

inline program::Group group_of(const std::string& name, program::GroupKind kind, Axis axis) {
  return {name, kind, {axis}, {}};
}

}  // namespace rehearse::engine::testing
