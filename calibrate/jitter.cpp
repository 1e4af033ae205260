#include "calibrate/jitter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/quantile.h"

namespace rehearse::calibrate {
namespace {

constexpr double kNormalDecile = 1.2816;  // the 90th percentile of a standard normal
constexpr std::size_t kFewest = 8;        // samples that a spread is taken from
constexpr double kLeastDelay = 20e-6;     // seconds: several context switches; a judgement
constexpr double kBody = 3;               // spreads above which a sample was delayed; a judgement

// The quantiles' spread is of deviations from the repetitions' own median, which are less than those from the true one:
// by about sqrt(1 - 1/n).
double own_median_correction(std::int64_t repetitions) {
  const auto n = static_cast<double>(repetitions);
  return std::sqrt(n / (n - 1));
}

double both_sides_spread(std::vector<double> samples) {
  if (samples.size() < 3) return 0;
  std::sort(samples.begin(), samples.end());
  return (quantile_of_sorted(samples, 0.9) - quantile_of_sorted(samples, 0.1)) / (2 * kNormalDecile);
}

// Of values, each as often as its weight says.
double weighted_median(std::vector<std::pair<double, double>> values) {
  std::sort(values.begin(), values.end());
  double all = 0, below = 0;
  for (const auto& [value, weight] : values) all += weight;
  for (const auto& [value, weight] : values)
    if ((below += weight) >= all / 2) return value;
  return 0;
}

struct Found {
  std::vector<double> lengths;
  double medians = 0, excess = 0;  // sums: of medians, of what lies above them beyond the body's own mean
};

Found find_delays(const std::vector<RepeatedSample>& samples, double spread) {
  Found found;
  const double above = std::exp(kBody * spread), body = std::expm1(spread * spread / 2);
  for (const RepeatedSample& s : samples) {
    found.medians += s.median_s;
    found.excess += s.seconds - s.median_s * (1 + body);
    if (s.seconds > s.median_s * above && s.seconds - s.median_s >= kLeastDelay)
      found.lengths.push_back(s.seconds - s.median_s);
  }
  return found;
}

cost::Delays delays_of(Found found, double over) {
  cost::Delays delays;
  if (found.lengths.empty() || found.excess <= 0 || over <= 0) return delays;
  const auto n = static_cast<double>(found.lengths.size());
  delays.rate = n / over;
  delays.mean_s = found.excess / n;
  for (double& length : found.lengths) length = std::log(length);
  // Of a few, as wide as an exponential distribution is: its ln has this deviation.
  delays.spread = found.lengths.size() < kFewest ? 1.0 : both_sides_spread(std::move(found.lengths));
  return delays;
}

void add_repeated(const std::vector<double>& seconds, std::vector<RepeatedSample>& to) {
  if (seconds.size() < 2) return;
  const double middle = median(seconds);
  if (middle <= 0) return;
  for (const double s : seconds) to.push_back({std::max(s, 1e-9), middle});
}

}  // namespace

double body_spread(const std::vector<RepeatedSample>& samples) {
  constexpr double kTrusted = 0.2;  // the mean of such a lognormal is 2% above its median; a judgement
  if (samples.size() < kFewest) return 0;
  std::vector<double> logs;
  double sum = 0, medians = 0;
  for (const RepeatedSample& s : samples) {
    logs.push_back(std::log(s.seconds / s.median_s));
    sum += s.seconds, medians += s.median_s;
  }
  std::sort(logs.begin(), logs.end());
  const double middle = quantile_of_sorted(logs, 0.5);
  const double below = middle - quantile_of_sorted(logs, 0.1), above = quantile_of_sorted(logs, 0.9) - middle;
  const double spread = std::min(below, above) / kNormalDecile;
  const double of_mean = std::sqrt(2 * std::log(std::max(1.0, sum / medians)));
  return spread <= kTrusted ? spread : std::max(kTrusted, std::min(spread, of_mean));
}

cost::Delays delays_a_call(const std::vector<RepeatedSample>& samples, double spread) {
  return delays_of(find_delays(samples, spread), static_cast<double>(samples.size()));
}

cost::Delays delays_a_second(const std::vector<RepeatedSample>& samples, double spread) {
  Found found = find_delays(samples, spread);
  const double over = found.medians;
  return delays_of(std::move(found), over);
}

void JitterSamples::add_run(int threads, int busy, const std::vector<KernelSample>& kernels) {
  auto company = std::find_if(companies_.begin(), companies_.end(),
                              [&](const Company& c) { return c.threads == threads && c.busy == busy; });
  if (company == companies_.end()) company = companies_.insert(company, Company{threads, busy, {}});
  std::map<std::int64_t, std::map<int, std::vector<std::pair<double, double>>>> by_step;  // step, rank: ln, weight
  for (const KernelSample& k : kernels) {
    REHEARSE_CHECK(k.repetitions >= 2 && k.median_s > 0 && k.seconds > 0, "a sample of {} repetitions", k.repetitions);
    company->kernels.push_back({k.seconds, k.median_s});
    by_step[k.step][k.rank].emplace_back(std::log(k.seconds / k.median_s) * own_median_correction(k.repetitions),
                                         k.median_s);
  }
  std::map<std::pair<std::int64_t, int>, double> factors;
  for (auto& [step, ranks] : by_step) {
    double sum = 0;
    for (auto& [rank, values] : ranks) sum += factors[{step, rank}] = weighted_median(std::move(values));
    const double mean = sum / static_cast<double>(ranks.size());
    for (const auto& [rank, values] : ranks) steps_.push_back({factors[{step, rank}], mean, ranks.size()});
  }
  for (const KernelSample& k : kernels) {
    const double own =
        std::log(k.seconds / k.median_s) * own_median_correction(k.repetitions) - factors[{k.step, k.rank}];
    within_[static_cast<std::size_t>(k.kind)].push_back({k.median_s * std::exp(own), k.median_s});
  }
}

void JitterSamples::add_transfers(const std::vector<double>& seconds) {
  add_repeated(seconds, transfers_);
}
void JitterSamples::add_wakes(const std::vector<double>& seconds) {
  add_repeated(seconds, wakes_);
}
void JitterSamples::add_dispatches(const std::vector<double>& seconds) {
  add_repeated(seconds, dispatches_);
}

cost::Jitter JitterSamples::jitter() const {
  cost::Jitter j;
  for (std::size_t c = 0; c < j.kernels.size(); ++c) j.kernels[c] = body_spread(within_[c]);
  // Of n ranks' own factors the mean has 1/n of their variance, and the difference to it the rest.
  std::vector<double> own, shared;
  for (const StepFactor& s : steps_) {
    const auto n = static_cast<double>(s.ranks);
    if (s.ranks > 1) own.push_back((s.own - s.of_all) * std::sqrt(n / (n - 1)));
    shared.push_back(s.own);
  }
  const double all = both_sides_spread(shared);
  j.rank_step = own.empty() ? all : std::min(all, both_sides_spread(own));
  j.step = std::sqrt(std::max(0.0, all * all - j.rank_step * j.rank_step));
  j.transfers = body_spread(transfers_);
  j.waking = body_spread(wakes_);
  j.transfer_delays = delays_a_call(transfers_, j.transfers);
  j.waking_delays = delays_a_call(wakes_, j.waking);
  j.dispatch_delays = delays_a_call(dispatches_, body_spread(dispatches_));
  return j;
}

std::vector<cost::CompanyDelays> JitterSamples::delays() const {
  std::vector<cost::CompanyDelays> all;
  for (const Company& c : companies_)
    all.push_back({c.threads, c.busy, delays_a_second(c.kernels, body_spread(c.kernels))});
  return all;
}

}  // namespace rehearse::calibrate
