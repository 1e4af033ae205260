// A run of weeks that is interrupted: steps and checkpoints are folded into rates, and only failures are events, so a
// sample costs as much as it has failures.
//
// A run trains; after every `interval` of steps stands a checkpoint, for which ranks stand still (`stall`), and which
// counts once it is written (`write` later; 0 where ranks stand still until then). Failures are a Poisson process while
// ranks train or start again (Schroeder and Gibson 2010 find times between failures of a system after its first months
// near exponential); a failure costs what was done since the last checkpoint that counts, the time to detect it, the
// wait for a host if one is taken out and none stands by, and the restart, which may fail too. A host that was taken
// out stands by again after its repair. At most one checkpoint is being written at a time. Where no host stands by the
// run may go on with fewer replicas, which take longer for a step; hosts of a replica that is not whole stand by. With
// more hosts again it stops at the first checkpoint after the repair and starts again, and loses nothing but that.
//
// In closed form, with r the rate of failures, t the interval, s the stall, w the write, d the detection, R the restart
// and hosts enough (a renewal argument over the time from one restart to the next; with w = 0 it is Daly's, "A higher
// order estimate of the optimum checkpoint interval for restart dumps", FGCS 22, 2006, eq. 20, with failures during
// detection left out):
//   E = e^(r R) / r + d e^(r R)                              from a beginning of training to the next
//   effective ratio = t e^(-r w) / (e^(r (t + s)) - 1) / E
// Best interval: e^(r (t + s)) (1 - r t) = 1, whatever w, d and R. Young's estimate of it (CACM 17, 1974): sqrt(2 s /
// r); Daly's (eq. 37): sqrt(2 s M) (1 + sqrt(s / 2M) / 3 + (s / 2M) / 9) - s, M = 1 / r, for s < 2M, else M.
//
// Left out: failures that slow and do not stop, planned stops, what writing in the
// background takes from training, checkpoints that are found damaged.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/result/goodput.h"

namespace rehearse::run {

struct WeeksRequest {
  double step_s = 1;
  std::int64_t interval_steps = 1;
  double stall_s = 0, write_s = 0;
  std::array<double, result::kComponents> rates{};  // failures a second, of all units of a component together
  double detection_s = 0, restart_s = 0, repair_s = 0;
  std::int64_t spare_hosts = -1;  // -1: as many as are needed
  // To go on with fewer replicas: steps with 1, 2, ... of them missing, in seconds (with more the run waits), and how
  // many replicas so many hosts hold. Empty: it waits.
  std::vector<double> step_s_missing;
  std::int64_t hosts = 0, replicas = 0, devices = 0, devices_of_replica = 1;
  // When it ends: after so much time, or so many steps, whichever is first; 0: not by that.
  double seconds = 0;
  std::int64_t steps = 0;

  double rate() const;
};

// Sample `sample` of the seed's: the same whatever else is sampled, and where.
result::Weeks simulate_weeks(const WeeksRequest& request, std::int64_t seed, std::int64_t sample);

double expected_ratio(const WeeksRequest& request);
double best_interval(double rate, double stall_s);  // seconds of training; 0 if rate or stall is
double young_interval(double rate, double stall_s);
double daly_interval(double rate, double stall_s);

}  // namespace rehearse::run
