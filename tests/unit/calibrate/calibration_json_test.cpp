// What is written is what sim/cost reads back, to the last bit; and one calibration added to another.
#include "calibrate/calibration_json.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "calibrate/calibrate.h"
#include "calibrate/made.h"
#include "tests/support/temporary.h"

namespace rehearse::calibrate {
namespace {

using cost::Calibration;
using cost::Origin;
using cost::Transport;
using program::CollectiveKind;

Calibration example() {
  Calibration c;
  c.name = "this host";
  c.host = {"box", "Some \"CPU\" @ 2.1GHz", 2, 25'276'502'016, "x86-64-v3", "6.18"};
  c.made = provenance("rehearse calibrate --budget 1.5", 1.5);
  c.made.wall_s = 1.4;
  c.peak_flops = 1.1e11;
  c.memory_bandwidth = 1.23456789012345e10;
  c.dispatch_s = 4.1e-7;
  c.wake_s = 1e-5;
  c.kernels = {{"gemm",
                "m=2 n=3 k=4 transpose_b",
                program::DType::f32,
                1,
                2,
                48,
                104,
                {1e-6, 2e-6, 3e-6},
                2.1e-6,
                40,
                Origin::program},
               {"input", "elements=8", program::DType::i32, 2, 2, 0, 32, {1e-9, 1e-9, 1.0 / 3}, 2e-8, 1, Origin::grid}};
  c.transfers = {{Transport::local, false, CollectiveKind::reduce_scatter, 3, 1032, {1e-5, 2e-5, 3e-5}, 100},
                 {Transport::gloo, true, CollectiveKind::all_reduce, 2, 4096, {1e-5, 2e-5, 2e-5}, 7}};
  c.slowdown[0][1] = 1.07;
  c.slowdown[2][2] = 1.9;
  c.jitter = {.kernels = {0.01, 0.02, 0.1},
              .transfers = 0.2,
              .waking = 0.3,
              .rank_step = 0.04,
              .step = 0.05,
              .kernel_delays = {},
              .transfer_delays = {0.01, 4e-3, 0.9},
              .waking_delays = {0.02, 3e-3, 0.8},
              .dispatch_delays = {1e-4, 2e-3, 0.7}};
  c.kernel_delays = {{1, 2, {12.5, 3.3e-3, 0.6}}, {2, 2, {7.5, 1e-3, 0.5}}};
  c.pace = {.probes = 5,
            .product_s = 0.011,
            .copy_s = 0.006,
            .spread = 0.07,
            .taken = 0.3,
            .stolen = 0.01,
            .waited = 0.2,
            .cores = 2,
            .wanted = 1.5};
  return c;
}

Calibration read_back(const Calibration& c) {
  const std::string path = test::temporary_path("calibration.json");
  std::ofstream(path) << to_json(c);
  Calibration found = cost::read_calibration(path);
  std::filesystem::remove(path);
  return found;
}

TEST(CalibrationJson, WhatIsWrittenIsReadBack) {
  const Calibration c = example(), r = read_back(c);
  EXPECT_EQ(r.name, c.name);
  EXPECT_TRUE(r.host.same_machine(c.host));
  EXPECT_EQ(r.host.memory_bytes, c.host.memory_bytes);
  EXPECT_EQ(r.host.kernel, c.host.kernel);
  EXPECT_EQ(r.made.date, c.made.date);
  EXPECT_EQ(r.made.command, c.made.command);
  EXPECT_EQ(r.made.compiler, c.made.compiler);
  EXPECT_EQ(r.made.eigen, c.made.eigen);
  EXPECT_EQ(r.made.budget_s, 1.5);
  EXPECT_EQ(r.made.wall_s, 1.4);
  EXPECT_EQ(r.peak_flops, c.peak_flops);
  EXPECT_EQ(r.memory_bandwidth, c.memory_bandwidth);
  EXPECT_EQ(r.dispatch_s, c.dispatch_s);
  EXPECT_EQ(r.wake_s, c.wake_s);
  EXPECT_EQ(r.slowdown, c.slowdown);
  EXPECT_EQ(to_json(r), to_json(c));
}

TEST(CalibrationJson, ScatterAndPaceAreReadBack) {
  const Calibration c = example(), r = read_back(c);
  EXPECT_EQ(r.jitter.kernels, c.jitter.kernels);
  EXPECT_EQ(std::tuple(r.jitter.transfers, r.jitter.waking, r.jitter.rank_step, r.jitter.step),
            std::tuple(c.jitter.transfers, c.jitter.waking, c.jitter.rank_step, c.jitter.step));
  const auto values = [](const cost::Delays& d) { return std::tuple(d.rate, d.mean_s, d.spread); };
  EXPECT_EQ(values(r.jitter.transfer_delays), values(c.jitter.transfer_delays));
  EXPECT_EQ(values(r.jitter.waking_delays), values(c.jitter.waking_delays));
  EXPECT_EQ(values(r.jitter.dispatch_delays), values(c.jitter.dispatch_delays));
  ASSERT_EQ(r.kernel_delays.size(), 2U);
  EXPECT_EQ(r.kernel_delays[1].threads, 2);
  EXPECT_EQ(values(r.kernel_delays[0].delays), values(c.kernel_delays[0].delays));
  EXPECT_EQ(std::tuple(r.pace.probes, r.pace.product_s, r.pace.copy_s, r.pace.spread, r.pace.taken, r.pace.stolen),
            std::tuple(5, 0.011, 0.006, 0.07, 0.3, 0.01));
  EXPECT_EQ(std::tuple(r.pace.waited, r.pace.cores, r.pace.wanted), std::tuple(0.2, 2, 1.5));
}

// A calibration of programs alone stands next to the machine's own.
TEST(CalibrationJson, RefreshingKeepsWhatIsOfTheMachine) {
  const Calibration older = example();
  Calibration newer = example();
  newer.peak_flops = newer.memory_bandwidth = 0;
  newer.slowdown = {};
  newer.kernels.pop_back();
  newer.kernels[0].mean = 7e-6;
  newer.kernel_delays = {{1, 2, {99, 1e-3, 0.1}}};
  newer.pace.taken = 0.6;
  newer.jitter = {};
  newer.jitter.waking = 0.9;
  const Calibration r = refreshed(older, newer);
  EXPECT_EQ(r.peak_flops, older.peak_flops);
  EXPECT_EQ(r.slowdown, older.slowdown);
  ASSERT_EQ(r.kernels.size(), 2U);
  EXPECT_EQ(r.kernels[0].mean, 7e-6);
  EXPECT_EQ(r.pace.taken, 0.6);
  EXPECT_EQ(r.jitter.kernels, older.jitter.kernels);
  EXPECT_EQ(r.jitter.transfers, older.jitter.transfers);
  EXPECT_EQ(r.jitter.waking, 0.9);
  EXPECT_FALSE(r.jitter.waking_delays.any()) << "what was measured together stays together";
  ASSERT_EQ(r.kernel_delays.size(), 2U);
  EXPECT_EQ(cost::nearest_delays(r.kernel_delays, 1, 2).rate, 99);
  EXPECT_EQ(cost::nearest_delays(r.kernel_delays, 2, 2).rate, 7.5);
}

TEST(CalibrationJson, KernelsAndTransfersAreReadBack) {
  const Calibration c = example(), r = read_back(c);
  ASSERT_EQ(r.kernels.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto &a = r.kernels[i], &b = c.kernels[i];
    EXPECT_EQ(std::tuple(a.kind, a.shape, a.dtype, a.threads, a.busy, a.origin, a.repetitions),
              std::tuple(b.kind, b.shape, b.dtype, b.threads, b.busy, b.origin, b.repetitions));
    EXPECT_EQ(std::tuple(a.flops, a.bytes, a.time.p10, a.time.p50, a.time.p90, a.mean),
              std::tuple(b.flops, b.bytes, b.time.p10, b.time.p50, b.time.p90, b.mean));
  }
  ASSERT_EQ(r.transfers.size(), 2u);
  EXPECT_EQ(r.transfers[0].kind, CollectiveKind::reduce_scatter);
  EXPECT_FALSE(r.transfers[0].send);
  EXPECT_EQ(r.transfers[0].ranks, 3);
  EXPECT_TRUE(r.transfers[1].send);
  EXPECT_EQ(r.transfers[1].transport, Transport::gloo);
  EXPECT_EQ(r.transfers[1].bytes, 4096);
  EXPECT_EQ(r.transfers[1].repetitions, 7);
}

TEST(CalibrationJson, MergingKeepsWhatIsNotMeasuredAnewAndReplacesWhatIs) {
  const Calibration older = example();
  Calibration newer = example();
  newer.wake_s = 3e-5;
  newer.kernels[0].mean = 7e-6;
  newer.kernels[1].busy = 1;
  newer.transfers = {older.transfers[1]};
  newer.transfers[0].time.p50 = 2.5e-5;
  const Calibration m = merged(older, newer);
  EXPECT_EQ(m.wake_s, 3e-5);
  ASSERT_EQ(m.kernels.size(), 3u);
  EXPECT_EQ(m.kernels[0].mean, 7e-6);
  EXPECT_EQ(m.kernels[1].busy, 1);
  EXPECT_EQ(m.kernels[2].busy, 2) << "another key";
  ASSERT_EQ(m.transfers.size(), 2u);
  EXPECT_EQ(m.transfers[0].time.p50, 2.5e-5);
  EXPECT_EQ(m.transfers[1].kind, CollectiveKind::reduce_scatter);
}

TEST(CalibrationJson, AGridEntryDoesNotReplaceAProgramsOfTheSameShape) {
  const Calibration older = example();
  Calibration newer = example();
  newer.kernels[0].origin = Origin::grid;
  EXPECT_EQ(merged(older, newer).kernels.size(), 3u);
}

TEST(Made, TheDateIsUtcAndTheBuildIsNamed) {
  const cost::Provenance made = provenance("x", 2);
  EXPECT_EQ(made.date.size(), 20u);
  EXPECT_EQ(made.date.back(), 'Z');
  for (const std::string& text : {made.version, made.compiler, made.eigen}) EXPECT_FALSE(text.empty());
}

// Of every type that a kernel of a CPU's program has.
TEST(CalibrationJson, KernelsOfEveryTypeComeBack) {
  using program::DType;
  for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::u8, DType::e4m3, DType::e5m2}) {
    Calibration c = example();
    c.kernels.front().dtype = type;
    EXPECT_EQ(read_back(c).kernels.front().dtype, type) << name_of(type);
  }
}

}  // namespace
}  // namespace rehearse::calibrate
