// A calibration from one measured run: the kernels of a PyTorch profiler's trace become measurements that a simulation
// reads on top of a device file (docs/calibration.md, "From one measured run"). Several files are several ranks of one
// run. A shape's time is the median over its calls; calls during a collective's kernel, which takes multiprocessors and
// bandwidth, count only where fewer than three others are there. A collective's kernel also waits for the last rank:
// the least over the ranks' files where all have it, then the median; the 10th percentile where one file alone tells.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/trace/trace_samples.h"

namespace rehearse::calibrate::trace {

struct TraceRequest {
  std::vector<std::string> files;
  std::string device;  // a name of calibrate/devices; "": by the GPU that the trace names
  int skip_steps = 0;
  std::string command;
  std::function<void(const std::string& what, double done)> progress;
};

struct TraceCalibration {
  std::string device, gpu;  // gpu: as the trace says, may be ""
  std::string text;         // of the file: YAML, `measurements_for: DEVICE`
  SampleTable samples;
  std::size_t products = 0, attentions = 0, others = 0, collectives = 0;  // shapes
  std::size_t other_attentions = 0;  // shapes of another attention kernel than the one that took longest: left out
  std::size_t beside = 0;            // shapes that were timed during collectives alone
  double used = 0;                   // share of the kernels' time
};

// The name of the device file for a GPU as CUDA calls it, "" if none is shipped: "h100-sxm" for "NVIDIA H100 80GB
// HBM3".
std::string shipped_device(const std::string& gpu);

// Throws InputError: files that are no traces, that lack what tells shapes, or where nothing can be used.
TraceCalibration calibrate_from_trace(const TraceRequest& request);

}  // namespace rehearse::calibrate::trace
