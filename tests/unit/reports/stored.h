// A stored result small enough to check by hand: two stages of two ranks and two replicas, a step of 10 us with times
// in picoseconds: stage 0 computes from 0 to 4 and 6 to 10 us, stage 1 from 2 to 9 us and sends in between.
#pragma once

#include "sim/result/read_directory.h"

namespace rehearse::reports {

inline constexpr std::int64_t kMicrosecond = 1'000'000;

inline result::StoredResult stored(const std::string& source = "simulated") {
  result::StoredResult s;
  result::Result& r = s.result;
  r.source = source;
  r.scenario_name = "small";
  r.scenario_file = "scenarios/small.yaml";
  r.scenario = {{"model", "gpt-small"},
                {"model.parameters", "1500000000"},
                {"cluster.device", "a100"},
                {"cluster.topology", "two nodes"},
                {"plan.tensor", "2"},
                {"plan.pipeline", "2"},
                {"plan.data", "2"},
                {"plan.schedule", "1f1b"},
                {"plan.micro_batch", "1"},
                {"plan.micro_batches", "4"},
                {"plan.zero", "1"},
                {"plan.recompute", "none"},
                {"plan.layers_per_stage", "3 4"},
                {"plan.rank_order", "tensor context expert data pipeline"},
                {"training.seq_len", "128"},
                {"training.global_batch", "8"},
                {"training.precision", "bf16"},
                {"training.optimizer", "adamw"}};
  r.ranks = 8;
  r.steps = 2;
  r.step_time_ps = 10 * kMicrosecond;
  r.tokens_per_s = 1e6;
  r.model_flops = 4e6;
  r.hardware_flops = 4e6;
  r.peak_flops_per_gpu = 1e11;
  r.breakdown_ps = {7 * kMicrosecond, 0, 0, 0, 0, 1 * kMicrosecond, 0, 0, 2 * kMicrosecond, 0, 0, 0};
  r.memory_capacity = 80'000'000'000;
  r.stages = {{0, 10'000'000'000, 0, 0, 5'000'000'000, 0, 0, 0, 15'000'000'000, "forward: layer0"},
              {1, 10'000'000'000, 0, 0, 2'000'000'000, 0, 0, 0, 12'000'000'000, ""}};
  r.coverage = {0.5, 0.25, 0.25, 0};
  r.interval_low_s = 9e-6;
  r.interval_high_s = 12e-6;
  s.texts.resize(4);
  s.texts[0] = {0, "forward", "layer0.up", "compute", "gemm", "forward", "m=2 n=4", "exact", "", 0, 96, 128, {}, {}};
  s.texts[1] = {0, "backward", "layer0.up", "compute", "gemm", "backward", "m=2 n=4", "exact", "", 0, 96, 128, {}, {}};
  s.texts[2] = {1, "forward", "layer3.up", "compute", "gemm", "forward", "m=2 n=4", "spec", "", 0, 96, 128, {}, {}};
  s.texts[3] = {1, "forward", "send", "send_previous", "send", "pipeline", "", "spec", "pipeline", 2, 64, 0, {}, {}};
  // The clock of the ops: the step starts at 100 us.
  const std::int64_t t0 = 100 * kMicrosecond;
  s.ops = {{0, 1, 0, 0, 0, t0, 4 * kMicrosecond, 0},
           {0, 1, 1, 0, 1, t0 + 6 * kMicrosecond, 4 * kMicrosecond, 0},
           {4, 1, 0, 0, 2, t0 + 2 * kMicrosecond, 7 * kMicrosecond, 0},
           {4, 1, 0, 0, 3, t0 + 3 * kMicrosecond, 2 * kMicrosecond, kMicrosecond}};
  return s;
}

}  // namespace rehearse::reports
