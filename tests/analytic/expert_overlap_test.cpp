// plan.overlap_expert_exchange against closed forms: what hides behind another micro-batch's computation, and what
// pairs of a forward and a backward cost a pipeline.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/simulated.h"

namespace rehearse {
namespace {

constexpr int kLayers = 3, kMicroBatches = 6;
constexpr double kSequence = 512, kWidth = 1024, kSpread = 4;
// Each of four ranks has one of four experts, and a row of each token goes to one of them.
const std::string kExperts =
    "rehearse: 1\nmodel: {family: moe, layers: 3, hidden: 1024, heads: 4, vocab: 256, max_seq_len: 512, experts: 4, "
    "experts_per_token: 1, expert_ffn_hidden: 64, capacity_factor: 1}\ncluster: {topology: dgx-a100, gpus: 4}\n"
    "plan: {expert: 4, overlap_grad_reduce: false}\ntraining: {precision: fp32, clip: 0, global_batch: 24}\n";

// Attention and experts of a layer take `ms` each forward, twice that backward: they are what is between two exchanges.
GivenCosts between_exchanges(double ms) {
  return GivenCosts([=](const program::Op& op) {
    for (const char* forward : {"attention.flash_forward", "experts.up.forward"})
      if (ends_with(op.name, forward)) return Time::from_us(1000 * ms);
    for (const char* backward : {"attention.flash_backward", "experts.up.backward_input"})
      if (ends_with(op.name, backward)) return Time::from_us(2000 * ms);
    return Time();
  });
}

double step_seconds(std::vector<std::string> assignments, bool overlaps, const GivenCosts& costs) {
  assignments.push_back(std::string("plan.overlap_expert_exchange=") + (overlaps ? "true" : "false"));
  return simulated(scenario_from(kExperts, assignments), costs, Communication::plain).step_time.seconds();
}

double exchange_seconds() {
  const auto cluster = cluster::build_cluster("dgx-a100", 4, {}, 0, REHEARSE_SOURCE_DIR);
  for (const auto& r : cluster->resources())
    if (r.kind == cluster::ResourceKind::nvlink)
      return (kSpread - 1) / kSpread * kSequence * kWidth * 4 / static_cast<double>(r.capacity.per_s());
  return 0;
}

// The first forward and the last backward have no partner. A layer exchanges rows twice each way.
TEST(ExpertOverlap, HidesEveryExchangeOfAPairBehindLongerComputation) {
  const GivenCosts costs = between_exchanges(1);
  const double hidden = step_seconds({}, false, costs) - step_seconds({}, true, costs);
  EXPECT_NEAR(hidden, (kMicroBatches - 1) * 4 * kLayers * exchange_seconds(), 1e-10);
}

// Where nothing is computed, exchanges are all there is, one after the other.
TEST(ExpertOverlap, HidesNothingBehindNothing) {
  const GivenCosts costs = between_exchanges(0);
  EXPECT_NEAR(step_seconds({}, true, costs), step_seconds({}, false, costs), 1e-10);
}

TEST(ExpertOverlap, OneMicroBatchHasNoPartner) {
  const GivenCosts costs = between_exchanges(1);
  EXPECT_EQ(step_seconds({"training.global_batch=4"}, true, costs),
            step_seconds({"training.global_batch=4"}, false, costs));
}

// A pair gives its output and its gradient at its end, so a stage's pairs must not wait for those of both neighbours:
// the first stage's last backward is done at most p - 1 pairs after the last stage's, which began p - 1 forwards late.
TEST(ExpertOverlap, PairsOfAPipelineKeepEveryStageBusy) {
  constexpr int kStages = 3, kMany = 24;
  for (const std::vector<std::string>& schedule :
       {std::vector<std::string>{"plan.schedule=1f1b"},
        std::vector<std::string>{"plan.schedule=interleaved", "plan.chunks=2", "model.layers=6"}}) {
    std::vector<std::string> plan = {"cluster.gpus=12", "plan.pipeline=3", "training.global_batch=96"};
    plan.insert(plan.end(), schedule.begin(), schedule.end());
    const double layers = schedule.size() > 1 ? 2 : 1, forward = 2e-3 * layers, pair = 3 * forward;
    const double step = step_seconds(plan, true, between_exchanges(1));
    EXPECT_GE(step, kMany * pair) << schedule.front();
    EXPECT_LE(step, kMany * pair + (kStages - 1) * (forward + pair) + kMany * 4 * layers * exchange_seconds() + 1e-4)
        << schedule.front();
  }
}

// Each of a shared expert's products takes `ms`, forward and backward, and no other kernel any time.
GivenCosts of_shared_products(double ms) {
  return GivenCosts([=](const program::Op& op) {
    for (const char* product :
         {"shared.up.forward", "shared.down.forward", "shared.down.backward_input", "shared.up.backward_input"})
      if (ends_with(op.name, product)) return Time::from_us(1000 * ms);
    return Time();
  });
}

double shared_step_seconds(bool overlaps, double ms, std::vector<std::string> more = {}) {
  more.push_back("model.shared_experts=1");
  more.push_back(std::string("plan.overlap_shared_experts=") + (overlaps ? "true" : "false"));
  return simulated(scenario_from(kExperts, more), of_shared_products(ms), Communication::plain).step_time.seconds();
}

// One product beside each of a layer's four exchanges of rows, in every micro-batch: the shorter of both is hidden.
TEST(SharedExpertOverlap, HidesEachExchangeBehindAProduct) {
  constexpr double kExchanges = kMicroBatches * kLayers * 4;
  for (const double ms : {1.0, 0.001}) {
    const double hidden = shared_step_seconds(false, ms) - shared_step_seconds(true, ms);
    EXPECT_NEAR(hidden, kExchanges * std::min(exchange_seconds(), 1e-3 * ms), 1e-10) << ms;
  }
  EXPECT_GT(exchange_seconds(), 1e-6) << "the second product is the longer one too";
}

}  // namespace
}  // namespace rehearse
