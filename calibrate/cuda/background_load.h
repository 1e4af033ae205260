// What runs during a product on a stream of its own while the product is timed (load_kernels.h). It has begun before
// the timing begins, and ends after it.
#pragma once

#include <functional>

#include "calibrate/cuda/load_kernels.h"

namespace rehearse::calibrate::gpu {

class BackgroundLoad {
 public:
  explicit BackgroundLoad(int shared_bytes_per_block) : shared_bytes_(shared_bytes_per_block) {}
  // Seconds that `time` returned beside it; 0 if the load did not come to run.
  double beside_holder(int sms, const std::function<double()>& time);
  // `rate` is what it then moved.
  double beside_mover(double& rate, const std::function<double()>& time);

 private:
  double beside(unsigned blocks, const std::function<void(Signals*, kernels::cuda::Stream&)>& start,
                const std::function<double()>& time);
  int shared_bytes_;
};

}  // namespace rehearse::calibrate::gpu
