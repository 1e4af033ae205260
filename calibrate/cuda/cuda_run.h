// One op on a GPU as something to be timed (Run): graphs of k calls through kernels::Device, between two events.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "calibrate/cuda/operands.h"
#include "execute/rank/kernel_call.h"
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/stream_timer.h"

namespace rehearse::calibrate::gpu {

// Device time of `launches` calls of `call`(i), from the replay of a graph of them.
class Replays {
 public:
  Replays(kernels::cuda::Stream& stream, std::function<void(std::size_t)> call);
  double time(int launches);

 private:
  const kernels::cuda::Graph& graph(int launches);
  kernels::cuda::Stream& stream_;
  std::function<void(std::size_t)> call_;
  std::map<int, kernels::cuda::Graph> graphs_;
  kernels::cuda::StreamTimer timer_;
};

// What all runs of a device share; outlives them.
struct Shared {
  kernels::cuda::Stream& stream;
  kernels::cuda::CudaDevice& device;
  kernels::cuda::Blas* blas = nullptr;        // the device's; null: no library
  const kernels::StepValues* step = nullptr;  // device memory
  bool measure_products = false;              // products go by the fastest of the library's algorithms
};

// The library's ways to do `problem`, the first and the fastest; operands(i) are those of the i-th set. What it is
// called with from now on goes by the first, or with Shared::measure_products by the fastest, which is the one that is
// named.
Choice choice_of(const Shared& shared, const kernels::cuda::MatmulProblem& problem,
                 const std::function<kernels::cuda::MatmulOperands(std::size_t)>& operands);

class CudaRun final : public Run {
 public:
  CudaRun(const Kernel& kernel, Operands operands, const Shared& shared);
  double launch(int launches) override { return replays_.time(launches); }
  Choice choice() override;

 private:
  void call(std::size_t set);
  Choice choose();
  Kernel kernel_;
  Operands operands_;
  Shared shared_;
  Replays replays_;
  std::optional<Choice> choice_;
};

}  // namespace rehearse::calibrate::gpu
