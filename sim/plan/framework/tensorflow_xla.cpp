#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

// TensorFlow 1.15 of NVIDIA's containers with XLA on Horovod.
FrameworkProfile tensorflow_xla_profile() {
  FrameworkProfile p;
  p.name = "tensorflow-xla";
  p.summary = "TensorFlow 1 with XLA and Horovod (NVIDIA DeepLearningExamples): what lies between products is fused";
  p.sources = {
      "tensorflow/compiler/xla/service/batchnorm_expander.cc: batch normalisation becomes sums and elementwise "
      "operations, which fusion joins with the residual sum and ReLU beside them",
      "tensorflow/compiler/xla/service/gpu/gpu_layout_assignment.cc, HeuristicLayoutAssignment: convolutions in fp16 "
      "on "
      "Volta and later have channels last, others channels first",
      "automatic mixed precision keeps variables in fp32: gradients are cast to fp32 and reduced so",
      "HOROVOD_FUSION_THRESHOLD, 64 MiB by default: gradients copied into buckets and back, reduced during backward",
      "launch_cost: an empty asynchronous kernel call takes the host about 3 us (334,000 calls a second, "
      "cs.virginia.edu/~mwb7w/cuda_support/kernel_overhead.html); 4 us is a judgement",
      "memory_reserve and fragmentation as torch-ddp, a judgement",
  };
  p.fused_batch_norm = p.fused_batch_norm_fp32 = true;
  p.map_layout = model::MapLayout::channels_last_16bit;
  p.copies_buckets = true;
  p.bucket = Bytes(std::int64_t{64} << 20);
  p.data_parallel_only = true;
  p.launch_cost = Time::from_us(4);
  p.memory_reserve = Bytes(std::int64_t{1} << 30);
  p.fragmentation = 0.05;
  return p;
}

}  // namespace rehearse::plan
