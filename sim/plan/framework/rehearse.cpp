#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

// Our own Performer (execute/): one fused kernel for each op of the Program, gradients accumulated in the matmul.
FrameworkProfile rehearse_profile() {
  FrameworkProfile p;
  p.name = "rehearse";
  p.expert_parallel = p.cuda_graphs = p.fused_score_bias = true;
  p.summary = "one fused kernel an operation, flash attention, everything overlapped";
  p.sources = {
      "the Program's own ops: fused weight-gradient accumulation and residual gradient, flash attention, no dropout",
      "launch_cost: an empty asynchronous kernel call takes the host about 3 us (334,000 calls a second, "
      "cs.virginia.edu/~mwb7w/cuda_support/kernel_overhead.html); 1 us more for dispatch and events is a judgement",
      "memory_reserve: CUDA context 0.3 GB or more with lazy loading (pytorch/pytorch#107667), 0.5 to 0.7 GB for an "
      "NCCL "
      "communicator on A100 (NVIDIA/nccl#964); 1 GiB in all is a judgement",
      "fragmentation: none beyond what placing the buffers in one arena costs, which is counted",
  };
  p.allocator = Allocator::arena;
  p.measured_host = true;
  p.launch_cost = Time::from_us(4);
  p.memory_reserve = Bytes(std::int64_t{1} << 30);
  return p;
}

}  // namespace rehearse::plan
