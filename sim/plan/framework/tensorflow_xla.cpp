#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

// TensorFlow 1.15 of NVIDIA's containers with XLA on Horovod.
FrameworkProfile tensorflow_xla_profile() {
  FrameworkProfile p = mxnet_profile();
  p.name = "tensorflow-xla";
  p.summary = "TensorFlow 1 with XLA and Horovod (NVIDIA DeepLearningExamples): what lies between products is fused";
  p.sources = {
      "tensorflow/compiler/xla/service/batchnorm_expander.cc: batch normalisation becomes sums and elementwise "
      "operations, which fusion joins with the residual sum and ReLU beside them",
      "tensorflow/compiler/xla/service/gpu/gpu_layout_assignment.cc, HeuristicLayoutAssignment: convolutions in fp16 "
      "on "
      "Volta and later have channels last, others channels first",
      "automatic mixed precision keeps variables in fp32: gradients are cast to fp32 and reduced so",
      "the rest as mxnet: Horovod, and a host without Python for each kernel",
  };
  p.fp32_gradients = p.fp32_reduction = true;
  p.fused_batch_norm_fp32 = true;
  p.keeps_norm_channels_last = p.keeps_norm_channels_first = false;  // sums are kernels of their own
  return p;
}

}  // namespace rehearse::plan
