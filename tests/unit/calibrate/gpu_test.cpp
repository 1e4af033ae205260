// Calibrating a GPU that is made up: 132 multiprocessors, tiles of 128 x 128, every wave of K = k takes k nanoseconds,
// and every other kernel a microsecond and its bytes at 2 TB/s. Its clock goes forward only by what it is asked to do.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "calibrate/gpu/gpu_calibrate.h"
#include "calibrate/gpu/kernels_to_time.h"
#include "calibrate/kernel_times.h"
#include "sim/cost/kernel_shape.h"
#include "sim/program/work.h"
#include "tests/support/temporary.h"

namespace rehearse::calibrate::gpu {
namespace {

namespace fs = std::filesystem;

struct FakeClock {
  double now = 100;
};

class FakeRun final : public Run {
 public:
  FakeRun(FakeClock& clock, double seconds, double slowdown_after)
      : clock_(clock), seconds_(seconds), hot_(slowdown_after) {}
  double launch(int launches) override {
    launched += launches;
    const double taken = launches * seconds_ * (total_ > 0.3 ? hot_ : 1);  // the clock drops after that much work
    clock_.now += taken + 1e-5;
    total_ += taken;
    return taken;
  }
  Choice choice() override { return {"id 1 tile 128x128", {128, 128}, 4, 1, 0, seconds_, seconds_}; }
  int launched = 0;

 private:
  FakeClock& clock_;
  double seconds_, hot_, total_ = 0;
};

class FakeBench final : public Bench {
 public:
  double now() override { return clock.now; }
  Facts facts() override {
    Facts f;
    f.name = "NVIDIA Made Up 80GB";
    f.sms = 132, f.major = 9, f.minor = 0;
    f.memory_bytes = std::int64_t{80} << 30, f.l2_bytes = 50 << 20;
    f.memory_bandwidth = 2.5e12;
    f.devices = devices;
    f.driver = "580.1", f.runtime = "13.0", f.nccl = "2.28.9";
    return f;
  }
  State state() override { return {true, 1500, 2600, 1980, 50, 400, 700, true, 0}; }
  std::unique_ptr<Run> kernel(const Kernel& k) override {
    asked.push_back(k.weight);
    if (on_kernel) on_kernel();
    clock.now += 0.001;
    return std::make_unique<FakeRun>(clock, seconds_of(k), 1.1);
  }
  // A fifth less than alone for memory's kernels, a tenth more for products; ten spans of each op.
  Walk walk(const plan::Scenario&, const program::Program& p, int stage, int steps,
            const std::function<void()>&) override {
    Walk walk;
    if (!walks) return walk;
    walked_steps.push_back(steps);
    const program::Role& role = p.roles[static_cast<std::size_t>(stage)];
    for (const program::Body& body : role.bodies)
      for (const program::Op& op : body.ops) {
        if (!is_kernel(op) || std::holds_alternative<program::Input>(op.shape)) continue;
        const double alone = seconds_of({nullptr, &role, &op});
        if (const auto* g = std::get_if<program::Gemm>(&op.shape))
          walk.products.push_back({cost::form_text(cost::product_key(role, op)), g->m, g->n, g->k, "id 7"});
        const double factor = std::holds_alternative<program::Gemm>(op.shape) ? 1.1 : 0.8;
        std::vector<double> spans(9, alone * factor);
        spans.push_back(alone * 50);  // one that was held up
        walk.ops.push_back({&role, &op, std::move(spans)});
        clock.now += steps * alone;
      }
    walk.conditions.samples = 3;
    walk.conditions.sm_mhz = 1755, walk.conditions.least_sm_mhz = 1700, walk.conditions.max_sm_mhz = 1980;
    return walk;
  }
  double copy(const std::string& direction, std::int64_t bytes) override {
    clock.now += 0.001;
    if (direction == "to_peer" && devices == 1) return 0;
    return 1e-6 + static_cast<double>(bytes) / (direction == "on_device" ? 1e12 : 5e10);
  }
  std::int64_t reserve() override { return 700'000'000; }
  cost::LaunchTimes launches() override { return {2.5e-6, 0.4e-6, 1e-6, 0.7e-6}; }
  double beside(const Kernel&, int& sms, double&) override { return 1 + sms / 100.0; }
  std::vector<Transfer> transfers(double) override {
    std::vector<Transfer> list;
    for (const std::int64_t bytes : {1024, 1048576})
      list.push_back({"all_reduce", 2, bytes, "free", "free", 1e-5, 9e-6, 1.1e-5, 20});
    list.push_back({"all_reduce", 2, 1048576, "Ring", "LL128", 1.2e-5, 9e-6, 1.3e-5, 20});
    list.push_back({"send", 2, 1048576, "free", "free", 8e-6, 7e-6, 9e-6, 20});
    return list;
  }
  static double seconds_of(const Kernel& k) {
    if (const auto* g = std::get_if<program::Gemm>(&k.op->shape)) {
      const double tiles = std::ceil(g->m / 128.0) * std::ceil(g->n / 128.0);
      return std::ceil(tiles / 132) * 1e-9 * static_cast<double>(g->k) + 2e-6;
    }
    const program::Work w = program::work_of(*k.role, *k.op);
    return 1e-6 + w.flops / 4e14 + static_cast<double>(w.bytes_read + w.bytes_written) / 2e12;
  }
  FakeClock clock;
  int devices = 1;
  bool walks = false;
  std::vector<int> walked_steps;
  std::vector<double> asked;
  std::function<void()> on_kernel;
};

plan::Scenario small_gpt(std::int64_t micro_batch) {
  plan::Scenario s;
  s.name = "small";
  s.model.name = "small";
  s.model.layers = 2;
  s.model.hidden = 1024;
  s.model.head_dim = 64;
  s.model.heads = s.model.kv_heads = 16;
  s.model.ffn_hidden = 4096;
  s.model.vocab = 50304;
  s.model.max_seq_len = 1024;
  s.plan.layers_per_stage = {2};
  s.plan.micro_batch = micro_batch;
  s.training.global_batch = 4 * micro_batch;
  s.training.seq_len = 1024;
  s.training.precision = plan::Precision::bf16;
  return s;
}

GpuRequest request_of(double budget) {
  GpuRequest r;
  r.scenarios = {small_gpt(4), small_gpt(8)};
  r.budget_s = budget;
  r.command = "rehearse calibrate --device cuda";
  return r;
}

TEST(KernelsToTime, TheScenariosComeFirstByWhatTheyTake) {
  const KernelsToTime list({small_gpt(4)});
  ASSERT_GT(list.kernels().size(), 60U);
  for (std::size_t i = 1; i < list.kernels().size(); ++i)
    EXPECT_GE(list.kernels()[i - 1].weight, list.kernels()[i].weight);
  // The logits' products, 4096 x 50304 x 1024, dominate a two-layer model.
  const auto& first = std::get<program::Gemm>(list.kernels().front().op->shape);
  EXPECT_TRUE(first.m == 50304 || first.n == 50304 || first.k == 50304);
  std::set<std::string> keys;
  for (const Kernel& k : list.kernels())
    EXPECT_TRUE(keys.insert(key_of(*k.role, *k.op)).second) << key_of(*k.role, *k.op);
}

TEST(KernelsToTime, HeldOutSizesLieBetweenMeasuredOnesAndAreNotThoseOfScenarios) {
  const KernelsToTime list({small_gpt(4)});
  int held_out = 0;
  for (const Kernel& k : list.kernels()) {
    if (!k.held_out) continue;
    ++held_out;
    EXPECT_EQ(k.weight, 0);
    cost::ProductKey key = cost::product_key(*k.role, *k.op);
    const std::int64_t tokens = tokens_of(key);
    bool below = false, above = false;
    for (const Kernel& other : list.kernels()) {
      const auto* g = std::get_if<program::Gemm>(&other.op->shape);
      if (g == nullptr || g->batch != 1 || other.held_out) continue;
      cost::ProductKey o = cost::product_key(*other.role, *other.op);
      const std::int64_t at = std::exchange(tokens_of(o), tokens);
      if (o != key) continue;
      below |= at<tokens, above |= at> tokens;
    }
    EXPECT_TRUE(below && above) << key.m << ' ' << key.n << ' ' << key.k;
  }
  EXPECT_GE(held_out, 12);
  EXPECT_LE(held_out, 24);
}

TEST(GpuTiming, WarmsUpAndThenTakesWhatTheProtocolAsksFor) {
  FakeClock clock;
  FakeRun run(clock, 1e-3, 1);  // a millisecond: graphs of two, 100 ms are 50 of them
  const Samples s = time_burst(
      run, {}, [&] { return clock.now; }, clock.now + 10);
  EXPECT_TRUE(s.complete);
  EXPECT_EQ(s.seconds.size(), 50U);
  EXPECT_NEAR(s.seconds.front(), 1e-3, 1e-12);
  EXPECT_GE(run.launched, 100 + 10);
}

TEST(GpuTiming, AShortAllowanceIsKeptAndSaid) {
  FakeClock clock;
  FakeRun run(clock, 1e-3, 1);
  const double began = clock.now;
  const Samples s = time_burst(
      run, {}, [&] { return clock.now; }, began + 0.02);
  EXPECT_FALSE(s.complete);
  EXPECT_GE(s.seconds.size(), 1U);
  EXPECT_LT(clock.now - began, 0.03);
}

TEST(GpuTiming, ALongRunCountsItsSecondHalf) {
  FakeClock clock;
  FakeRun a(clock, 1e-3, 1.25), b(clock, 2e-3, 1.25);  // both are at 1.25 soon
  const auto medians = time_sustained({&a, &b}, 10, [&] { return clock.now; });
  EXPECT_NEAR(medians[0], 1.25e-3, 1e-9);
  EXPECT_NEAR(medians[1], 2.5e-3, 1e-9);
}

class GpuCalibrations : public testing::Test {
 protected:
  std::string write(const GpuOutcome& outcome) {
    file_ = test::temporary_path("made-up.yaml");
    std::ofstream(file_) << to_yaml(outcome.calibration);
    return file_;
  }
  void TearDown() override { fs::remove(file_); }
  FakeBench bench_;
  std::string file_;
};

TEST_F(GpuCalibrations, ABudgetIsKeptWhateverItIs) {
  for (const double budget : {0.5, 2.0, 15.0, 60.0}) {
    FakeBench bench;
    bench.walks = true;
    const double began = bench.clock.now;
    const GpuOutcome outcome = calibrate_gpu(bench, request_of(budget));
    EXPECT_LT(bench.clock.now - began, budget * 1.05 + 0.5) << budget;
    EXPECT_EQ(outcome.shortfalls.empty(), budget > 50) << budget;  // about 250 kernels of a tenth of a second each
  }
}

TEST_F(GpuCalibrations, ScenariosAreCoveredBeforeTheGrid) {
  const GpuOutcome outcome = calibrate_gpu(bench_, request_of(60));
  EXPECT_NEAR(outcome.covered, 1, 1e-9);
  FakeBench short_bench;
  const GpuOutcome less = calibrate_gpu(short_bench, request_of(0.3));
  EXPECT_LT(less.covered, 1);
  EXPECT_GT(less.covered, 0.3);  // the heaviest first
}

TEST_F(GpuCalibrations, TheFileIsReadBackAndPredictsHeldOutShapes) {
  const std::string file = write(calibrate_gpu(bench_, request_of(60)));
  const auto costs = cost::load_costs({file});
  EXPECT_EQ(costs->device().name, "made-up-80gb");
  EXPECT_EQ(costs->device().sms, 132);
  EXPECT_EQ(costs->device().reserve, Bytes(700'000'000));
  // The clock drops by 1.1 in the long run: burst / long run = 1 / 1.1.
  EXPECT_NEAR(costs->device().sustained, 1 / 1.1, 1e-3);
  const std::vector<HeldOut> held_out = check_held_out(file);
  ASSERT_GE(held_out.size(), 6U);
  for (const HeldOut& h : held_out) {
    EXPECT_EQ(h.coverage, cost::Coverage::interpolated) << h.what;
    EXPECT_NEAR(h.predicted / h.measured, 1, 0.02) << h.what;
  }
}

TEST_F(GpuCalibrations, AProgramsKernelsAreExact) {
  const std::string file = write(calibrate_gpu(bench_, request_of(60)));
  const auto costs = cost::load_costs({file});
  const KernelsToTime list({small_gpt(4)});
  for (const Kernel& k : list.kernels()) {
    if (k.weight <= 0) break;
    const cost::Estimate e = costs->kernel(*k.role, *k.op, {});
    EXPECT_EQ(e.coverage, cost::Coverage::exact) << key_of(*k.role, *k.op);
    const bool product = std::holds_alternative<program::Gemm>(k.op->shape);
    const double expected = FakeBench::seconds_of(k) * (product ? 1.1 : 1);
    EXPECT_NEAR(e.duration.seconds() / expected, 1, 1e-3) << key_of(*k.role, *k.op);
  }
}

TEST_F(GpuCalibrations, KernelsOfAWalkTakeWhatTheyTookInItsSteps) {
  bench_.walks = true;
  GpuRequest request = request_of(60);
  request.scenarios.push_back(small_gpt(2));
  request.not_walked = {1};  // micro-batches of 8
  const GpuOutcome outcome = calibrate_gpu(bench_, request);
  EXPECT_EQ(outcome.calibration.walks.size(), 2U);
  ASSERT_EQ(bench_.walked_steps.size(), 2U);
  for (const int steps : bench_.walked_steps) EXPECT_GE(steps, 5);
  const std::string file = write(outcome);
  const auto costs = cost::load_costs({file});
  const KernelsToTime walked({small_gpt(4)}, false), others({small_gpt(8)}, false);
  int long_ones = 0, not_walked = 0;
  std::set<std::string> known;
  for (const Kernel& k : walked.kernels()) {
    known.insert(key_of(*k.role, *k.op));
    const double alone = FakeBench::seconds_of(k);
    const bool product = std::holds_alternative<program::Gemm>(k.op->shape);
    const double in_step = alone * (product ? 1.1 : 0.8);
    const double measured = costs->kernel(*k.role, *k.op, {}).duration.seconds();
    if (in_step >= 20e-6) {
      ++long_ones;
      EXPECT_NEAR(measured / in_step, 1, 1e-3) << key_of(*k.role, *k.op);
    } else if (!product) {
      // An event's microsecond is too much of it; what is long enough alone takes its class's ratio.
      EXPECT_NEAR(measured / alone, alone >= 20e-6 ? 0.8 : 1, 1e-3) << key_of(*k.role, *k.op);
    }
  }
  EXPECT_GT(long_ones, 10);
  for (const Kernel& k : others.kernels()) {
    if (known.contains(key_of(*k.role, *k.op)) || std::holds_alternative<program::Gemm>(k.op->shape)) continue;
    if (cost::is_flash(*k.op)) continue;
    // What no walk met takes what steps made of the kernels of its class that it did.
    const double measured = costs->kernel(*k.role, *k.op, {}).duration.seconds(), alone = FakeBench::seconds_of(k);
    EXPECT_NEAR(measured / alone, alone >= 20e-6 ? 0.8 : 1, 1e-3) << "not walked: " << key_of(*k.role, *k.op);
    not_walked += alone >= 20e-6 ? 1 : 0;
  }
  EXPECT_GT(not_walked, 5);
  // Products that no walk met take the factor of those that it did: burst / step = 1 / 1.1.
  EXPECT_NEAR(costs->device().sustained, 1 / 1.1, 1e-3);
  EXPECT_NE(to_yaml(outcome.calibration).find("walk_1: \"small: SM 1755 (1700 at least) of 1980 MHz"),
            std::string::npos);
}

TEST_F(GpuCalibrations, PlansThatARankAloneCannotPerformAreNotWalkedAndSaidSo) {
  bench_.walks = true;
  GpuRequest request = request_of(60);
  request.scenarios.push_back(small_gpt(2));
  request.scenarios.back().plan.context = 2;  // by ring
  const GpuOutcome outcome = calibrate_gpu(bench_, request);
  EXPECT_EQ(outcome.calibration.walks.size(), 2U);
  ASSERT_FALSE(outcome.shortfalls.empty());
  EXPECT_NE(std::find(outcome.shortfalls.begin(), outcome.shortfalls.end(),
                      "1 scenarios could not be walked; the first: a rank alone gets no keys of other tokens"),
            outcome.shortfalls.end());
}

// The budget ends before the first burst: what was walked is known all the same.
TEST_F(GpuCalibrations, AWalkAloneIsACalibration) {
  bench_.walks = true;
  GpuRequest request = request_of(0.03);
  request.scenarios = {small_gpt(4)};
  const GpuOutcome outcome = calibrate_gpu(bench_, request);
  EXPECT_TRUE(bench_.asked.empty());
  EXPECT_GT(outcome.covered, 0.6);  // but for the many that take less than 20 us
  ASSERT_FALSE(outcome.calibration.measured.products.empty());
  for (const cost::ProductPoint& p : outcome.calibration.measured.products) EXPECT_EQ(p.algorithm, "id 7");
  const auto costs = cost::load_costs({write(outcome)});
  const KernelsToTime list({small_gpt(4)}, false);
  const Kernel& heaviest = list.kernels().front();
  EXPECT_NEAR(costs->kernel(*heaviest.role, *heaviest.op, {}).duration.seconds(), 1.1 * FakeBench::seconds_of(heaviest),
              1e-7);
}

TEST_F(GpuCalibrations, SeveralDevicesHaveCollectivesAsNcclTestsPrintsThem) {
  bench_.devices = 2;
  const std::string text = to_yaml(calibrate_gpu(bench_, request_of(20)).calibration);
  EXPECT_NE(text.find("all_reduce,2,1,1048576,10,measured"), std::string::npos);
  // 1 MiB in 12 us: 87.38 GB/s; two ranks: bus the same.
  EXPECT_NE(text.find("all_reduce,2,1048576,Ring,LL128,12,87.38,87.38,9,13,20"), std::string::npos);
  EXPECT_NE(text.find("all_to_all,2,1,2097152,8,measured"), std::string::npos);
  EXPECT_EQ(text.find("{of: topology}"), std::string::npos);
}

TEST_F(GpuCalibrations, AnInterruptEndsIt) {
  GpuRequest request = request_of(60);
  bench_.on_kernel = [&] {
    if (bench_.asked.size() == 5) throw std::runtime_error("interrupted");
  };
  EXPECT_THROW(calibrate_gpu(bench_, request), std::runtime_error);
}

// NVML API reference: 0x4 software power cap, 0x40 hardware thermal slowdown; 0x1000 is no reason of today.
// Bursts of three products whose 10th and 90th percentile are 2, 3 and 20 standard deviations of 1% apart, and one that
// was timed once.
TEST(GpuFile, ScatterIsTheMiddleOneOfAClass) {
  cost::MeasuredDevice measured;
  const auto add_product = [&](double p90, std::int64_t repetitions) {
    cost::ProductPoint& p = measured.products.emplace_back();
    p.p10 = 1, p.p90 = p90, p.repetitions = repetitions;
  };
  for (const double apart : {2.0, 2 * 1.2816, 20.0}) add_product(std::exp(0.01 * apart), 20);
  add_product(9, 1);
  cost::ShapePoint& attention = measured.shapes.emplace_back();
  attention.kind = "flash_attention_forward";
  attention.p10 = attention.p90 = 1, attention.repetitions = 20;
  const cost::Jitter jitter = jitter_of(measured);
  EXPECT_NEAR(jitter.kernels[0], 0.01, 1e-9);
  EXPECT_EQ(jitter.kernels[1], 0);
  EXPECT_EQ(jitter.kernels[2], 0) << "none was measured";
  EXPECT_FALSE(jitter_of({}).any());
}

TEST(GpuFile, ReasonsOfThrottlingInWords) {
  EXPECT_EQ(kernels::throttle_text(0), "none");
  EXPECT_EQ(kernels::throttle_text(0x44), "sw_power_cap+hw_thermal");
  EXPECT_EQ(kernels::throttle_text(0x1001), "idle+other");
}

TEST(GpuFile, NamesOfDevices) {
  EXPECT_EQ(device_name("NVIDIA H100 80GB HBM3"), "h100-80gb-hbm3");
  EXPECT_EQ(device_name("NVIDIA A100-SXM4-40GB"), "a100-sxm4-40gb");
  EXPECT_EQ(device_name("Tesla T4"), "tesla-t4");
  EXPECT_EQ(device_name(""), "gpu");
}

}  // namespace
}  // namespace rehearse::calibrate::gpu
