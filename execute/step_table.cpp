// See step_table.h.
#include "execute/step_table.h"

#include <fmt/format.h>

#include <iterator>
#include <numeric>

#include "sim/base/check.h"

namespace rehearse::execute {
namespace {

void append_seconds(std::string& out, std::int64_t ps) {
  constexpr std::int64_t kSecond = 1'000'000'000'000;
  fmt::format_to(std::back_inserter(out), ",{}.{:012}", ps / kSecond, ps % kSecond);
}

}  // namespace

std::string step_table(const StepShares& shares, std::int64_t first_step, const std::vector<double>& losses) {
  std::string out = "step,rank,loss,end_s,step_s";
  for (const auto name : result::kShareNames) out += fmt::format(",{}_s", name);
  out += '\n';
  const std::size_t steps = shares.empty() ? 0 : shares.front().size(), before = static_cast<std::size_t>(first_step);
  REHEARSE_CHECK(losses.size() >= before + steps, "{} losses of {} steps", losses.size(), before + steps);
  std::vector<std::int64_t> end(shares.size(), 0);
  for (std::size_t s = 0; s < steps; ++s)
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      const Shares& parts = shares[rank][s];
      const std::int64_t total = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
      end[rank] += total;
      fmt::format_to(std::back_inserter(out), "{},{},{}", before + s + 1, rank, losses[before + s]);
      append_seconds(out, end[rank]);
      append_seconds(out, total);
      for (const std::int64_t part : parts) append_seconds(out, part);
      out += '\n';
    }
  return out;
}

}  // namespace rehearse::execute
