// Transfers between threads, and which of them a program makes.
#include "calibrate/transfers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "calibrate/calibrate.h"
#include "calibrate/machine.h"
#include "execute/transport/gloo/gloo_wire.h"
#include "tests/support/lowered.h"
#include "tests/support/small_gpt.h"

namespace rehearse::calibrate {
namespace {

using program::CollectiveKind;

constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                     CollectiveKind::reduce_scatter, CollectiveKind::broadcast,
                                     CollectiveKind::all_to_all};

// Every kind after the other between the same ranks, and messages to and fro.
void expect_times(const MakeRankGroup& make) {
  RankMemory memory;
  RankGroup three = make(3), two = make(2);
  for (const auto kind : kKinds) {
    const auto samples = measure_transfer({false, kind, 3, 1200}, three, 0.01, Budget(60, {}), memory);
    EXPECT_GE(samples.size(), 5u);
    for (const double s : samples) EXPECT_GT(s, 0);
  }
  for (const std::int64_t bytes : {4, 4096}) {
    const auto samples =
        measure_transfer({true, CollectiveKind::all_reduce, 2, bytes}, two, 0.01, Budget(60, {}), memory);
    EXPECT_GE(samples.size(), 5u);
    for (const double s : samples) EXPECT_GT(s, 0);
  }
}

TEST(Transfers, EveryKindTakesTimeBetweenThreads) {
  expect_times(make_local_group);
}

TEST(Transfers, EveryKindTakesTimeOverGloo) {
  if (!execute::gloo_available()) GTEST_SKIP() << "built without Gloo";
  expect_times(make_gloo_group);
}

// A busy machine may leave no time for transfers; simulations of this host need two kinds of them all the same.
TEST(Transfers, WhatNoSimulationGoesWithoutIsMeasuredWhenTheBudgetIsSpent) {
  Request request;
  request.budget_s = 1e-3;
  const cost::Calibration made = calibrate(request).calibration;
  for (const TransferKey& key : least_transfers())
    EXPECT_EQ(std::count_if(made.transfers.begin(), made.transfers.end(),
                            [&](const cost::CalibratedTransfer& t) {
                              return t.transport == cost::Transport::local && t.send == key.send &&
                                     t.kind == key.kind && t.ranks == key.ranks && t.bytes == key.bytes;
                            }),
              1)
        << key.bytes << " bytes";
}

TEST(Transfers, TheBudgetEndsThemInTheMiddle) {
  std::vector<MakeRankGroup> groups = {make_local_group};
  if (execute::gloo_available()) groups.emplace_back(make_gloo_group);
  for (const MakeRankGroup& make : groups) {
    RankMemory memory;
    RankGroup group = make(2);
    const auto began = std::chrono::steady_clock::now();
    const auto samples =
        measure_transfer({false, CollectiveKind::all_reduce, 2, 16 << 20}, group, 60, Budget(0.05, {}), memory);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30)) << "of the 60 that were asked for";
    for (const double s : samples) EXPECT_GT(s, 0) << "what was measured until then stands";
  }
}

TEST(Transfers, TheBudgetEndsThemEvenIfOneNeverCame) {
  class Absent : public execute::Communicator {
   public:
    std::atomic<bool> stopped = false;
    using Time = execute::Arrival;
    Time all_reduce(const execute::CollectiveCall&, program::ReduceOp, kernels::In, kernels::Out,
                    std::int64_t) override {
      while (!stopped) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      throw execute::Stopped(std::vector<int>());
    }
    Time all_gather(const execute::CollectiveCall&, kernels::In, kernels::Out, std::int64_t) override { return {}; }
    Time reduce_scatter(const execute::CollectiveCall&, kernels::In, kernels::Out, std::int64_t) override { return {}; }
    Time broadcast(const execute::CollectiveCall&, kernels::In, kernels::Out, std::int64_t) override { return {}; }
    Time reduce(const execute::CollectiveCall&, program::ReduceOp, kernels::In, kernels::Out, std::int64_t) override {
      return {};
    }
    Time all_to_all(const execute::CollectiveCall&, kernels::In, kernels::Out, std::int64_t) override { return {}; }
    Time all_to_all_parts(const execute::CollectiveCall&, kernels::In, kernels::Out, const execute::Parts&) override {
      return {};
    }
    Time exchange(std::span<const execute::Message>) override { return {}; }
    std::string_view way(CollectiveKind, std::int64_t, std::int64_t, program::DType) const override { return ""; }
  };
  Absent absent;
  RankGroup group{nullptr, {&absent, &absent}, [&] { absent.stopped = true; }};
  RankMemory memory;
  EXPECT_TRUE(
      measure_transfer({false, CollectiveKind::all_reduce, 2, 4096}, group, 1, Budget(0.05, {}), memory).empty());
}

TEST(Transfers, AProgramsAreExactInRanksAndBytes) {
  const Target target = make_target(scenario_from(kSmallGpt, {"cluster.gpus=8"}));
  const std::vector<TransferKey> keys = transfers_of({target, target});
  EXPECT_EQ(std::set<TransferKey>(keys.begin(), keys.end()).size(), keys.size());
  const auto has = [&](const TransferKey& k) { return std::find(keys.begin(), keys.end(), k) != keys.end(); };
  // Tensor parallel: activations [8 positions, 1 sequence, 16] of 4 bytes, all-reduced by 2. Pipeline: the same tensor,
  // in halves that the receivers gather.
  EXPECT_TRUE(has({false, CollectiveKind::all_reduce, 2, 8 * 16 * 4}));
  EXPECT_TRUE(has({true, CollectiveKind::all_reduce, 2, 8 * 16 * 4 / 2}));
  for (const TransferKey& k : keys) {
    EXPECT_GE(k.ranks, 2);
    EXPECT_GT(k.bytes, 0);
  }
}

TEST(Transfers, TheGridBeginsWithWhatTellsMost) {
  const auto keys = transfer_grid(4);
  EXPECT_EQ(keys.front(), (TransferKey{false, CollectiveKind::all_reduce, 2, 1024}));
  EXPECT_TRUE(std::find(keys.begin(), keys.end(), TransferKey{false, CollectiveKind::all_reduce, 4, 64 << 20}) !=
              keys.end());
  for (const TransferKey& k : keys) {
    EXPECT_EQ(k.bytes % (4 * k.ranks), 0) << "parts of whole numbers";
    EXPECT_LE(k.ranks, 4);
  }
}

TEST(Transfers, EachKeyIsMeasuredOnceAndWhatWouldTakeTooLongNotAtAll) {
  JitterSamples jitter;
  const TransferKey small{false, CollectiveKind::all_reduce, 2, 1024},
      huge{false, CollectiveKind::all_reduce, 2, 1LL << 40};
  const auto found =
      measure_transfers({small, small, huge}, cost::Transport::local, make_local_group, 0.2, Budget(60, {}), jitter);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].ranks, 2);
  EXPECT_EQ(found[0].bytes, 1024);
  EXPECT_GT(found[0].time.p50, 0);
  EXPECT_GE(found[0].repetitions, 2);
  EXPECT_EQ(jitter.jitter().kernels[0], 0);  // transfers have no kernels
}

TEST(Machine, SharingIsNoGainAndASingleCoreSharesWithNobody) {
  for (const auto& row : measure_sharing(1, 1, Budget(60, {})))
    for (const double s : row) EXPECT_EQ(s, 1);
  for (const auto& row : measure_sharing(2, 0.05, Budget(60, {})))
    for (const double s : row) EXPECT_GE(s, 1);
}

TEST(Machine, AProductOfAProgramMayBeTheBest) {
  const auto product = [](int threads, int busy, double p10, int repetitions) {
    cost::CalibratedKernel k;
    k.kind = "gemm";
    k.flops = 100;
    k.threads = threads;
    k.busy = busy;
    k.time.p10 = p10;
    k.repetitions = repetitions;
    return k;
  };
  EXPECT_EQ(best_product_rate({}, 2), 0);
  EXPECT_DOUBLE_EQ(best_product_rate({product(1, 2, 1, 9), product(2, 2, 1, 9)}, 2), 200) << "two at a time";
  EXPECT_DOUBLE_EQ(best_product_rate({product(2, 2, 1, 9), product(1, 1, 0.1, 9), product(2, 2, 0.1, 2)}, 2), 100)
      << "not all cores; too few samples";
}

TEST(Machine, PeaksArePositive) {
  const Peaks peaks = measure_peaks(1, 0.02, Budget(60, {}));
  EXPECT_GT(peaks.flops, 0);
  EXPECT_GT(peaks.bandwidth, 0);
}

}  // namespace
}  // namespace rehearse::calibrate
