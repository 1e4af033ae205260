// Where the step of the recorded ranks went, from ops.csv: the time of each rank's compute stream, cut into its kernels
// and the gaps between them. A gap ends when the op behind it starts; it is attributed by what the stream of the op
// that was waited for (ops.csv's `woken_by`; where it is not known, `after`, also through a host sync) did meanwhile,
// by the rule of breakdown_s (sim/account/blame.h); what is left until the start was the host's (measured: still the
// wait's, which ends with waking up).
//
// The window is the same for every rank. Simulated: the step's time up to the end of the last recorded compute stream.
// Measured: from the first recorded op of a compute stream to that end; the recorded step is the last, the reported
// time the median's, and the difference of the two stands in a line of its own.
//
// Invariant: the parts, `not recorded` included, sum to the result's step_time to the picosecond.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/result/read_directory.h"

namespace rehearse::reports {

struct AccountPart {
  std::string line;    // a kernel class (op_class.h), a wait ("exposed_tensor", "bubble", "host"), or kNotRecorded
  std::string phase;   // of kernels
  std::string detail;  // op_label of the kernel, or of what was waited for
  std::int64_t ps = 0;
};

struct StepAccount {
  std::vector<AccountPart> parts;  // mean over the recorded ranks, sorted by line, phase, detail
  int ranks = 0;
  std::int64_t window_ps = 0;
};

inline constexpr std::string_view kNotRecorded = "not recorded";

StepAccount step_account(const result::StoredResult& stored);

}  // namespace rehearse::reports
