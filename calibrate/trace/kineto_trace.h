// Reads the trace that PyTorch's profiler writes (Kineto; Chrome's trace format, JSON, plain or gzip): which kernels
// ran when, for which operator of which shapes, and which steps the training loop marked. One event at a time, so that
// what is held is a few dozen bytes a kernel and one entry a distinct operator, however long the file.
//
// The fields, as torch/csrc/profiler (util.h, kineto_shim.cpp) and Kineto's output_json.cpp write them: times `ts` and
// `dur` in microseconds; category cpu_op with args "External id", "Input Dims", "Input Strides", "Input type",
// "Concrete Inputs" (the last four with record_shapes=True); category kernel with args "External id" (of the operator
// that launched it), "correlation" (of the launch, category cuda_runtime), "device", "stream"; collectives with
// "Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size", "Process Group Name", "Process Group
// Ranks" at the kernel or at the operator record_param_comms; ProfilerStep#N, which prof.step() marks. Older releases
// say Operator and Kernel for cpu_op and kernel. Copies and fills that are no kernels (categories gpu_memcpy and
// gpu_memset, "Memcpy DtoD (Device -> Device)", "Memset (Device)") are read as kernels with a flag.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rehearse::calibrate::trace {

struct Tensor {
  std::string type;                         // "c10::BFloat16", "float"; "" or "Scalar": no tensor
  std::vector<std::int64_t> dims, strides;  // strides empty: not recorded
  std::int64_t elements() const;
};

// What a call of an operator was given. Lists of tensors (foreach and fused optimizers) are the sum of their elements
// in one dimension.
struct Operator {
  std::string name;
  std::vector<Tensor> inputs;
  std::vector<std::string> scalars;  // as text, one an input; "" for tensors
  bool shapes = false;               // they were recorded
};

struct Collective {
  std::string name, dtype, group;  // group: the process group's name and ranks
  std::int64_t in = 0, out = 0;    // elements
  int size = 0;                    // of the group
  std::vector<int> ranks;          // empty: not known, or not all of them
};

struct Kernel {
  double ts = 0, dur = 0;  // us
  double issued = 0;       // us, by the host's clock: of its call, else of its launch; neither recorded: ts
  int device = 0, stream = 0;
  bool copy = false;             // by a copy engine, or a fill: no kernel
  std::int32_t name = -1;        // index into Trace::names
  std::int32_t call = -1;        // index into Trace::calls; -1: linked to no operator
  std::int32_t collective = -1;  // index into Trace::collectives
};

// A call of an operator: kernels of one call are one measurement.
struct Call {
  std::int32_t op = -1;  // index into Trace::operators
  double ts = 0;
};

struct Step {
  std::string name;  // "ProfilerStep#12"
  double ts = 0, dur = 0;
};

struct Trace {
  std::string file;
  std::vector<std::string> names;
  std::vector<Operator> operators;
  std::vector<Collective> collectives;
  std::vector<Call> calls;
  std::vector<Kernel> kernels;  // by start
  std::vector<Step> steps;      // by start; without those that were begun behind the last kernel
  std::string gpu;              // "NVIDIA H100 80GB HBM3"; "": not known
  int gpus_listed = 0;          // that the process saw
  int rank = -1, world = 0;     // -1, 0: not known

  bool has_kernels() const;  // copies and fills are none
};

// `progress` gets the share of the file that was read. Throws InputError, with the line and column of broken JSON.
Trace read_trace(const std::string& file, const std::function<void(double)>& progress = {});

}  // namespace rehearse::calibrate::trace
