// From one measured run: rehearse calibrate --from-trace, then a simulation of more GPUs than were measured. The traces
// are made here, in Kineto's format, from the shapes that a simulation says it has, with times that were made up.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

// Columns of an ops.csv whose shapes hold no commas, by kind and shape.
struct OpRow {
  std::string kind, shape, coverage;
  std::int64_t duration_ps = 0;
};

std::vector<OpRow> ops_of(const std::string& path) {
  std::istringstream in(read(path));
  std::string line;
  std::getline(in, line);
  std::vector<OpRow> rows;
  while (std::getline(in, line)) {
    std::vector<std::string> cells;
    std::istringstream parts(line);
    for (std::string cell; std::getline(parts, cell, ',');) cells.push_back(cell);
    rows.push_back({cells.at(4), cells.at(6), cells.at(9), std::stoll(cells.at(8))});
  }
  return rows;
}

// "m=8192 n=4096 k=4096 transpose_b" as torch.mm would be called for it, with the strides that tell the layout.
Json mm_of(const std::string& shape, int id, double ts) {
  std::int64_t m = 0, n = 0, k = 0;
  std::sscanf(shape.c_str(), "m=%ld n=%ld k=%ld", &m, &n, &k);
  const bool ta = has(shape, "transpose_a"), tb = has(shape, "transpose_b");
  return {{"ph", "X"},
          {"cat", "cpu_op"},
          {"name", "aten::mm"},
          {"pid", 1},
          {"tid", 1},
          {"ts", ts},
          {"dur", 5},
          {"args",
           {{"External id", id},
            {"Input Dims", {{m, k}, {k, n}}},
            {"Input Strides", {ta ? Json{1, m} : Json{k, 1}, tb ? Json{1, k} : Json{n, 1}}},
            {"Input type", {"c10::BFloat16", "c10::BFloat16"}}}}};
}

Json kernel_of(int id, double ts, double us) {
  return {{"ph", "X"},
          {"cat", "kernel"},
          {"name", "sm80_xmma_gemm_bf16bf16"},
          {"pid", 0},
          {"tid", 7},
          {"ts", ts},
          {"dur", us},
          {"args", {{"External id", id}, {"correlation", id}, {"device", 0}, {"stream", 7}}}};
}

const char* const kTinyLlama =
    "rehearse: 1\nmodel: tinyllama-1.1b\ncluster: {topology: dgx-a100, gpus: 8}\nframework: torch-fsdp2\n"
    "plan: {zero: 1, micro_batch: 2, overlap_grad_reduce: false, overlap_param_gather: false}\n"
    "training: {global_batch: 16, seq_len: 2048, precision: bf16}\n";

// Every product of the simulation is in the trace, with a time of its own that nobody would guess. The simulation of
// 128 GPUs then takes exactly that time for each, since nothing runs during them, and says where it is from.
TEST(FromTrace, ASimulationOfMoreGpusTakesTheMeasuredTimes) {
  const Folder folder;
  const std::string scenario = folder.write("run.yaml", kTinyLlama);
  ASSERT_EQ(run({"simulate", scenario, "-o", folder / "before"}).status, 0);
  std::map<std::string, double> times;
  for (const OpRow& row : ops_of(folder / "before/ops.csv"))
    if (row.kind == "gemm") times.try_emplace(row.shape, 1000.125 + 31.5 * static_cast<double>(times.size()));
  ASSERT_GE(times.size(), 12u);
  Json events = Json::array();
  int id = 0;
  double ts = 0;
  for (const auto& [shape, us] : times)
    for (const double more : {-3.0, 0.0, 7.0}) {
      events.push_back(mm_of(shape, ++id, ts));
      events.push_back(kernel_of(id, ts += 5000, us + more));
    }
  const Json trace = {{"deviceProperties", {{{"id", 0}, {"name", "NVIDIA A100-SXM4-80GB"}}}}, {"traceEvents", events}};
  const std::string calibration = folder / "run-measured.yaml";
  const Outcome made = run({"calibrate", "--from-trace", folder.write("rank0.json", trace.dump()), "-o", calibration});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.err, "");
  EXPECT_TRUE(has(made.out, fmt::format("{} products", times.size()))) << made.out;
  const Outcome r = run({"simulate", scenario, "--set", "cluster.gpus=128", "--set", "training.global_batch=256",
                         "--calibration", calibration, "-o", folder / "after"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "a profiler's trace of 1 GPU, rank0.json")) << r.out;
  std::size_t products = 0;
  for (const OpRow& row : ops_of(folder / "after/ops.csv")) {
    if (row.kind != "gemm") continue;
    ++products;
    EXPECT_EQ(row.coverage, "exact") << row.shape;
    EXPECT_EQ(row.duration_ps, std::llround(times.at(row.shape) * 1e6)) << row.shape;
  }
  EXPECT_GT(products, 100u);
  const Json result = Json::parse(read(folder / "after/result.json"));
  EXPECT_EQ(result["coverage"]["measured_in"], Json({"a profiler's trace of 1 GPU, rank0.json"}));
  EXPECT_FALSE(Json::parse(read(folder / "before/result.json"))["coverage"].contains("measured_in"));
}

TEST(FromTrace, WhatCannotBeIsRefused) {
  const Folder folder;
  const std::string trace =
      folder.write("rank0.json", Json{{"traceEvents", {mm_of("m=64 n=64 k=64", 1, 0), kernel_of(1, 9, 20)}}}.dump());
  const std::string out = folder / "measured.yaml";
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"-o", out}, "for which there is no device file"},
      {{"--device", "a100-sxm-80g"}, "-o: error: with --from-trace say where the file goes"},
      {{"--device", "a100-sxm-80g", "-o", folder / "measured.json"}, "expected a file ending in .yaml"},
      {{"--device", "a100-sxm-08g", "-o", out}, "did you mean 'a100-sxm-80g'?"},
      {{"--device", "cuda", "-o", out}, "a trace was measured already"},
      {{"--device", "a100-sxm-80g", "-o", out, "--skip-steps", "1"}, "the trace marks no steps"},
      {{"--device", "a100-sxm-80g", "-o", out, "--add"}, "--add: error"},
      {{"--device", "a100-sxm-80g", "-o", trace}, "expected a file ending in .yaml"}};
  for (const auto& [options, message] : cases) {
    std::vector<std::string> arguments = {"calibrate", "--from-trace", trace};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome r = run(arguments);
    EXPECT_EQ(r.status, 2) << message;
    EXPECT_TRUE(has(r.err, message)) << r.err;
  }
  EXPECT_EQ(folder.files(), std::vector<std::string>{"rank0.json"});
  EXPECT_TRUE(has(run({"calibrate", "--device", "cdua"}).err, "did you mean 'cuda'?"));
  EXPECT_TRUE(has(run({"calibrate", "--skip-steps", "1"}).err, "--from-trace"));
}

// The run itself beside its simulation: every product took a quarter longer, one is not in the trace, and two kernels
// of it are of no op. Nothing of either side is lost.
TEST(CompareTrace, MapsKernelsToOpsAndListsTheRest) {
  const Folder folder;
  const std::string simulated = folder / "simulated";
  ASSERT_EQ(run({"simulate", folder.write("run.yaml", kTinyLlama), "-o", simulated}).status, 0);
  Json events = Json::array();
  int id = 0;
  double ts = 0, left_out_us = 0;
  std::size_t products = 0;
  for (const OpRow& row : ops_of(simulated + "/ops.csv")) {
    if (row.kind != "gemm") continue;
    const double us = static_cast<double>(row.duration_ps) * 1e-6;
    if (++products == 5) {
      left_out_us = us;
      continue;
    }
    events.push_back(mm_of(row.shape, ++id, ts));
    events.push_back(kernel_of(id, ts += 1e5, 1.25 * us));
  }
  events.push_back(mm_of("m=77 n=88 k=99", ++id, ts));
  events.push_back(kernel_of(id, ts += 1e5, 30));
  events.push_back(kernel_of(123456789, ts += 1e5, 40));
  events.push_back(
      {{"ph", "X"}, {"cat", "user_annotation"}, {"name", "ProfilerStep#3"}, {"ts", -1}, {"dur", ts + 1e5}});
  const std::string trace = folder.write("rank0.json", Json{{"traceEvents", events}}.dump());
  const Outcome r = run({"compare", simulated, trace, "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  for (const char* part : {"ProfilerStep#3", "aten::mm", "no gemm 77x88x99 is left", "linked to no operator"})
    EXPECT_TRUE(has(r.out, part)) << part << r.out;
  EXPECT_LE(widest(r.out), 80u) << r.out;
  const Json j = Json::parse(read(folder / "out/compare.json"));
  EXPECT_EQ(j["mapped"].get<std::size_t>(), products - 1);
  for (const Json& c : j["classes"]) {
    if (c["class"] != "gemm") continue;
    EXPECT_EQ(c["ops"].get<std::size_t>(), products);
    EXPECT_EQ(c["calls"].get<std::size_t>(), products);
    EXPECT_NEAR(c["mapped_measured_s"].get<double>() / c["mapped_simulated_s"].get<double>(), 1.25, 1e-6);
    EXPECT_NEAR(c["simulated_s"].get<double>() - c["mapped_simulated_s"].get<double>(), left_out_us * 1e-6, 1e-9);
  }
  std::size_t alone = 0;
  for (const Json& one : j["measured_alone"]) alone += one["count"].get<std::size_t>();
  EXPECT_EQ(alone, 2U);
  // Every op that is no product, and the one product, is in the other list.
  EXPECT_GT(j["simulated_alone"].size(), 5U);
  EXPECT_EQ(run({"compare", simulated, trace, "--rank", "7"}).status, 2);
  EXPECT_EQ(run({"compare", simulated, folder.write("none.json", "{}")}).status, 2);
}

}  // namespace
}  // namespace rehearse::e2e
