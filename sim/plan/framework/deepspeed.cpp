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
      "weight "
      "ahead, at most two fetches are outstanding and the host waits for them (microsoft/DeepSpeed v0.6.5 "
      "deepspeed/runtime/zero/partitioned_param_coordinator.py). A layer at a time here: latencies of single weights "
      "and "
      "what a leaf module's own computation hides are left out",
      "gradients are reduce-scattered beside backward in 16 bits: deepspeed/runtime/zero/stage3.py",
      "launch_cost, memory_reserve and fragmentation as megatron-2021",
  };
  p.shard_gather = ShardGather::on_use;
  p.fp32_gradients = false;
  return p;
}

}  // namespace rehearse::plan
