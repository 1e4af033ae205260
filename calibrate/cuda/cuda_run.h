// One op on a GPU as something to be timed (Run): graphs of k calls through kernels::Device, between two events.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "calibrate/cuda/operands.h"
#include "execute/rank/kernel_call.h"
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda_device.h"

namespace rehearse::calibrate::gpu {

// Device time of `launches` calls of `call`(i), from the replay of a graph of them.
class Replays {
 public:
  Replays(kernels::cuda::Stream& stream, std::function<void(std::size_t)> call);
  double time(int launches);
  // Queues a replay of `launches` and nothing else.
  void queue(int launches);

 private:
  const kernels::cuda::Graph& graph(int launches);
  kernels::cuda::Stream& stream_;
  std::function<void(std::size_t)> call_;
  std::map<int, kernels::cuda::Graph> graphs_;
  kernels::cuda::Event begin_, end_;
};

// What all runs of a device share; outlives them.
struct Shared {
  kernels::cuda::Stream& stream;
  kernels::cuda::CudaDevice& device;
  kernels::cuda::Blas* blas = nullptr;        // of our own, for the algorithms; null: no library
  const kernels::StepValues* step = nullptr;  // device memory
};

// The library's ways to do `problem`, the first and the fastest; operands(i) are those of the i-th set.
Choice choice_of(const Shared& shared, const kernels::cuda::MatmulProblem& problem,
                 const std::function<kernels::cuda::MatmulOperands(std::size_t)>& operands);

// A product that no op of a program has, straight from the library. C is fp32 for fp32 operands, else bf16.
class ProductRun final : public Run {
 public:
  // Throws DeviceError if the library does not have it, or there is no memory.
  ProductRun(const kernels::cuda::MatmulProblem& problem, std::int64_t l2_bytes, std::int64_t free_bytes,
             const Shared& shared);
  double launch(int launches) override { return replays_.time(launches); }
  Choice choice() override;

 private:
  struct Set {
    kernels::cuda::DeviceMemory a, b, c;
  };
  kernels::cuda::MatmulOperands operands(std::size_t set) const;
  kernels::cuda::MatmulProblem problem_;
  Shared shared_;
  std::vector<Set> sets_;
  Replays replays_;
};

class CudaRun final : public Run {
 public:
  CudaRun(const Kernel& kernel, Operands operands, const Shared& shared);
  double launch(int launches) override { return replays_.time(launches); }
  Choice choice() override;
  void queue(int launches) { replays_.queue(launches); }

 private:
  void call(std::size_t set);
  Kernel kernel_;
  Operands operands_;
  Shared shared_;
  Replays replays_;
};

}  // namespace rehearse::calibrate::gpu
