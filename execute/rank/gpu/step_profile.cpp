// See step_profile.h.
#include "execute/rank/gpu/step_profile.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/account/blame.h"

namespace rehearse::execute {
namespace {

constexpr double kPsPerS = 1e12;

class Account {
 public:
  Account(const program::Program& program, const Timeline& timeline, StepProfile& profile)
      : program_(program), timeline_(timeline), profile_(profile), now_(profile.begin_s) {}

  void walk(std::int32_t stream) {
    for (const std::int32_t index : timeline_.streams[static_cast<std::size_t>(stream)]) {
      const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
      gap(i, now_, span(index).begin_s);
      const bool optimizer = timeline_.op(i).phase == program::Phase::optimizer;
      count(optimizer ? result::Share::optimizer : result::Share::compute, now_, span(index).end_s);
      now_ = std::max(now_, span(index).end_s);
    }
    count(result::Share::host, now_, profile_.end_s);
  }

 private:
  const Span& span(std::int32_t instance) const { return profile_.spans[static_cast<std::size_t>(instance)]; }

  void count(result::Share share, double from, double to) {
    if (to > from) profile_.shares_s[static_cast<std::size_t>(share)] += to - from;
  }

  // Of this step the op that ended last of those that are waited for; behind a host sync lie what it waits for. -1:
  // none.
  std::int32_t last_awaited(const Instance& i) const {
    std::int32_t last = -1;
    for (std::size_t w = i.first_wait; w < i.last_wait; ++w) {
      const Wait& wait = timeline_.waits[w];
      if (wait.position < 1) continue;
      std::int32_t index =
          timeline_.streams[static_cast<std::size_t>(wait.stream)][static_cast<std::size_t>(wait.position - 1)];
      const Instance& other = timeline_.instances[static_cast<std::size_t>(index)];
      if (std::holds_alternative<program::HostSync>(timeline_.op(other).shape)) index = last_awaited(other);
      if (index >= 0 && (last < 0 || span(index).end_s > span(last).end_s)) last = index;
    }
    return last;
  }

  // The idle time of its stream before an op: what the stream of the op waited for did; then it had not been queued.
  void gap(const Instance& i, double from, double to) {
    if (to <= from) return;
    const std::int32_t last = last_awaited(i);
    const double end = last < 0 || depth_ == kDeepest ? from : std::clamp(span(last).end_s, from, to);
    if (end > from) {
      ++depth_;
      stream_until(last, from, end);
      --depth_;
    }
    count(result::Share::host, end, to);
  }

  // What the stream of an op did in [from, to), of which the op is the end.
  void stream_until(std::int32_t index, double from, double to) {
    const Instance& last = timeline_.instances[static_cast<std::size_t>(index)];
    const auto& queue = timeline_.streams[static_cast<std::size_t>(last.stream)];
    for (std::int64_t at = last.position - 1; from < to && at >= 0; --at) {
      const std::int32_t op = queue[static_cast<std::size_t>(at)];
      const double begin = std::clamp(span(op).begin_s, from, to);
      parts(op, begin, to);
      to = at == 0 ? from : std::clamp(span(queue[static_cast<std::size_t>(at - 1)]).end_s, from, begin);
      gap(timeline_.instances[static_cast<std::size_t>(op)], to, begin);
    }
  }

  void parts(std::int32_t index, double from, double to) {
    const program::Op& op = timeline_.op(timeline_.instances[static_cast<std::size_t>(index)]);
    if (program::is_transfer(op) && from < to) profile_.waits.push_back({index, {from, to}});
    count(account::share_of_op(program_, *timeline_.role, op), from, to);
  }

  static constexpr int kDeepest = 64;  // waits that lead from one to the next
  const program::Program& program_;
  const Timeline& timeline_;
  StepProfile& profile_;
  double now_;
  int depth_ = 0;
};

}  // namespace

void account(const program::Program& program, const Timeline& timeline, std::int32_t compute_stream,
             StepProfile& profile) {
  Account(program, timeline, profile).walk(compute_stream);
}

Shares scaled(const StepProfile& profile, double total_s) {
  const double sum = std::accumulate(profile.shares_s.begin(), profile.shares_s.end(), 0.0);
  const auto total = static_cast<std::int64_t>(std::llround(total_s * kPsPerS));
  Shares shares{};
  std::int64_t left = total;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (sum > 0) shares[i] = static_cast<std::int64_t>(static_cast<double>(total) * (profile.shares_s[i] / sum));
    left -= shares[i];
  }
  const auto largest = std::max_element(shares.begin(), shares.end());
  *(sum > 0 ? largest : shares.begin() + static_cast<int>(result::Share::other)) += left;
  return shares;
}

}  // namespace rehearse::execute
