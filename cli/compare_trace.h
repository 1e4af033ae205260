// rehearse compare DIR TRACE: a simulated result beside the trace that a profiler made of the run itself.
#pragma once

#include <optional>
#include <string>

namespace rehearse::cli {

struct TraceComparison {
  std::string directory, trace, output;  // output "": no files
  std::optional<int> rank;               // a recorded one; else the trace's, or that of its stage
  bool json = false;
};

// Throws InputError. Returns the exit code.
int compare_trace(const TraceComparison& c);

}  // namespace rehearse::cli
