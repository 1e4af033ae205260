#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

// DeepSpeed 0.6 of 2022, after gathers were coalesced (its PR 1453), under Megatron's eager kernels.
FrameworkProfile deepspeed_profile() {
  FrameworkProfile p = megatron_2021_profile();
  p.name = "deepspeed";
  p.summary = "DeepSpeed 0.6 with Megatron's kernels: ZeRO-3 gathers a weight ahead of its use";
  p.sources = {
      "kernels as megatron-2021: microsoft/Megatron-DeepSpeed@f4157bea examples_deepspeed/azure/run-175b.sh",
      "shard_gather on_use: parameters are fetched by leaf module, a prefetch admits one weight beyond its bucket of "
      "5e7 elements, the host waits for the third fetch before (microsoft/DeepSpeed v0.6.5 "
      "deepspeed/runtime/zero/partitioned_param_coordinator.py). Here a layer's weights are gathered one by one in the "
      "order of use",
      "shard_alone: stage3_param_persistence_threshold, 1e5; smaller parameters stay whole",
      "reuse_distance: stage3_max_reuse_distance, 1e9 elements (deepspeed/runtime/zero/constants.py; "
      "partitioned_param_coordinator.py, __params_to_release)",
      "gradients are reduce-scattered during backward in 16 bits, cut into a slice a rank and joined across parameters "
      "(a copy), divided by the number of ranks (a pass): deepspeed/runtime/comm/coalesced_collectives.py, "
      "reduce_scatter_coalesced. reduce_launches: a slice of a tensor in Python takes half of what a launch does, a "
      "judgement",
      "ZeRO 1 and 2: buckets of reduce_bucket_size, 5e8 elements (deepspeed/runtime/zero/constants.py)",
      "launch_cost, memory_reserve and fragmentation as megatron-2021",
      "broadcasts_first_weights: deepspeed/runtime/engine.py, _broadcast_model, after module.half(): each parameter by "
      "itself from the first rank of its group; under zero.Init when it is made "
      "(deepspeed/runtime/zero/partition_parameters.py, _post_init_method)",
  };
  p.shard_gather = ShardGather::on_use;
  p.shard_alone = 100'000;
  p.reuse_distance = 1'000'000'000;
  p.flattens_gradients = p.divides_gradients = true;
  p.reduce_launches = 0.5;
  p.fp32_gradients = false;
  p.bucket_elements = 500'000'000;
  p.bucket = Bytes(2 * p.bucket_elements);  // of 16-bit gradients
  p.broadcasts_first_weights = true;
  p.first_weights_bucket = Bytes(0);
  return p;
}

// DeepSpeed 0.3.15 to 0.5 of 2021, before that.
FrameworkProfile deepspeed_2021_profile() {
  FrameworkProfile p = deepspeed_profile();
  p.name = "deepspeed-2021";
  p.summary = "DeepSpeed 0.3.15 to 0.5: ZeRO-3 gathers tensor by tensor in lists, and the host waits for each";
  p.sources = {
      "gather_list_launches, shard_gather alone: microsoft/DeepSpeed v0.3.15 "
      "deepspeed/runtime/zero/partition_parameters.py, _allgather_param: an all_gather a parameter, into a tensor of "
      "zeros. torch.cuda.synchronize comes before the list of one slice a rank is made (narrow and get_rank in a loop "
      "of Python), so the device is idle while it is. Half a launch for one of them is a judgement",
      "deepspeed/runtime/zero/stage3.py, fetch_sub_module and _synchronize_communication: by leaf module the host "
      "waits for its gather, then for the device, and so for reductions, which allreduce_bucket makes behind what "
      "was computed: neither lies beside a product. Here all weights of a layer are gathered so when it is reached. "
      "The prefetch of 5e7 elements is left out: stage3_max_live_parameters of 1e9 stops it beside weights as large "
      "as that, and beside smaller ones the host makes the list of the next weight before it launches the module",
      "gather_into flat, gather_launches: ProcessGroupNCCL gathers into a flat buffer and copies it out a tensor a "
      "rank (pytorch v1.8 torch/lib/c10d/ProcessGroupNCCL.cpp, allgather). A copy is taken as a launch",
      "all_reduces_gradients: contiguous_gradients is off by default (deepspeed/runtime/zero/constants.py), and then "
      "buckets are joined, divided, all-reduced and copied back (stage3.py, reduce_ipg_grads, allreduce_and_copy)",
      "the rest as deepspeed",
  };
  p.shard_gather = ShardGather::alone;
  p.gather_into = GatherInto::flat;
  p.gather_launches = 1, p.gather_list_launches = 0.5, p.reduce_launches = 0;
  p.all_reduces_gradients = true;
  return p;
}

}  // namespace rehearse::plan
