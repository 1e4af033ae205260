// The optimizer on the host, against closed forms. Forward of a layer takes F, its backward B; a bucket's gradients
// take O to the host, its update H there, its values I back; nothing else takes any time. L layers between embedding
// and head.
#include <gtest/gtest.h>

#include "tests/support/simulated.h"

namespace rehearse::offload_test {
namespace {

constexpr std::int64_t kLayers = 3;
constexpr const char* kText =
    "rehearse: 1\nmodel: {family: gpt, layers: 3, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32, "
    "tied_embeddings: false}\ncluster: {topology: dgx-a100, gpus: 1}\n";

struct Times {
  Time forward, backward, out, update, in;
};

GivenCosts costs_of(const Times& t) {
  return GivenCosts([t](const program::Op& op) {
    if (op.name.starts_with("grad.to_host")) return t.out;
    if (op.name.starts_with("host.optimizer")) return t.update;
    if (op.name.starts_with("values.to_device")) return t.in;
    if (op.phase == program::Phase::forward && ends_with(op.name, "mlp.up.forward")) return t.forward;
    if (ends_with(op.name, "mlp.up.backward_weight")) return t.backward;
    return Time();
  });
}

engine::Outcome run(const Times& times, const std::vector<std::string>& plan) {
  std::vector<std::string> all = {"plan.offload_optimizer=true"};
  all.insert(all.end(), plan.begin(), plan.end());
  return simulated(scenario_from(kText, all), costs_of(times), Communication::free, {}, 3);
}

constexpr Time us(std::int64_t n) {
  return Time::from_us(n);
}

// Of one bucket nothing can be hidden.
TEST(Offload, OneBucketIsExposedAsAWhole) {
  const Times t{us(100), us(200), us(30), us(500), us(20)};
  for (const char* framework : {"rehearse", "deepspeed"}) {
    const engine::Outcome outcome =
        run(t, {"plan.zero=0", "plan.bucket=1GiB", std::string("framework=") + framework, "model.dropout=0"});
    const Time own = t.out + t.update + t.in;
    EXPECT_EQ(outcome.step_time, t.forward * kLayers + t.backward * kLayers + own) << framework;
    EXPECT_EQ(outcome.breakdown_ps[static_cast<std::size_t>(result::Share::optimizer)], own.ps()) << framework;
  }
}

// ZeRO-3 has a bucket a unit, L + 2 of them. Gradients leave during the rest of backward, but for the first layer's
// and the embedding's, which are there at its end. The host then updates one unit after the other in the order of
// forward, while the device does the forward of those that are done: with H of at least F the head is reached when its
// own values are there.
TEST(Offload, UpdatesAreHiddenByTheNextForwardInOurIdeal) {
  const Times t{us(100), us(200), us(30), us(500), us(20)};
  const engine::Outcome outcome = run(t, {"plan.zero=3"});
  EXPECT_EQ(outcome.step_time, t.backward * kLayers + t.out * 2 + t.update * (kLayers + 2) + t.in);
}

// A framework's process launches the next forward after its last update, whose values are on their way.
TEST(Offload, AFrameworksForwardWaitsForAllUpdates) {
  const Times t{us(100), us(200), us(30), us(500), us(20)};
  const engine::Outcome outcome = run(t, {"plan.zero=3", "framework=torch-fsdp2", "model.dropout=0"});
  const Time updates = t.update * (kLayers + 2);
  EXPECT_EQ(outcome.step_time, t.backward * kLayers + t.out * 2 + updates + t.forward * kLayers);
}

// Copies that take longer than what they hide behind: with O above B the last of L + 2 buckets has waited for the
// others.
TEST(Offload, CopiesThatAreTooSlowSetThePace) {
  const Times t{us(10), us(20), us(300), us(1), us(1)};
  const engine::Outcome outcome = run(t, {"plan.zero=3", "framework=torch-fsdp2", "model.dropout=0"});
  // The head's gradients are there when backward begins.
  EXPECT_EQ(outcome.step_time, t.out * (kLayers + 2) + t.update * (kLayers + 2) + t.forward * kLayers);
}

// An A100's PCIe and a host of 409.6 GB/s, half of which the step reaches, shared by 8 ranks: 1/8 of 10^9 parameters a
// rank move 32 bytes each there.
TEST(Offload, TheHostsBandwidthIsSharedByItsRanks) {
  program::Role role;
  role.streams = {{"cpu", program::StreamKind::cpu}, {"to_host", program::StreamKind::copy}};
  const std::int64_t n = 125'000'000;
  const auto buffer = [&](DType type, bool host) {
    program::Buffer b;
    b.name = std::to_string(role.buffers.size());
    b.dtype = type;
    b.shape = {n};
    b.on_host = host;
    role.buffers.push_back(b);
    return program::Operand{static_cast<program::BufferId>(role.buffers.size()) - 1};
  };
  const auto gradient = buffer(DType::f32, true), values = buffer(DType::bf16, true), master = buffer(DType::f32, true),
             average = buffer(DType::f32, true), square = buffer(DType::f32, true), device = buffer(DType::f32, false);
  program::Op step;
  step.name = "host.optimizer";
  step.shape = program::Optimizer{true, true, false, n};
  step.reads = {gradient, values, master, average, square};
  step.writes = {values, master, average, square};
  program::Op copy;
  copy.name = "grad.to_host";
  copy.shape = program::Elementwise{program::ElementwiseFn::copy, n};
  copy.reads = {device}, copy.writes = {gradient};
  const std::string root = REHEARSE_SOURCE_DIR;
  const auto costs = [&](double memory, double link) {
    cost::HostShare share{8, 1};
    share.host_memory = Bandwidth(static_cast<std::int64_t>(memory));
    share.to_host = Bandwidth(static_cast<std::int64_t>(link));
    return cost::load_costs({root + "/calibrate/devices/a100-sxm-80g.yaml"}, share);
  };
  const auto seconds = [&](const cost::CostModel& model, const program::Op& op) {
    return model.kernel(role, op, {}).duration.seconds();
  };
  constexpr double kKernel = 2e-6;
  EXPECT_NEAR(seconds(*costs(409.6e9 / 8, 0), step), kKernel + 32 * 125e6 / (409.6e9 / 8 / 2), 1e-9);
  EXPECT_NEAR(seconds(*costs(409.6e9 / 8, 0), copy), kKernel + 4 * 125e6 / 25.1e9, 1e-9);
  EXPECT_NEAR(seconds(*costs(409.6e9 / 8, 6e9), copy), kKernel + 4 * 125e6 / 6e9, 1e-9) << "a shared link is less";
  EXPECT_NEAR(seconds(*costs(409.6e9 / 8, 60e9), copy), kKernel + 4 * 125e6 / 25.1e9, 1e-9) << "the device's own is";
  // Multiprocessors that communication holds do not slow the host down.
  EXPECT_EQ(costs(51.2e9, 0)->kernel(role, step, {64, 1'000'000'000'000}).duration,
            costs(51.2e9, 0)->kernel(role, step, {}).duration);
}

}  // namespace
}  // namespace rehearse::offload_test
