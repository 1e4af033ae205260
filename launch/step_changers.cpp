// Options without a key that change how long a step takes or what it holds, apart from those that do neither. Names and
// values that leave them off or at their default: megatron/training/arguments.py and the configurations of
// Megatron-Core 0.15 that become arguments; deepspeed/runtime/config.py, zero/config.py and
// activation_checkpointing/config.py of DeepSpeed 0.16. Leaves out: options of evaluation, data, checkpoints, logs.
#include <algorithm>
#include <charconv>
#include <iterator>

#include "launch/fields.h"

namespace rehearse::launch {
namespace {

struct StepChanger {
  std::string_view key;         // the whole name, or its start with '*' behind
  std::string_view usual = {};  // a value that changes nothing, beside false, 0 and none
};

constexpr StepChanger kStepChangers[] = {
    // Megatron-Core
    {"rampup-batch-size"},
    {"decrease-batch-size-if-needed"},
    {"no-overlap-p2p-communication"},
    {"overlap-p2p-communication-warmup-flush"},
    {"overlap-param-gather-with-optimizer-step"},
    {"microbatch-group-size-per-virtual-pipeline-stage"},
    {"align-param-gather"},
    {"no-align-grad-reduce"},
    {"ddp-num-buckets"},
    {"ddp-pad-buckets-for-high-nccl-busbw"},
    {"ddp-average-in-collective"},
    {"nccl-ub"},
    {"use-nccl-ub"},
    {"fsdp-double-buffer"},
    {"fsdp-manual-registration"},
    {"outer-dp-sharding-strategy", "no_shard"},
    {"use-sharp"},
    {"nccl-communicator-config-path"},
    {"high-priority-stream-groups"},
    {"tp-comm-overlap-*"},
    {"disable-tp-comm-*"},
    {"defer-embedding-wgrad-compute"},
    {"wgrad-deferral-limit"},
    {"delay-wgrad-compute"},
    {"distribute-saved-activations"},
    {"cpu-offloading-weights"},
    {"cpu-offloading-double-buffering"},
    {"fine-grained-activation-offloading"},
    {"offload-modules"},
    {"main-grads-dtype", "fp32"},
    {"main-params-dtype", "fp32"},
    {"no-fp8-wgrad"},
    {"fp8-quantizer-factory"},
    {"fp8-amax-reduction*"},
    {"te-precision-config-file"},
    {"moe-layer-recompute"},
    {"moe-permute-fusion"},
    {"moe-router-fusion"},
    {"moe-router-padding-for-fp8"},
    {"moe-router-padding-for-quantization"},
    {"moe-router-dtype"},
    {"moe-z-loss-coeff"},
    {"moe-use-legacy-grouped-gemm"},
    {"moe-hybridep-num-sms"},
    {"moe-deepep-num-sms"},
    {"no-bias-gelu-fusion"},
    {"no-bias-swiglu-fusion"},
    {"no-bias-dropout-fusion"},
    {"no-masked-softmax-fusion"},
    {"no-persist-layer-norm"},
    {"cross-entropy-loss-fusion"},
    {"cross-entropy-fusion-impl"},
    {"cuda-graph-scope"},
    {"cuda-graph-modules"},
    {"external-cuda-graph"},
    {"enable-cuda-graph"},
    {"hierarchical-context-parallel-sizes"},
    {"empty-unused-memory-level"},
    {"check-for-large-grads"},
    {"log-num-zeros-in-grad"},
    {"log-params-norm"},
    {"make-vocab-size-divisible-by", "128"},
    {"heterogeneous-layers-config-path"},
    {"spec"},
    {"mtp-use-repeated-layer"},
    {"attention-output-gate"},
    {"task", "pretrain"},
    {"enable-vboost"},
    {"lock-gpu-freq"},
    // DeepSpeed
    {"zero_optimization.zero_hpz_partition_size", "1"},
    {"zero_optimization.zero_quantized_weights"},
    {"zero_optimization.zero_quantized_nontrainable_weights"},
    {"zero_optimization.zero_quantized_gradients"},
    {"zero_optimization.zeropp_loco_param"},
    {"zero_optimization.mics_hierarchical_params_gather"},
    {"zero_optimization.reduce_scatter", "true"},
    {"zero_optimization.allgather_partitions", "true"},
    {"zero_optimization.allgather_bucket_size", "500000000"},
    {"zero_optimization.use_multi_rank_bucket_allreduce", "true"},
    {"zero_optimization.round_robin_gradients"},
    {"zero_optimization.prefetch_bucket_size", "50000000"},
    {"zero_optimization.stage3_prefetch_bucket_size", "50000000"},
    {"zero_optimization.stage3_param_persistence_threshold", "100000"},
    {"zero_optimization.stage3_model_persistence_threshold"},
    {"zero_optimization.stage3_max_live_parameters", "1000000000"},
    {"zero_optimization.sub_group_size", "1000000000"},
    {"zero_optimization.memory_efficient_linear", "true"},
    {"zero_optimization.zenflow*"},
    {"activation_checkpointing.partition_activations"},
    {"activation_checkpointing.contiguous_memory_optimization"},
    {"activation_checkpointing.number_checkpoints"},
    {"activation_checkpointing.synchronize_checkpoint_boundary"},
    {"prescale_gradients"},
    {"gradient_predivide_factor", "1"},
    {"sparse_gradients"},
    {"sparse_attention*"},
    {"compression_training*"},
    {"curriculum_learning.enabled"},
    {"data_efficiency.enabled"},
    {"progressive_layer_drop.enabled"},
    {"flops_profiler.enabled"},
    {"wall_clock_breakdown"},
    {"memory_breakdown"},
    {"torch_autocast.enabled"},
    {"sequence_parallel_size", "1"},
    {"hybrid_engine.enabled"},
};

bool same_number(std::string_view a, std::string_view b) {
  double x = 0, y = 0;
  const auto read = [](std::string_view text, double& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  };
  return read(a, x) && read(b, y) && x == y;
}

}  // namespace

bool changes_step(const Setting& setting) {
  const std::string_view key = setting.key;
  const auto* const found =
      std::find_if(std::begin(kStepChangers), std::end(kStepChangers), [&](const StepChanger& one) {
        if (!one.key.ends_with('*')) return key == one.key;
        return key.starts_with(one.key.substr(0, one.key.size() - 1));
      });
  if (found == std::end(kStepChangers)) return false;
  if (setting.values.empty()) return true;
  const std::string_view value = setting.values.front();
  for (const std::string_view off : {"false", "False", "0", "none", "None", "null", "no", ""})
    if (value == off) return false;
  return found->usual.empty() || (value != found->usual && !same_number(value, found->usual));
}

}  // namespace rehearse::launch
