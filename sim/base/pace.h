// How fast a machine was over a stretch of time, so that two stretches can be compared: while it was calibrated, and
// while a plan was performed on it. Two things make a machine slow: a core does less in its time (clocks, caches and
// memory that others use), which a fixed piece of work shows by the processor time it takes; and others have the cores.
#pragma once

#include <algorithm>
#include <cmath>

namespace rehearse {

struct Pace {
  int probes = 0;  // 0: nothing is known
  // Processor seconds that a core took for the fixed products and copies, all cores at it at once: median over probes.
  double product_s = 0, copy_s = 0;
  // Standard deviation of ln((product_s + copy_s) * crowding) from one probe to the next; 0 where there are too few.
  double spread = 0;
  // Shares of the cores' time over the whole stretch: what other programs and other guests of the same hardware had,
  // and what of it the latter (steal time).
  double taken = 0, stolen = 0;
  // Of the time in which our threads could have run, the share that they waited for a core; below 0: not known.
  double waited = -1;
  int cores = 1;
  double wanted = 1;  // threads of ours that compute at a time, had nobody else been there

  bool known() const { return probes > 0 && product_s + copy_s > 0; }
  // How many times as long as alone our threads take because others have the cores, by what they waited: only where
  // that is known and they do not wait for one another too.
  bool knows_waiting() const { return waited >= 0 && wanted <= cores; }
  double crowding_by_waiting() const { return 1 / (1 - std::min(0.98, waited)); }
  // Threads of others, by what they took: k of them beside `wanted` of ours have k / (wanted + k) of the cores where
  // together they are more than the cores, else a core each.
  double competitors() const {
    const double had = taken * cores;
    return wanted + had <= cores ? had : wanted * taken / std::max(0.02, 1 - taken);
  }
  // How many times as long as without others so many threads of ours take alongside these k.
  double crowding_of(double threads, double k) const {
    return std::max(1.0, (threads + k) / std::max<double>(threads, cores));
  }
  double crowding_by_load() const { return crowding_of(wanted, competitors()); }
};

// How many times slower the machine was in `then` than in `reference`; 1 where either is not known.
inline double slowdown(const Pace& then, const Pace& reference) {
  if (!then.known() || !reference.known()) return 1;
  const double core = (then.product_s + then.copy_s) / (reference.product_s + reference.copy_s);
  if (then.knows_waiting() && reference.knows_waiting())
    return core * then.crowding_by_waiting() / reference.crowding_by_waiting();
  return core * then.crowding_by_load() / then.crowding_of(then.wanted, reference.competitors());
}

}  // namespace rehearse
