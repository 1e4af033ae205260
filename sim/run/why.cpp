// See why.h. Three causes are told apart: a collective that went another way and took longer (shorter) by it; kernels
// that ran longer (shorter), since none is longer alone on a better device: because of what moved beside them; else the
// order in which things met.
#include "sim/run/why.h"

#include <fmt/format.h>

#include <cstdlib>

#include "sim/base/units.h"

namespace rehearse::run {
namespace {

constexpr std::int64_t kNearly = 10'000;  // a difference of one part in so many is none

std::string way(const result::CollectiveUse& use) {
  return use.protocol.empty() ? use.algorithm : use.algorithm + ' ' + use.protocol;
}

// What all calls took, and what they would have taken with the mean of the other.
bool same_calls(const result::CollectiveUse& a, const result::CollectiveUse& b) {
  return a.group == b.group && a.kind == b.kind && a.bytes == b.bytes && a.ranks == b.ranks && a.nodes == b.nodes;
}

// The collective that another way costs (gains) most.
std::string another_way(const engine::Outcome& plain, const engine::Outcome& changed, bool better) {
  std::string found;
  std::int64_t most = 0;
  for (const result::CollectiveUse& was : plain.collectives)
    for (const result::CollectiveUse& is : changed.collectives) {
      if (!same_calls(was, is) || way(was) == way(is)) continue;
      const std::int64_t grown = (better ? is.mean_ps - was.mean_ps : was.mean_ps - is.mean_ps) * is.count;
      if (grown <= most) continue;
      most = grown;
      found = fmt::format("{} {} of {} goes by {} instead of {} ({} instead of {})", is.group, is.kind,
                          format_bytes(Bytes(is.bytes)), way(is), way(was), format_time(Time::from_ps(is.mean_ps)),
                          format_time(Time::from_ps(was.mean_ps)));
    }
  return found;
}

std::int64_t kernels_ps(const engine::Outcome& outcome) {
  return outcome.breakdown_ps[static_cast<std::size_t>(result::Share::compute)] +
         outcome.breakdown_ps[static_cast<std::size_t>(result::Share::optimizer)];
}

}  // namespace

std::string why_against_expectation(const engine::Outcome& plain, const engine::Outcome& changed,
                                    const std::string& change, bool better) {
  const std::int64_t longer = changed.step_time.ps() - plain.step_time.ps();
  const std::int64_t against = better ? longer : -longer;
  if (against <= plain.step_time.ps() / kNearly) return "";
  std::string cause = another_way(plain, changed, better);
  const std::int64_t kernels = kernels_ps(changed) - kernels_ps(plain);
  if (cause.empty() && (better ? kernels : -kernels) > against / 2)
    cause = fmt::format("kernels that run during communication take {} {} a rank",
                        format_time(Time::from_ps(std::abs(kernels))), better ? "more" : "less");
  if (cause.empty()) cause = "operations and transfers meet in another order";
  return fmt::format("{}, it makes the step {} {}: {}.", change == "halved" ? "Halved" : "Doubled",
                     format_time(Time::from_ps(std::abs(longer))), longer > 0 ? "longer" : "shorter", cause);
}

}  // namespace rehearse::run
