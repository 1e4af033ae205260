// See weeks.h.
#include "sim/run/weeks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <vector>

#include "sim/base/check.h"
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
        key_(mix_key(mix_key(static_cast<std::uint64_t>(seed), kWeeksPurpose), static_cast<std::uint64_t>(sample))),
        standing_by_(request.spare_hosts) {}

  result::Weeks run() {
    while (train()) {
      while (now_ < end_ && !start_again()) {
      }
      if (now_ >= end_) break;
    }
    return weeks_;
  }

 private:
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
    const double length = static_cast<double>(r_.interval_steps) * r_.step_s, period = length + r_.stall_s;
    const double failure = until_failure(), left = end_ - now_;
    const std::int64_t wanted = r_.steps > 0 ? r_.steps - weeks_.steps : 0;
    if (wanted > 0) {  // no checkpoint after the last step: the run is over
      const std::int64_t stalls = (wanted - 1) / r_.interval_steps;
      const double needed = static_cast<double>(wanted) * r_.step_s + static_cast<double>(stalls) * r_.stall_s;
      if (needed <= std::min(failure, left)) {
        count(wanted, stalls);
        now_ += needed;
        return false;
      }
    }
    if (failure >= left) {
      const auto whole = static_cast<std::int64_t>(left / period);
      const double rest = left - static_cast<double>(whole) * period;
      const auto more = std::min(r_.interval_steps, static_cast<std::int64_t>(rest / r_.step_s));
      count(whole * r_.interval_steps + more, whole);
      // A step or a checkpoint that is under way.
      weeks_.shares[static_cast<std::size_t>(more < r_.interval_steps ? WeekShare::lost : WeekShare::checkpoints)] +=
          rest - static_cast<double>(more) * r_.step_s;
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
    spend(WeekShare::detection, r_.detection_s);
    if (takes_host_out(failed_) && r_.spare_hosts >= 0) take_host();
    if (now_ >= end_) return false;
    const double failure = until_failure();
    const bool fails = failure < r_.restart_s && now_ + failure < end_;
    spend(WeekShare::restart, fails ? failure : r_.restart_s);
    if (fails) fail();
    return !fails;
  }

  void take_host() {
    repaired_.push(now_ + r_.repair_s);
    while (!repaired_.empty() && repaired_.top() <= now_) back();
    if (standing_by_ == 0) {
      spend(WeekShare::no_host, repaired_.top() - now_);
      back();
    }
    --standing_by_;
  }
  void back() {
    repaired_.pop();
    ++standing_by_;
  }

  const WeeksRequest& r_;
  const double rate_, end_;
  const std::uint64_t key_;
  std::uint64_t draws_ = 0;
  double now_ = 0;
  std::size_t failed_ = 0;  // the component that failed last
  std::int64_t standing_by_;
  std::priority_queue<double, std::vector<double>, std::greater<>> repaired_;  // when hosts stand by again
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
