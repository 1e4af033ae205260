// The scatter of a machine's durations (sim/cost/jitter.h) from the samples of a calibration: sums and quantiles, no
// clock. A sample is one repetition of something that was repeated, set against the median of its repetitions.
//
// The body of a class is lognormal, its spread taken from the half below the median, which delays do not reach, or from
// the other half where that is narrower. Where others crowd the machine most calls are disturbed and no half is the
// undisturbed one: a spread above 0.2 is at most the one whose lognormal mean is the measured mean. What lies above
// three spreads, by 20 us or more, was delayed; the mean delay is such that body and delays together have the measured
// mean. Of kernels, what all of a rank's step have in common is taken out first: between ranks that ran
// side by side it differs (rank_step), and the rest they share (step).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cost/jitter.h"

namespace rehearse::calibrate {

struct KernelSample {
  int rank = 0;
  std::int64_t step = 0;
  cost::KernelClass kind = cost::KernelClass::other;
  double seconds = 0, median_s = 0;
  std::int64_t repetitions = 0;  // the median is of so many; at least 2
};

// Seconds of one thing against the median of its repetitions.
struct RepeatedSample {
  double seconds = 0, median_s = 0;
};

class JitterSamples {
 public:
  // The kernels of one profile run: ranks that performed at the same time, each of `threads`, `busy` cores in all.
  void add_run(int threads, int busy, const std::vector<KernelSample>& kernels);
  void add_transfers(const std::vector<double>& seconds);  // of one transfer, repeated
  void add_wakes(const std::vector<double>& seconds);
  void add_dispatches(const std::vector<double>& seconds);  // between two ops of a stream

  // Of everything added; kernel_delays stay empty: they are by company.
  cost::Jitter jitter() const;
  std::vector<cost::CompanyDelays> delays() const;

 private:
  struct Company {
    int threads = 1, busy = 1;
    std::vector<RepeatedSample> kernels;
  };
  struct StepFactor {
    double own = 0, of_all = 0;  // ln; of_all: mean over the ranks of the run in this step, `ranks` of them
    std::size_t ranks = 1;
  };

  std::vector<Company> companies_;
  std::vector<StepFactor> steps_;
  std::vector<RepeatedSample> within_[cost::kKernelClasses.size()];  // less what the step shares
  std::vector<RepeatedSample> transfers_, wakes_, dispatches_;
};

// Standard deviation of ln(seconds / median_s) of the body, as said above: of a half of a normal distribution it is
// (p50
// - p10) / 1.2816. 0 of fewer than 8.
double body_spread(const std::vector<RepeatedSample>& samples);

// Delays among repetitions whose undisturbed scatter has this spread; a rate a call.
cost::Delays delays_a_call(const std::vector<RepeatedSample>& samples, double spread);
// The same with a rate a second of the medians.
cost::Delays delays_a_second(const std::vector<RepeatedSample>& samples, double spread);

}  // namespace rehearse::calibrate
