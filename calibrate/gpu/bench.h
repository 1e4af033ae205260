// What a GPU is asked while it is calibrated: the seam between what decides, counts and writes (this folder, tested
// with a device that is made up) and the calls of CUDA, NVML and NCCL (calibrate/cuda). Times are seconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "execute/rank/rank.h"
#include "kernels/device_state.h"
#include "sim/cost/measured_device.h"
#include "sim/plan/scenario.h"
#include "sim/program/program.h"

namespace rehearse::calibrate::gpu {

struct Facts {
  std::string name;                   // "NVIDIA H100 80GB HBM3"
  int sms = 0, major = 0, minor = 0;  // compute capability
  std::int64_t memory_bytes = 0, l2_bytes = 0;
  double memory_bandwidth = 0;  // bytes/s: clock times width of the memory bus; 0: not known
  int devices = 1;              // GPUs in reach
  // Versions as text, "" where there is none.
  std::string driver, runtime, cublas, cudnn, nccl;
};

using State = kernels::DeviceState;

// One op of a program, to be timed on its own.
struct Kernel {
  const plan::Scenario* scenario = nullptr;
  const program::Role* role = nullptr;
  const program::Op* op = nullptr;
  double weight = 0;      // a rough time that a step of the scenarios spends in it; 0: of the grid
  bool held_out = false;  // measured to check the calibration, not to be in it
};

// What the library chose for a product.
struct Choice {
  std::string algorithm;  // its name (kernels/cuda/blas.h); "": the library did not say
  cost::Tile tile;
  int stages = 0, split = 1;
  double waves = 0;
  double first = 0, best = 0;  // seconds of its first choice and of the fastest it offered; 0: not known
};

// A kernel with operands of its own, rotated over more memory than the L2 cache holds.
class Run {
 public:
  virtual ~Run() = default;
  // Device time of `launches` of it, one after the other, as one graph.
  virtual double launch(int launches) = 0;
  virtual Choice choice() { return {}; }
};

// The kernels of a rank's program, timed in its steps (walk.h): every span of an op, seconds.
struct WalkedOp {
  const program::Role* role = nullptr;
  const program::Op* op = nullptr;
  std::vector<double> seconds;
};
struct Walk {
  std::vector<WalkedOp> ops;
  std::vector<result::ProductUse> products;  // with the library's algorithms
  execute::DeviceConditions conditions;
};

// A group's collective or message as nccl-tests counts it; algorithm and protocol are "free" where NCCL chose.
struct Transfer {
  std::string kind;  // all_reduce, all_gather, reduce_scatter, all_to_all, send
  int gpus = 0;
  std::int64_t bytes = 0;
  std::string algorithm = "free", protocol = "free";
  double seconds = 0, p10 = 0, p90 = 0;
  std::int64_t repetitions = 0;
};

class Bench {
 public:
  virtual ~Bench() = default;
  virtual double now() = 0;  // of a clock that only goes forward
  virtual Facts facts() = 0;
  virtual State state() = 0;
  // Null if it cannot be measured here: no memory for its operands, or the device or a library does not have it.
  virtual std::unique_ptr<Run> kernel(const Kernel& kernel) = 0;
  // Performs `steps` steps of a stage of `program` (walk.h), polling meanwhile; nothing where it cannot be,
  // which problem() then says.
  virtual Walk walk(const plan::Scenario&, const program::Program&, int stage, int steps,
                    const std::function<void()>& poll) {
    (void)stage, (void)steps, (void)poll;
    return {};
  }
  // Bytes that a process of ours holds besides its tensors (context, loaded code, workspaces); 0: not known.
  virtual std::int64_t reserve() { return 0; }
  virtual std::string problem() const { return ""; }  // why the last one was null
  // direction as in cost::CopyPoint; 0 where there is no such copy (no peer).
  virtual double copy(const std::string& direction, std::int64_t bytes) = 0;
  virtual cost::LaunchTimes launches() = 0;
  // How much slower a product is during a kernel that holds `sms` multiprocessors and moves `bytes_per_s` (0: none; it
  // then only holds them). What was reached is written back. 0: not known.
  virtual double beside(const Kernel& product, int& sms, double& bytes_per_s) = 0;
  // Until `deadline` of now().
  virtual std::vector<Transfer> transfers(double deadline) = 0;
};

}  // namespace rehearse::calibrate::gpu
