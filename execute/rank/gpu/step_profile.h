// What the events of a step say of it: when each op began and ended on the device, and so what the compute stream did
// all the time: ran, or waited for the op that ended last of those it waited for, which is accounted by what that op's
// stream did (sim/account/blame.h), or - the rest - had nothing queued in time (host). Times are seconds since the
// rank's base event; a rank makes them the run's own at its end.
//
// NCCL does not say when the last participant of a transfer had come; so a wait for a transfer counts as bytes moving,
// and is kept, for meetings.h to split once all ranks' starts are known.
#pragma once

#include <cstdint>
#include <vector>

#include "execute/measure.h"
#include "execute/rank/gpu/gpu.h"
#include "execute/rank/rank.h"
#include "execute/timeline.h"
#include "sim/program/program.h"

namespace rehearse::execute {

// By instance of the step's timeline: begin and end, seconds.
struct Span {
  double begin_s = 0, end_s = 0;
};

struct ProfiledWait {
  std::int32_t instance;  // a transfer
  Span span;
};

struct StepProfile {
  std::int64_t step = 0;
  double begin_s = 0, end_s = 0;  // the ends of the compute stream's last ops, before and of the step
  std::vector<Span> spans;
  std::array<double, result::kShares> shares_s{};
  std::vector<ProfiledWait> waits;
};

// Fills shares_s and waits from the spans. An op of an earlier step that the step waits for counts as host.
void account(const program::Program& program, const Timeline& timeline, std::int32_t compute_stream,
             StepProfile& profile);

// Shares of a step of `total_s` seconds in the proportions of `profile`; they sum to the total.
Shares scaled(const StepProfile& profile, double total_s);

}  // namespace rehearse::execute
