// Ranks on devices of two kinds, a layer on the second taking twice as long: by_time's pipeline against the closed form
// of equal stages, and replicas that wait for the slower one.
#include <gtest/gtest.h>

#include "sim/run/prepared.h"
#include "tests/support/simulated.h"

namespace rehearse {
namespace {

constexpr Time kLayerForward = Time::from_us(100), kLayerBackward = Time::from_us(200);
constexpr char kTwoDevices[] =
    "rehearse: 1\nmodel: {family: gpt, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n"
    "cluster: {nodes: [{topology: dgx-h100, count: 1}, {topology: dgx-a100, count: 1}], gpus: 2, placement: [0, 8]}\n";

// Two ranks, one on each kind of node; transfers, launches and the reuse of memory take no time.
class TwoKinds {
 public:
  explicit TwoKinds(const std::vector<std::string>& assignments) : scenario_(scenario_from(kTwoDevices, assignments)) {
    scenario_.framework.launch_cost = Time();
    scenario_.framework.allocator = plan::Allocator::caching;
    options_.data_root = REHEARSE_SOURCE_DIR;
    auto machine = std::make_shared<run::Machine>(scenario_, options_);
    machine->costs = std::make_unique<GivenCosts>(block_costs(kLayerForward, kLayerBackward));
    machine->others.front() = std::make_unique<GivenCosts>(block_costs(kLayerForward * 2, kLayerBackward * 2));
    machine->collectives = run::Collectives(collective::make_free_model(), *machine->cluster, run::Fidelity::flow);
    options_.machine = std::move(machine);
    prepared_ = std::make_unique<run::Prepared>(scenario_, options_);
  }
  engine::Outcome simulate(bool fold) const {
    engine::Options options = prepared_->engine_options();
    options.fold = fold;
    return prepared_->simulate(options);
  }
  const run::Prepared& prepared() const { return *prepared_; }

 private:
  plan::Scenario scenario_;
  run::Options options_;
  std::unique_ptr<run::Prepared> prepared_;
};

TEST(MixedPipeline, ByTimeMakesStagesEqualAndTheStepTheirClosedForm) {
  for (const int m : {1, 4, 16}) {
    const TwoKinds two({"model.layers=6", "plan.pipeline=2", "plan.layers_per_stage=by_time",
                        "training.global_batch=" + std::to_string(m)});
    EXPECT_EQ(two.prepared().scenario().plan.layers_per_stage, (std::vector<std::int64_t>{4, 2}))
        << "four layers of 300 us and two of 600 us";
    for (const bool fold : {true, false})
      EXPECT_EQ(two.simulate(fold).step_time, (kLayerForward + kLayerBackward) * 4 * (m + 1)) << m << " micro-batches";
  }
}

TEST(MixedPipeline, AnEvenSplitIsPacedByTheSlowerStage) {
  const int m = 16;
  const TwoKinds two({"model.layers=6", "plan.pipeline=2", "training.global_batch=" + std::to_string(m)});
  // Stages of 900 and 1800 us: the first one's forward and backward of a micro-batch, and all of the second one's.
  EXPECT_EQ(two.simulate(true).step_time,
            (kLayerForward + kLayerBackward) * 3 + (kLayerForward + kLayerBackward) * 6 * m);
}

TEST(MixedReplicas, WaitForTheSlowerDevice) {
  const TwoKinds two({"model.layers=6", "training.global_batch=2"});
  for (const bool fold : {true, false}) {
    const engine::Outcome outcome = two.simulate(fold);
    EXPECT_EQ(outcome.step_time, (kLayerForward + kLayerBackward) * 12);
    EXPECT_NEAR(share(outcome, result::Share::compute), 0.75, 1e-12) << "one rank computes half of the step";
    EXPECT_EQ(outcome.ranks_simulated, 2);
  }
}

}  // namespace
}  // namespace rehearse
