// From a trace's kernels to samples of what a device file holds: how long the kernels of each call of an operator took
// in all, by what they were (trace_operators.h), and whether a collective's kernel ran on the same device meanwhile.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "calibrate/trace/kineto_trace.h"
#include "calibrate/trace/trace_operators.h"

namespace rehearse::calibrate::trace {

// Seconds. beside: of those that ran while a collective's kernel did on the same device.
struct Samples {
  std::vector<double> alone, beside;
  std::size_t kernels = 0;
};

// Kernels of one reason, or of one class that was used.
struct Tally {
  std::size_t kernels = 0;
  double seconds = 0;
  std::string example;  // an operator's or a kernel's name
};

struct SampleTable {
  std::map<Shape, Samples> shapes;
  // Of a collective: by process group, then by file, in order of time.
  std::map<CollectiveShape, std::map<std::string, std::map<int, std::vector<double>>>> collectives;
  std::map<std::string, Tally> used, left_out;
  std::size_t kernels = 0, skipped = 0, no_layout = 0, no_causal = 0;
  double seconds = 0;  // of all kernels but those of skipped steps
};

struct SampleOptions {
  int skip_steps = 0;     // of the first steps that the trace marks
  int gpus_per_node = 8;  // to tell groups of one node from those of several
};

// Adds one file's kernels; `file`: its number. Throws InputError where the trace has no shapes, no kernels, no
// operators, or no step to skip.
void add_samples(const Trace& trace, const SampleOptions& options, int file, SampleTable& table);

}  // namespace rehearse::calibrate::trace
