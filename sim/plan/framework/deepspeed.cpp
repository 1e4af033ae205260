#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

// DeepSpeed 0.6 of 2022, after gathers were coalesced (its PR 1453), under Megatron's eager kernels.
FrameworkProfile deepspeed_profile() {
  FrameworkProfile p = megatron_2021_profile();
  p.name = "deepspeed";
  p.summary = "DeepSpeed 0.6 with Megatron's kernels: ZeRO-3 gathers a layer when it is reached";
  p.sources = {
      "kernels as megatron-2021: microsoft/Megatron-DeepSpeed@f4157bea examples_deepspeed/azure/run-175b.sh",
      "shard_gather on_use: parameters are fetched by leaf module, the prefetch bucket of 5e7 elements admits one "
      "weight ahead, at most two fetches are outstanding and the host waits for them (microsoft/DeepSpeed v0.6.5 "
      "deepspeed/runtime/zero/partitioned_param_coordinator.py). Here a layer's weights are gathered one by one when "
      "the layer is reached. Not modelled: the copies that join and part gathers of several parameters",
      "shard_alone: stage3_param_persistence_threshold, 1e5; smaller parameters stay whole there and are gathered "
      "together here",
      "gradients are reduce-scattered beside backward in 16 bits: deepspeed/runtime/zero/stage3.py",
      "launch_cost, memory_reserve and fragmentation as megatron-2021",
  };
  p.shard_gather = ShardGather::on_use;
  p.shard_alone = 100'000;
  p.step_high = kUncheckedHigh, p.step_low = kUncheckedLow;
  p.fp32_gradients = false;
  return p;
}

}  // namespace rehearse::plan
