// See weeks.h.
#include "sim/run/weeks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"
#include "sim/base/random.h"

namespace rehearse::run {
namespace {

using result::WeekShare;

constexpr std::uint64_t kWeeksPurpose = 0x7765656b73;  // draws of no other use of the seed
constexpr double kNever = std::numeric_limits<double>::infinity();

bool takes_host_out(std::size_t component) {
  return component < 3;  // gpu, nic, host
}

class WeeksSample {
 public:
  WeeksSample(const WeeksRequest& request, std::int64_t seed, std::int64_t sample)
      : r_(request),
        rate_(request.rate()),
        end_(request.seconds > 0 ? request.seconds : kNever),
        key_(mix_key(mix_key(static_cast<std::uint64_t>(seed), kWeeksPurpose), static_cast<std::uint64_t>(sample))) {}

  result::Weeks run() {
    while (train()) {
      while (now_ < end_ && !start_again()) look();
      look();
      if (now_ >= end_) break;
    }
    return weeks_;
  }

 private:
  // Of a run of so many steps that hardly ever gets ahead there may be no end.
  void look() {
    constexpr std::int64_t kBetweenLooks = 1 << 14, kMostRestarts = 1 << 26;
    if (++restarts_ % kBetweenLooks == 0) check_interrupt();
    if (r_.steps > 0 && restarts_ > kMostRestarts)
      throw InputError(Diagnostic{"", 0, 0, "failures",
                                  fmt::format("a sample of the run has failed {} times and trained {} of its {} steps",
                                              restarts_, weeks_.steps, r_.steps),
                                  "failures that are rarer, a shorter failures.restart, or --days"});
  }
  double uniform() {  // in [0, 1), of 53 bits
    const auto words = Philox::draw(key_, draws_++);
    return static_cast<double>((std::uint64_t{words[0]} << 21) ^ (words[1] >> 11)) * 0x1p-53;
  }
  double until_failure() { return rate_ > 0 ? -std::log1p(-uniform()) / rate_ : kNever; }

  void spend(WeekShare share, double seconds) {
    seconds = std::min(seconds, end_ - now_);
    weeks_.shares[static_cast<std::size_t>(share)] += seconds;
    now_ += seconds;
  }

  // From a restart to the next failure, or to the end of all: false.
  bool train() {
    const double length = static_cast<double>(r_.interval_steps) * step_s(), period = length + r_.stall_s;
    const double failure = until_failure(), left = end_ - now_;
    const std::int64_t wanted = r_.steps > 0 ? r_.steps - weeks_.steps : 0;
    if (wanted > 0) {  // no checkpoint after the last step: the run is over
      const std::int64_t stalls = (wanted - 1) / r_.interval_steps;
      const double needed = static_cast<double>(wanted) * step_s() + static_cast<double>(stalls) * r_.stall_s;
      if (needed <= std::min({failure, left, until_more_replicas(period)})) {
        count(wanted, stalls);
        now_ += needed;
        return false;
      }
    }
    if (const double more = until_more_replicas(period); more <= std::min(failure, left)) {
      const auto checkpoints = static_cast<std::int64_t>(std::llround((more - r_.write_s) / period));
      count(checkpoints * r_.interval_steps, checkpoints);
      weeks_.shares[static_cast<std::size_t>(WeekShare::checkpoints)] += r_.write_s;  // the last is waited for
      now_ += more;
      growing_ = true;
      return true;
    }
    if (failure >= left) {
      const auto whole = static_cast<std::int64_t>(left / period);
      const double rest = left - static_cast<double>(whole) * period;
      const auto more = std::min(r_.interval_steps, static_cast<std::int64_t>(rest / step_s()));
      count(whole * r_.interval_steps + more, whole);
      // A step or a checkpoint that is under way.
      weeks_.shares[static_cast<std::size_t>(more < r_.interval_steps ? WeekShare::lost : WeekShare::checkpoints)] +=
          rest - static_cast<double>(more) * step_s();
      now_ = end_;
      return false;
    }
    const std::int64_t kept = failure < r_.write_s ? 0 : static_cast<std::int64_t>((failure - r_.write_s) / period);
    count(kept * r_.interval_steps, kept);
    weeks_.shares[static_cast<std::size_t>(WeekShare::lost)] += failure - static_cast<double>(kept) * period;
    now_ += failure;
    fail();
    return true;
  }

  void count(std::int64_t steps, std::int64_t checkpoints) {
    weeks_.steps += steps;
    weeks_.shares[static_cast<std::size_t>(WeekShare::effective)] += static_cast<double>(steps) * r_.step_s;
    weeks_.shares[static_cast<std::size_t>(WeekShare::checkpoints)] += static_cast<double>(checkpoints) * r_.stall_s;
    weeks_.shares[static_cast<std::size_t>(WeekShare::fewer_replicas)] +=
        static_cast<double>(steps) * (step_s() - r_.step_s);
  }

  double step_s() const { return missing_ == 0 ? r_.step_s : r_.step_s_missing[missing_ - 1]; }

  // Replicas for which there are no hosts when `out` of them are taken out.
  std::size_t missing_with(std::size_t out) const {
    const auto there = std::max<std::int64_t>(0, r_.hosts + r_.spare_hosts - static_cast<std::int64_t>(out));
    return static_cast<std::size_t>(r_.replicas - std::min(r_.replicas, there * r_.devices / r_.devices_of_replica));
  }

  // Until the end of the first checkpoint after hosts for another replica have been repaired.
  double until_more_replicas(double period) const {
    if (missing_ == 0) return kNever;
    auto later = repaired_;
    while (missing_with(later.size() - 1) >= missing_) later.pop();
    return std::max(1.0, std::ceil((later.top() - now_) / period)) * period + r_.write_s;
  }

  void fail() {
    double at = uniform() * rate_;
    failed_ = 0;
    while (failed_ + 1 < r_.rates.size() && at >= r_.rates[failed_]) at -= r_.rates[failed_++];
    while (failed_ > 0 && r_.rates[failed_] <= 0) --failed_;  // rounding
    ++weeks_.failures[failed_];
  }

  // False if it fails on the way.
  bool start_again() {
    if (!std::exchange(growing_, false)) {
      spend(WeekShare::detection, r_.detection_s);
      if (takes_host_out(failed_) && r_.spare_hosts >= 0) repaired_.push(now_ + r_.repair_s);
    }
    wait_for_hosts();
    if (now_ >= end_) return false;
    const double failure = until_failure();
    const bool fails = failure < r_.restart_s && now_ + failure < end_;
    spend(WeekShare::restart, fails ? failure : r_.restart_s);
    if (fails) fail();
    return !fails;
  }

  // Until there are as many as the run can go on with.
  void wait_for_hosts() {
    if (r_.spare_hosts < 0) return;
    while (!repaired_.empty() && repaired_.top() <= now_) repaired_.pop();
    const bool fewer = !r_.step_s_missing.empty();
    const auto enough = [&] {
      return fewer ? missing_with(repaired_.size()) <= r_.step_s_missing.size()
                   : static_cast<std::int64_t>(repaired_.size()) <= r_.spare_hosts;
    };
    while (!enough() && now_ < end_) {
      spend(WeekShare::no_host, repaired_.top() - now_);
      repaired_.pop();
    }
    missing_ = fewer ? missing_with(repaired_.size()) : 0;
  }

  const WeeksRequest& r_;
  const double rate_, end_;
  const std::uint64_t key_;
  std::uint64_t draws_ = 0;
  double now_ = 0;
  std::int64_t restarts_ = 0;
  std::size_t failed_ = 0;   // the component that failed last
  std::size_t missing_ = 0;  // replicas
  bool growing_ = false;     // it was stopped to go on with more of them
  std::priority_queue<double, std::vector<double>, std::greater<>> repaired_;  // when hosts taken out are there again
  result::Weeks weeks_;
};

}  // namespace

double WeeksRequest::rate() const {
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

result::Weeks simulate_weeks(const WeeksRequest& request, std::int64_t seed, std::int64_t sample) {
  REHEARSE_CHECK(request.interval_steps > 0 && request.step_s > 0 && (request.seconds > 0 || request.steps > 0),
                 "a run of weeks without steps or end");
  check_interrupt();
  return WeeksSample(request, seed, sample).run();
}

double expected_ratio(const WeeksRequest& r) {
  const double t = static_cast<double>(r.interval_steps) * r.step_s, rate = r.rate();
  if (rate <= 0) return t / (t + r.stall_s);
  const double cycle = (1 / rate + r.detection_s) * std::exp(rate * r.restart_s);
  return t * std::exp(-rate * r.write_s) / std::expm1(rate * (t + r.stall_s)) / cycle;
}

double best_interval(double rate, double stall_s) {
  if (rate <= 0 || stall_s <= 0) return 0;
  // 1 - e^(r (t + s)) (1 - r t) rises from below 0 at t = 0 to 1 at t = 1 / r.
  constexpr int kHalvings = 200;
  double low = 0, high = 1 / rate;
  for (int i = 0; i < kHalvings; ++i) {
    const double t = (low + high) / 2;
    (std::exp(rate * (t + stall_s)) * (1 - rate * t) > 1 ? low : high) = t;
  }
  return high;
}

double young_interval(double rate, double stall_s) {
  return rate > 0 ? std::sqrt(2 * stall_s / rate) : 0;
}

double daly_interval(double rate, double stall_s) {
  if (rate <= 0 || stall_s <= 0) return 0;
  const double mean = 1 / rate, x = stall_s / (2 * mean);
  return x < 1 ? std::sqrt(2 * stall_s * mean) * (1 + std::sqrt(x) / 3 + x / 9) - stall_s : mean;
}

}  // namespace rehearse::run
