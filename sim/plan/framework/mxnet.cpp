#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

// MXNet 1.9 of NVIDIA's containers on Horovod, as DeepLearningExamples runs its networks of convolutions.
FrameworkProfile mxnet_profile() {
  FrameworkProfile p;
  p.name = "mxnet";
  p.summary = "MXNet and Horovod (NVIDIA DeepLearningExamples): fused batch normalisation in 16 bits, CUDA graphs";
  p.sources = {
      "NVIDIA/DeepLearningExamples@1bd98ac37 MxNet/Classification/RN50v1.5/runner: in float16 --fuse-bn-relu 1 "
      "--fuse-bn-add-relu 1 and NHWC for convolutions, normalisation and pooling; in float32 none of these, and the "
      "default of train.py's layouts, NCHW: map_layout channels_last_16bit",
      "the same: MXNET_EXEC_ENABLE_ADDTO, gradients of two branches are added by the kernel that gives the second; "
      "MXNET_ENABLE_CUDA_GRAPHS; MXNET_OPTIMIZER_AGGREGATION_SIZE 60, one kernel for 60 parameters' updates; "
      "HOROVOD_FUSION_THRESHOLD 64 MiB, gradients copied into buckets and back, reduced during backward",
      "MxNet/Classification/RN50v1.5/models.py, BatchNormAddRelu: normalisation, sum and ReLU are one operation",
      "keeps_norm_channels_last, _first: cuDNN's persistent mode whatever the layout (apache/mxnet "
      "src/operator/nn/cudnn/cudnn_batch_norm-inl.h), and NVIDIA's own kernel of 16 bits, which keeps maps as "
      "cost::read_once counts. Such kernels need fewer loads (NVIDIA, Memory-Limited Layers User's Guide)",
      "gradients in the precision of the model; of float16 the optimizer keeps fp32 copies (multi_precision)",
      "launch_cost: an empty asynchronous kernel call takes the host about 3 us (334,000 calls a second, "
      "cs.virginia.edu/~mwb7w/cuda_support/kernel_overhead.html), without Python for each; 4 us is a judgement, and "
      "graphs make it less",
      "memory_reserve and fragmentation as torch-ddp, a judgement",
      "broadcasts_first_weights: hvd.broadcast_parameters, tensor by tensor (horovod/mxnet/__init__.py); Horovod fuses "
      "reductions and not broadcasts. In fp32, a judgement",
  };
  p.fp32_gradients = p.fp32_reduction = false;
  p.fused_batch_norm = true;
  p.keeps_norm_channels_last = p.keeps_norm_channels_first = true;
  p.map_layout = model::MapLayout::channels_last_16bit;
  p.copies_buckets = true;
  p.bucket = Bytes(std::int64_t{64} << 20);
  p.data_parallel_only = true;
  p.launch_cost = Time::from_us(4);
  p.memory_reserve = Bytes(std::int64_t{1} << 30);
  p.fragmentation = 0.05;
  p.broadcasts_first_weights = true;
  p.first_weights_bucket = Bytes(0);
  return p;
}

}  // namespace rehearse::plan
