// See table.h. Times are processor time of this process (one thread), the least of three runs, or of as many as five
// seconds allow: on a machine that others use too it is what the work takes. Other simulators' times were measured on
// two cores of an Intel Xeon on 2026-11-20, medians of three: ASTRA-sim 518bd51 (its analytical back ends),
// SimGrid 3.32 (models LV08 and CM02); W1 to W3 are the works they were given, and are said in the rows.
#include "table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/run/goodput.h"
#include "sim/run/prepared.h"
#include "sim/run/run.h"
#include "workloads.h"

namespace rehearse::bench {
namespace {

const std::string kRoot = REHEARSE_SOURCE_DIR;
constexpr int kMostRuns = 3;
constexpr double kEnough = 5;  // seconds

using Assignments = std::vector<std::string>;

plan::Scenario scenario(const std::string& name, const Assignments& assignments) {
  return plan::read_scenario(kRoot + "/scenarios/" + name + ".yaml", assignments, kRoot);
}

run::Options plain_options() {
  run::Options options;
  options.data_root = kRoot;
  options.record = false;
  return options;
}

double least_seconds(const std::function<void()>& work) {
  double least = INFINITY, all = 0;
  for (int run = 0; run < kMostRuns && all < kEnough; ++run) {
    const double began = cpu_seconds();
    work();
    const double took = cpu_seconds() - began;
    least = std::min(least, took);
    all += took;
  }
  return least;
}

// A step in the engine, of a program that is lowered and checked.
double step_seconds(const std::string& name, const Assignments& assignments, bool fold) {
  const plan::Scenario s = scenario(name, assignments);
  const run::Options options = plain_options();
  const run::Prepared prepared(s, options);
  engine::Options engine = prepared.engine_options();
  engine.steps = 1;
  engine.fold = fold;
  return least_seconds([&] { prepared.simulate(engine); });
}

// From the scenario's file to the result, two steps.
double run_seconds(const std::string& name, const Assignments& assignments, bool fold) {
  run::Options options = plain_options();
  options.fold = fold;
  return least_seconds([&] { run::simulate_scenario(scenario(name, assignments), options); });
}

// Without its engine: the program lowered and checked, memory laid out, costs and cluster loaded.
double preparing_seconds(const std::string& name, const Assignments& assignments) {
  const run::Options options = plain_options();
  return least_seconds([&] {
    const plan::Scenario s = scenario(name, assignments);
    const run::Prepared prepared(s, options);
  });
}

const std::string kWeeks = "llama3-405b-54-days";

// Samples of the run of 54 days alone, on one thread, of a step as long as the simulated one.
double weeks_seconds() {
  const plan::Scenario s = scenario(kWeeks, {});
  const run::Options options = plain_options();
  const double step_s = Time::from_ps(run::simulate_scenario(s, options).step_time_ps).seconds();
  run::GoodputOptions weeks;
  weeks.days = 54, weeks.samples = 1000, weeks.threads = 1;
  const std::int64_t devices = run::devices_of_host(s, kRoot);
  return least_seconds([&] { run::goodput_of(s, step_s, devices, weeks); });
}

double weeks_step_seconds() {
  return run_seconds(kWeeks, {}, true);
}

std::string time_text(double seconds) {
  if (seconds < 0) return "";
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} s", seconds);
}

struct Row {
  std::string what;
  double budget;  // seconds; negative: none
  std::string peer;
  double peer_seconds;  // negative: none
  std::function<double()> measure;
};

const std::string kGpt3 = "gpt3-175b-1024xa100", kW2 = "peers/gpt3-step-1024";
// Units of the fabric that hold whole stages.
const Assignments kWholeUnits{"cluster.overrides.fabric.nodes_per_unit=16", "cluster.overrides.fabric.units=35"};

std::vector<Row> rows() {
  const auto step = [](std::string name, Assignments a, bool fold) {
    return [name = std::move(name), a = std::move(a), fold] { return step_seconds(name, a, fold); };
  };
  const auto whole = [](std::string name, Assignments a, bool fold) {
    return [name = std::move(name), a = std::move(a), fold] { return run_seconds(name, a, fold); };
  };
  return {
      {"GPT-3 175B, 1,024 A100: a step of every rank", 1, "", -1, step(kGpt3, {}, false)},
      {"the same, folded", 0.1, "", -1, step(kGpt3, {}, true)},
      {"the same where a unit of the fabric holds whole stages", 0.01, "", -1, step(kGpt3, kWholeUnits, true)},
      {"file to result, two steps", 0.025, "Calculon, closed form", 0.0132, whole(kGpt3, kWholeUnits, true)},
      {"file to result on `dgx-a100` as it is", -1, "", -1, whole(kGpt3, {}, true)},
      {"102,400 A100, file to result", 1, "", -1,
       whole(kGpt3, {"cluster.gpus=102400", "cluster.overrides.fabric.units=640", "training.global_batch=153600"},
             true)},
      {"DeepSeek-V3, 2,048 H800, file to result", 0.1, "", -1, whole("deepseek-v3-2048xh800", {}, true)},
      {"the same, every rank", -1, "", -1, whole("deepseek-v3-2048xh800", {}, false)},
      {"54 days of 16,384 H100, 1,000 samples of failures", -1, "", -1, [] { return weeks_seconds(); }},
      {"the same with the simulation of its step", -1, "", -1, [] { return weeks_seconds() + weeks_step_seconds(); }},
      {"Llama 3 405B, 16,384 H100: a step, folded", 0.05, "", -1,
       step("llama3-405b-54-days", {"plan.schedule=1f1b", "plan.chunks=1"}, true)},
      {"the same, every rank", 15, "", -1, step("llama3-405b-54-days", {"plan.schedule=1f1b", "plan.chunks=1"}, false)},
      {"W1: ring all-reduce of 1,024 ranks, 2.10 million messages", 1, "ASTRA-sim, congestion unaware", 3.85,
       [] { return least_seconds([] { ring_of_messages(1024); }); }},
      {"W1: of 4,096 ranks, a flow an edge", 0.05, "ASTRA-sim, congestion unaware", 146.3,
       [] { return least_seconds([] { ring_of_flows(4096); }); }},
      {"W2: a step with given compute times on 1,024, folded, file to result", -1, "ASTRA-sim, congestion unaware",
       125.2, whole(kW2, {}, true)},
      {"W2: every rank", -1, "ASTRA-sim, congestion unaware", 125.2, whole(kW2, {}, false)},
      {"W3: all-to-all of 256 ranks, 65,280 flows at once", 0.2, "SimGrid LV08", 4.64,
       [] { return least_seconds([] { all_to_all_of_messages(256, false); }); }},
      {"all-to-all of unequal parts, 1,024 ranks, a flow a sender", -1, "", -1,
       [] { return least_seconds([] { all_to_all_of_senders(1024, kRoot); }); }},
  };
}

struct Curve {
  std::string what, size;
  std::vector<int> sizes;
  std::function<double(int)> measure;  // seconds
};

std::vector<Curve> curves() {
  const auto gpus = [](int data) {
    return Assignments{fmt::format("cluster.gpus={}", 64 * data), fmt::format("training.global_batch={}", 96 * data)};
  };
  const auto batches = [](int count) { return Assignments{fmt::format("training.global_batch={}", 16 * count)}; };
  const auto layers = [](int count) { return Assignments{fmt::format("model.layers={}", count)}; };
  return {
      {"a step of every rank", "ranks / 64", {2, 4, 8, 16}, [=](int n) { return step_seconds(kGpt3, gpus(n), false); }},
      {"a step, folded",
       "ranks / 64",
       {4, 16, 64, 256},
       [=](int n) {
         Assignments all = gpus(n);
         all.insert(all.end(), {"cluster.overrides.fabric.nodes_per_unit=16", "cluster.overrides.fabric.units=256"});
         return step_seconds(kGpt3, all, true);
       }},
      {"a step, folded",
       "micro-batches",
       {24, 48, 96, 192},
       [=](int n) { return step_seconds(kGpt3, batches(n), true); }},
      {"lowering, check, memory",
       "micro-batches",
       {24, 48, 96, 192},
       [=](int n) { return preparing_seconds(kGpt3, batches(n)); }},
      {"a step, folded", "layers", {24, 48, 96, 192}, [=](int n) { return step_seconds(kGpt3, layers(n), true); }},
      {"lowering, check, memory",
       "layers",
       {24, 48, 96, 192},
       [=](int n) { return preparing_seconds(kGpt3, layers(n)); }},
      {"all-to-all of equal messages",
       "ranks (flows: its square)",
       {32, 64, 128, 256},
       [](int n) { return least_seconds([n] { all_to_all_of_messages(n, false); }); }},
      {"all-to-all of unequal messages",
       "ranks (flows: its square)",
       {16, 32, 64, 128},
       [](int n) { return least_seconds([n] { all_to_all_of_messages(n, true); }); }},
      {"all-to-all of unequal parts, a flow a sender",
       "ranks",
       {128, 256, 512, 1024},
       [](int n) { return least_seconds([n] { all_to_all_of_senders(n, kRoot); }); }},
  };
}

double exponent(const std::vector<int>& sizes, const std::vector<double>& costs) {
  double x = 0, y = 0, xx = 0, xy = 0;
  const auto n = static_cast<double>(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double lx = std::log(sizes[i]), ly = std::log(costs[i]);
    x += lx, y += ly, xx += lx * lx, xy += lx * ly;
  }
  return (n * xy - x * y) / (n * xx - x * x);
}

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace

int print_table() {
  say("| what, one thread | processor time | budget | fastest other, measured | its time | times as long |");
  say("|---|---|---|---|---|---|");
  for (const Row& row : rows()) {
    const double seconds = row.measure();
    const std::string times = row.peer_seconds < 0 ? "" : fmt::format("{:.3g}", row.peer_seconds / seconds);
    say(fmt::format("| {} | {} | {} | {} | {} | {} |", row.what, time_text(seconds), time_text(row.budget), row.peer,
                    time_text(row.peer_seconds), times));
  }
  return 0;
}

int print_growth() {
  say("| cost of | with | at | processor time | exponent |");
  say("|---|---|---|---|---|");
  for (const Curve& curve : curves()) {
    std::vector<double> costs;
    std::string sizes, times;
    for (const int size : curve.sizes) {
      costs.push_back(curve.measure(size));
      const char* comma = costs.size() > 1 ? ", " : "";
      sizes += fmt::format("{}{}", comma, size);
      times += comma + time_text(costs.back());
    }
    say(fmt::format("| {} | {} | {} | {} | {:.2f} |", curve.what, curve.size, sizes, times,
                    exponent(curve.sizes, costs)));
  }
  return 0;
}

}  // namespace rehearse::bench
