// How a machine's durations scatter, as a calibration measured it, and as simulations of that machine draw it
// (sim/engine/machine_jitter.h). A kernel that takes t in the median takes t * exp(s z) * exp(r y), with z a standard
// normal of its own and y one that all kernels of a rank's step share, and now and then somebody else has the core:
// then it takes a delay longer. Delays of kernels come at a rate a second of kernel time, so a long kernel has more of
// them than a short one; those of transfers, of waking and between two ops of a stream come with a share of the calls.
// Their lengths are lognormal about the measured mean.
//
// Left out: delays that hit several ranks at once, and how scatter changes with what else runs on the machine.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "sim/program/op.h"

namespace rehearse::cost {

// What scatters alike.
enum class KernelClass : unsigned char { product, attention, other };
inline constexpr std::array<std::string_view, 3> kKernelClasses = {"product", "attention", "other"};
KernelClass kernel_class(const program::OpShape& shape);

struct Delays {
  double rate = 0;    // of kernels: a second of their time; of all else: a call
  double mean_s = 0;  // of one
  double spread = 0;  // standard deviation of ln(length)
  bool any() const { return rate > 0 && mean_s > 0; }
};

// Standard deviations of ln(time / median), and delays.
struct Jitter {
  std::array<double, kKernelClasses.size()> kernels{};  // of one call, beside what its rank's step shares
  double transfers = 0, waking = 0;                     // of one call
  double rank_step = 0;                                 // of what all kernels of a rank's step share
  // Of what all ranks share in a step. It makes steps differ, one as much as another, so it is not drawn; it is in the
  // interval of the result.
  double step = 0;
  Delays kernel_delays, transfer_delays, waking_delays, dispatch_delays;
  // Whether anything is drawn.
  bool any() const;
};

// Delays of kernels by the company they had.
struct CompanyDelays {
  int threads = 1;  // of the rank
  int busy = 1;     // cores of the host at work
  Delays delays;
};
// Those of the company most like it: the same threads before the same busy cores; none of an empty list.
Delays nearest_delays(const std::vector<CompanyDelays>& all, int threads, int busy);

}  // namespace rehearse::cost
