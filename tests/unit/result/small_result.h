// A small result with every field set and numbers that are easy to check by hand: 4 ranks in 2 stages, a step of 2 s.
#pragma once

#include "sim/result/result.h"

namespace rehearse::result {

inline Result small_result() {
  Result r;
  r.scenario_name = "tiny";
  r.scenario_file = "tiny.yaml";
  r.scenario = {{"plan.tensor", "2"}, {"training.global_batch", "8"}};
  r.ranks = 4;
  r.steps = 2;
  r.step_time_ps = 2'000'000'000'001;
  r.tokens_per_s = 4096;
  r.tokens_per_s_per_gpu = 1024;
  r.model_flops = 8e12;
  r.hardware_flops = 1e13;
  r.peak_flops_per_gpu = 4e12;
  r.flop_formula = "matrix products, \"full\" attention";
  r.breakdown_ps = {1'400'000'000'001, 100'000'000'000, 0, 0, 200'000'000'000, 0, 0, 0,
                    250'000'000'000,   50'000'000'000,  0, 0};
  r.memory_capacity = 80'000'000'000;
  r.memory_headroom = 4'000'000'000;
  r.stages = {{0, 1, 2, 3, 4, 5, 6, 7, 28, "backward micro-batch 0: layer0"}, {1, 1, 1, 1, 1, 1, 1, 1, 7, ""}};
  r.coverage = {0.5, 0.25, 0.125, 0.125};
  r.measured_in = {"a profiler's trace of 1 GPU, rank0.json"};
  r.interval_low_s = 1.9;
  r.interval_high_s = 2.1;
  r.limited_by = "Compute.";
  r.ops = 6;
  r.events = 9;
  r.ranks_simulated = 4;
  r.peak_rss_bytes = 4096;
  r.wall_s = 0.125;
  r.loss = {2.5, 2.25};

  OpName gemm{"forward", "layer0.\"up\"", "gemm", "forward", "compute", "exact", "m=2, n=4, k=8", 96, 128,
              0,         "bf16",          "",     0};
  OpName reduce{"forward", "layer0.reduce", "all_reduce", "forward", "tensor", "interpolated", "elements=64", 128, 0,
                2,         "bf16",          "tensor",     64};
  OpName gather{"optimizer", "gather", "all_gather", "param_gather",         "data", "spec", "elements=64", 128, 0, 2,
                "f32",       "data",   64,           "forward/layer0.reduce"};
  r.names = {{0, {{gemm, reduce}, {gather}}}, {1, {{gemm}}}};
  r.role_of_rank = {{0, 0}, {2, 1}};
  r.micro_batch_of_slot = {{0, {0, -1}}, {1, {0}}};
  r.streams = {{0, {"compute", "tensor", "data"}}, {1, {"compute"}}};
  r.peers = {{0, {{"", "1"}, {"2-14/4"}}}, {2, {{""}}}};
  r.records = {{0, 1, 0, 0, 0, 1'000'999, 2'500},
               {0, 1, 0, 0, 1, 1'003'499, 1'000'000, 400'000, Share::straggler, 0, 0, 550'000},
               {0, 1, 1, 1, 0, 2'003'499, 1},
               {2, 1, 0, 0, 0, 5'000'000, 1'500'000}};
  return r;
}

}  // namespace rehearse::result
