// A program with the size and shape of a large GPT training step, without lowering a model: `stages` roles in 1F1B
// order, per layer and micro-batch four blocks of kernels each followed by an all-reduce of the tensor group that the
// next block waits for (in backward with a weight-gradient kernel beside it), messages between stages, gradients
// reduced and an optimizer step at the end.
#pragma once

#include <algorithm>

#include "tests/unit/engine/machine.h"

namespace rehearse::engine::testing {

struct StandIn {
  int tensor = 8, data = 16, stages = 8, layers = 12, micro_batches = 96;
  int kernels_per_block = 9;

  program::Program program() const;
  plan::RankGrid grid() const { return grid_of(tensor, data, stages); }
  TestModel model() const;
  TestCosts costs() const;
  TestCluster cluster() const;  // NVLink in and out, NIC in and out of each device
};

namespace stand_in {

inline constexpr int kPortsPerDevice = 4;
enum Port { nvlink_out, nvlink_in, nic_out, nic_in };
inline constexpr std::int64_t kNvlink = 300'000'000'000, kNic = 25'000'000'000;

inline cluster::ResourceId port(int device, Port which) {
  return device * kPortsPerDevice + which;
}

class StageBuilder {
 public:
  StageBuilder(const StandIn& size, int stage) : size_(size), stage_(stage), role_(stage) {
    compute_ = role_.stream("compute", StreamKind::compute);
    tensor_ = role_.stream("tensor", StreamKind::tensor);
    receive_ = role_.stream("receive", StreamKind::pipeline);
    send_ = role_.stream("send", StreamKind::pipeline);
    data_ = role_.stream("data", StreamKind::data);
  }

  program::Role build() {
    const BodyId forward = pass("forward", true), backward = pass("backward", false);
    const BodyId step = role_.body("optimizer");
    const EventId reduced = role_.event("reduced");
    role_.all_reduce(step, "gradients", data_, 1, 100'000'000, {last_gradient_}, reduced);
    role_.kernel(step, "update", compute_, {reduced}).phase = program::Phase::optimizer;
    const int warmup = std::min(size_.stages - 1 - stage_, size_.micro_batches);
    for (int i = 0; i < warmup; ++i) role_.slot(forward, i);
    for (int i = warmup; i < size_.micro_batches; ++i) {
      role_.slot(forward, i);
      role_.slot(backward, i - warmup);
    }
    for (int i = size_.micro_batches - warmup; i < size_.micro_batches; ++i) role_.slot(backward, i);
    role_.slot(step);
    return role_.build();
  }

 private:
  // Forward goes up the stages, backward down.
  BodyId pass(const std::string& name, bool forward) {
    const BodyId body = role_.body(name);
    const int up = forward ? 1 : -1;
    const bool receives = forward ? stage_ > 0 : stage_ < size_.stages - 1;
    const bool sends = forward ? stage_ < size_.stages - 1 : stage_ > 0;
    std::vector<EventId> waits;
    if (receives) {
      waits = {role_.event(name + ".received")};
      role_.message(body, name + ".receive", receive_, false, -up, forward ? 0 : 1, 3'000'000, {}, waits[0]);
    }
    for (int layer = 0; layer < size_.layers; ++layer)
      for (int block = 0; block < 2; ++block) {
        const std::string at = fmt::format("{}{}.{}", name, layer, block);
        for (int k = 0; k + 1 < size_.kernels_per_block; ++k) {
          role_.kernel(body, fmt::format("{}.k{}", at, k), compute_, waits);
          waits.clear();
        }
        const EventId ready = role_.event(at + ".ready"), done = role_.event(at + ".reduced");
        role_.kernel(body, at + ".last", compute_, {}, ready);
        role_.all_reduce(body, at + ".reduce", tensor_, 0, 25'000'000, {ready}, done);
        if (!forward) role_.kernel(body, at + ".weight", compute_);
        waits = {done};
      }
    const EventId out = role_.event(name + ".out");
    role_.kernel(body, name + ".out", compute_, waits, out);
    if (sends) role_.message(body, name + ".send", send_, true, up, forward ? 0 : 1, 3'000'000, {out});
    if (!forward) last_gradient_ = out;
    return body;
  }

  const StandIn& size_;
  int stage_;
  RoleBuilder role_;
  StreamId compute_, tensor_, receive_, send_, data_;
  EventId last_gradient_ = -1;
};

inline collective::TransferPlan ring(const std::vector<int>& members, std::int64_t bytes, Port out, Port in,
                                     std::int64_t capacity) {
  if (members.size() < 2) return {};
  const auto n = static_cast<std::int64_t>(members.size());
  const std::int64_t edge = 2 * (n - 1) * bytes / n;
  std::vector<collective::Use> uses;
  for (const int member : members) {
    uses.push_back({port(member, out), edge});
    uses.push_back({port(member, in), edge});
  }
  std::sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.resource < b.resource; });
  collective::TransferPlan plan = plan_of(transfer_time(Bytes(edge), Bandwidth(capacity)).ps(), uses);
  plan.startup = Time::from_us(10);
  plan.sms = 16;
  plan.memory_bytes = 2 * edge;
  return plan;
}

}  // namespace stand_in

inline program::Program StandIn::program() const {
  program::Program program;
  program.name = "stand-in";
  program.micro_batches = micro_batches;
  program.groups = {group_of("tensor", program::GroupKind::tensor, Axis::tensor),
                    group_of("data", program::GroupKind::data, Axis::data)};
  for (int stage = 0; stage < stages; ++stage) program.roles.push_back(stand_in::StageBuilder(*this, stage).build());
  return program;
}

inline TestModel StandIn::model() const {
  TestModel model;
  const int tensor_ranks = tensor;
  model.groups = [tensor_ranks](const std::vector<int>& members, std::int64_t bytes) {
    const bool inside = members.back() - members.front() < tensor_ranks;
    using namespace stand_in;
    return inside ? ring(members, bytes, nvlink_out, nvlink_in, kNvlink) : ring(members, bytes, nic_out, nic_in, kNic);
  };
  model.messages = [](int from, int to, std::int64_t bytes) {
    using namespace stand_in;
    collective::TransferPlan plan = plan_of(transfer_time(Bytes(bytes), Bandwidth(kNic)).ps(),
                                            {{port(from, nic_out), bytes}, {port(to, nic_in), bytes}});
    if (plan.activities[0].uses[1].resource < plan.activities[0].uses[0].resource)
      std::swap(plan.activities[0].uses[0], plan.activities[0].uses[1]);
    plan.startup = Time::from_us(5);
    plan.sms = 2;
    plan.memory_bytes = bytes;
    return plan;
  };
  return model;
}

inline TestCosts StandIn::costs() const {
  TestCosts costs;
  costs.otherwise = 150'000'000;  // 150 us
  costs.slowed = [](std::int64_t alone, const cost::Interference& beside) {
    const std::int64_t sms = 108, bandwidth = 2'000'000'000'000;
    const std::int64_t by_sms = alone * sms / (sms - beside.sms_held);
    return std::max(by_sms, alone / 2 * (bandwidth / 1000) / ((bandwidth - beside.bandwidth_taken) / 1000));
  };
  return costs;
}

inline TestCluster StandIn::cluster() const {
  const int devices = tensor * data * stages;
  std::vector<std::int64_t> capacities;
  for (int device = 0; device < devices; ++device)
    capacities.insert(capacities.end(), {stand_in::kNvlink, stand_in::kNvlink, stand_in::kNic, stand_in::kNic});
  return TestCluster(devices, capacities);
}

}  // namespace rehearse::engine::testing
