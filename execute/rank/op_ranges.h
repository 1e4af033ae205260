// NVTX ranges around the ops of a rank, for a profiler that looks on (Nsight Systems, or whatever library
// NVTX_INJECTION64_PATH names): domain "rehearse"; each range is named "rank 3/slot 5/forward/layer3.mlp.up.forward",
// the op's identity but for the step, which is the range's payload. Names are registered once, when a rank is made, and
// only if a profiler is there; else an op costs a comparison. Ranges are of the thread that begins them: of a rank on
// the CPU the op's own time, of one on a GPU the time in which its kernels are queued, to which profilers relate these.
//
// NVTX 3 (developer.nvidia.com/nvtx) is headers of the CUDA toolkit; a build without them has no ranges (no_nvtx.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "execute/timeline.h"

namespace rehearse::execute {

class OpRanges {
 public:
  OpRanges(const Timeline& timeline, int rank);

  bool on() const { return domain_ != nullptr; }  // whether a profiler looks on
  // Any thread; every begin has its end in the same thread. `index`: of the timeline's instances.
  void begin(std::int32_t index, std::int64_t step) const {
    if (on()) push(names_[static_cast<std::size_t>(index)], step);
  }
  void end() const {
    if (on()) pop();
  }
  // Around a step that is replayed as one graph.
  void begin_graph(std::int64_t step) const {
    if (on()) push(graph_, step);
  }

 private:
  void push(void* name, std::int64_t step) const;
  void pop() const;

  void* domain_ = nullptr;    // nvtxDomainHandle_t
  std::vector<void*> names_;  // nvtxStringHandle_t, by instance
  void* graph_ = nullptr;
};

// For the length of a block.
class OpRange {
 public:
  OpRange(const OpRanges& ranges, std::int32_t index, std::int64_t step) : ranges_(ranges) {
    ranges.begin(index, step);
  }
  ~OpRange() { ranges_.end(); }
  OpRange(const OpRange&) = delete;
  OpRange& operator=(const OpRange&) = delete;

 private:
  const OpRanges& ranges_;
};

// "rank 3/slot 5/forward/layer3.mlp.up.forward".
std::string range_name(const Timeline& timeline, int rank, const Instance& i);

}  // namespace rehearse::execute
