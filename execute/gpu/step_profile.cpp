// See step_profile.h.
#include "execute/gpu/step_profile.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rehearse::execute {
namespace {

constexpr double kPsPerSecond = 1e12;

class Account {
 public:
  Account(const program::Program& program, const Timeline& timeline, StepProfile& profile)
      : program_(program), timeline_(timeline), profile_(profile), now_(profile.begin_s) {}

  void walk(std::int32_t stream) {
    for (const std::int32_t index : timeline_.streams[static_cast<std::size_t>(stream)]) {
      const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
      std::vector<std::int32_t> waits;
      collect_waits(i, waits);
      std::sort(waits.begin(), waits.end(), [&](auto a, auto b) { return span(a).end_s < span(b).end_s; });
      for (const std::int32_t w : waits) blame(w);
      count(result::Share::host, span(index).begin_s);
      const bool optimizer = timeline_.op(i).phase == program::Phase::optimizer;
      count(optimizer ? result::Share::optimizer : result::Share::compute, span(index).end_s);
    }
    count(result::Share::host, profile_.end_s);
  }

 private:
  const Span& span(std::int32_t instance) const { return profile_.spans[static_cast<std::size_t>(instance)]; }

  void count(result::Share share, double until) {
    if (until <= now_) return;
    profile_.shares_s[static_cast<std::size_t>(share)] += until - now_;
    now_ = until;
  }

  // Of this step; behind a host sync lie what it waits for.
  void collect_waits(const Instance& i, std::vector<std::int32_t>& into) const {
    for (std::size_t w = i.first_wait; w < i.last_wait; ++w) {
      const Wait& wait = timeline_.waits[w];
      if (wait.position < 1) continue;
      const std::int32_t index =
          timeline_.streams[static_cast<std::size_t>(wait.stream)][static_cast<std::size_t>(wait.position - 1)];
      const Instance& other = timeline_.instances[static_cast<std::size_t>(index)];
      if (std::holds_alternative<program::HostSync>(timeline_.op(other).shape))
        collect_waits(other, into);
      else
        into.push_back(index);
    }
  }

  void blame(std::int32_t index) {
    const program::Op& op = timeline_.op(timeline_.instances[static_cast<std::size_t>(index)]);
    if (program::is_transfer(op) && span(index).end_s > now_)
      profile_.waits.push_back({index, {now_, span(index).end_s}});
    count(blame_for(program_, *timeline_.role, op).moving, span(index).end_s);
  }

  const program::Program& program_;
  const Timeline& timeline_;
  StepProfile& profile_;
  double now_;
};

}  // namespace

void account(const program::Program& program, const Timeline& timeline, std::int32_t compute_stream,
             StepProfile& profile) {
  Account(program, timeline, profile).walk(compute_stream);
}

Shares scaled(const StepProfile& profile, double total_s) {
  const double sum = std::accumulate(profile.shares_s.begin(), profile.shares_s.end(), 0.0);
  const auto total = static_cast<std::int64_t>(std::llround(total_s * kPsPerSecond));
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
