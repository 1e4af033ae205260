#include "calibrate/calibrate.h"

#include <algorithm>

#include "calibrate/budget.h"
#include "calibrate/calibration_json.h"
#include "calibrate/flush_denormals.h"
#include "calibrate/kernel_grid.h"
#include "calibrate/machine.h"
#include "calibrate/made.h"
#include "calibrate/profile_targets.h"
#include "calibrate/server_times.h"
#include "calibrate/switching.h"
#include "calibrate/transfers.h"
#include "execute/other_load.h"
#include "execute/pace_watch.h"
#include "execute/transport/gloo/gloo_wire.h"
#include "sim/base/host.h"

namespace rehearse::calibrate {
namespace {

enum Part : std::size_t { kMachine, kWalks, kLocal, kSharing, kGloo, kGrid };

constexpr double kLeastForGloo = 0.5;  // seconds: ranks take half of that to find one another
// Seconds, at most, for what no simulation goes without, even if the budget is spent: about 0.05 are taken where
// nothing else runs.
constexpr double kLeastForLocal = 2;
constexpr double kForServers = 0.1;       // of what is left: each kernel of parameter servers takes little
constexpr std::size_t kFewestWakes = 30;  // in programs, to be believed rather than those of two streams alone

// Shares of the budget. With scenarios, half goes to what they do themselves.
std::vector<double> weights(bool scenarios) {
  return scenarios ? std::vector<double>{6, 46, 14, 6, 10, 18} : std::vector<double>{8, 0, 20, 10, 16, 46};
}

class Calibrating {
 public:
  explicit Calibrating(const Request& request)
      : request_(request),
        budget_(request.budget_s, [this] { report(); }),
        weights_(weights(!request.scenarios.empty())),
        cores_(usable_cores()),
        pace_(cores_) {}

  Outcome run() {
    const auto began = Clock::now();
    const execute::OtherLoad load;
    for (const plan::Scenario& s : request_.scenarios) targets_.push_back(make_target(s));
    for (const plan::Scenario& s : request_.generating) {
      targets_.push_back(make_target(s));
      targets_.back().generates = true;
    }
    cost::Calibration& c = outcome_.calibration;
    c.name = "this host";
    c.host = cost::host_fingerprint();
    c.made = provenance(request_.command, request_.budget_s);
    if (request_.extent == Extent::all)
      measure_all();
    else
      measure_only_programs();
    c.jitter = learnt_.jitter.jitter();
    c.kernel_delays = learnt_.jitter.delays();
    if (request_.extent == Extent::all) pace_.probe();
    c.pace = pace_.pace(busy_ > 0 ? busy_ : cores_);
    c.made.wall_s = seconds_between(began, Clock::now());
    outcome_.others = load.share();
    return std::move(outcome_);
  }

 private:
  void begin(const std::string& what) {
    what_ = what;
    report();
  }
  void report() {
    pace_.look();
    if (request_.progress) request_.progress(what_, std::min(1.0, 1 - budget_.left() / request_.budget_s));
  }
  double seconds_for(Part part) const { return share_of(weights_, part, budget_.left()); }

  void measure_all() {
    cost::Calibration& c = outcome_.calibration;
    measure_machine();
    measure_programs();
    begin("measuring transfers between threads");
    const std::vector<TransferKey> least = measure_least();
    measure_transport(cost::Transport::local, make_local_group, seconds_for(kLocal), least);
    pace_.probe();
    begin("measuring how cores share");
    c.slowdown = measure_sharing(cores_, seconds_for(kSharing), budget_);
    if (execute::gloo_available() && seconds_for(kGloo) > kLeastForGloo) {
      begin("measuring transfers over Gloo");
      measure_transport(cost::Transport::gloo, make_gloo_group, seconds_for(kGloo), {});
    }
    begin("measuring kernels");
    KernelTimes grid;
    measure_grid(KernelGrid(), cores_, budget_, grid);  // at least one, so that no file is empty
    const auto kernels = grid.all(cost::Origin::grid);
    c.kernels.insert(c.kernels.end(), kernels.begin(), kernels.end());
    c.peak_flops = std::max(c.peak_flops, best_product_rate(c.kernels, cores_));
  }

  // Transfers get a fifth of the time.
  void measure_only_programs() {
    begin("measuring how threads wake");
    measure_switches(0.05);
    measure_programs();
    begin("measuring transfers between threads");
    const std::vector<TransferKey> keys = transfers_of(targets_);
    if (!keys.empty())
      add_transfers(keys, cost::Transport::local, make_local_group, std::max(0.2 * request_.budget_s, budget_.left()),
                    Budget(std::max(0.2 * request_.budget_s, budget_.left()), [this] { report(); }));
  }

  void measure_switches(double seconds) {
    const Switching switching = measure_switching(seconds, budget_);
    outcome_.calibration.wake_s = switching.wake_s;
    outcome_.calibration.dispatch_s = switching.dispatch_s;
    learnt_.jitter.add_wakes(switching.wakes);
  }

  void measure_machine() {
    begin("measuring the machine");
    const double seconds = seconds_for(kMachine);
    const Peaks peaks = measure_peaks(cores_, seconds * 0.7, budget_);
    outcome_.calibration.peak_flops = peaks.flops;
    outcome_.calibration.memory_bandwidth = peaks.bandwidth;
    measure_switches(seconds * 0.3);
  }

  // A profile run gets its least number of steps even where that takes longer than its share, but leaves three tenths
  // for the rest.
  void measure_programs() {
    if (targets_.empty()) return;
    begin("profiling " + targets_.front().scenario.name +
          (targets_.size() > 1 ? " and " + std::to_string(targets_.size() - 1) + " more" : ""));
    const bool only = request_.extent == Extent::programs;
    if (!only) pace_.probe();
    pace_.begin_stretch();
    const ProfileReport profiled = profile_targets(targets_, cores_, only ? 0.8 * budget_.left() : seconds_for(kWalks),
                                                   budget_.part((only ? 0.9 : 0.7) * budget_.left()), learnt_);
    pace_.end_stretch();
    pace_.probe();
    busy_ = profiled.busy;
    outcome_.shortfalls = profiled.shortfalls;
    measure_servers(targets_, kForServers * budget_.left(), budget_, learnt_.times);
    outcome_.calibration.kernels = learnt_.times.all(cost::Origin::program);
    if (!learnt_.gaps.empty()) outcome_.calibration.dispatch_s = median(learnt_.gaps);
    if (learnt_.wakes.size() >= kFewestWakes) outcome_.calibration.wake_s = median(learnt_.wakes);
  }

  void add_transfers(const std::vector<TransferKey>& keys, cost::Transport transport, const MakeRankGroup& make,
                     double seconds, const Budget& budget) {
    JitterSamples others;  // of a transport that no simulation of threads takes
    const auto found = measure_transfers(keys, transport, make, seconds, budget,
                                         transport == cost::Transport::local ? learnt_.jitter : others);
    auto& all = outcome_.calibration.transfers;
    all.insert(all.end(), found.begin(), found.end());
  }

  // Outside of the budget, which a busy machine may have used up by now. Returns what was measured.
  std::vector<TransferKey> measure_least() {
    const std::vector<TransferKey> keys = least_transfers();
    const Budget own(kLeastForLocal, [this] { report(); });
    add_transfers(keys, cost::Transport::local, make_local_group, kLeastForLocal, own);
    return keys;
  }

  // The exact sizes of the programs first, in half of the time. `done` are measured already.
  void measure_transport(cost::Transport transport, const MakeRankGroup& make, double seconds,
                         const std::vector<TransferKey>& done) {
    const std::vector<TransferKey> programs = transfers_of(targets_);
    const auto without = [](std::vector<TransferKey> keys, const std::vector<TransferKey>& others) {
      std::erase_if(keys,
                    [&](const auto& key) { return std::find(others.begin(), others.end(), key) != others.end(); });
      return keys;
    };
    const std::vector<TransferKey> exact = without(programs, done);
    const Budget whole = budget_.part(seconds);
    add_transfers(exact, transport, make, exact.empty() ? 0 : seconds / 2, budget_);
    const auto grid = without(without(transfer_grid(request_.budget_s >= 120 ? 8 : 4), programs), done);
    add_transfers(grid, transport, make, whole.left(), budget_);
  }

  const Request& request_;
  Budget budget_;
  std::vector<double> weights_;
  std::string what_;
  int cores_ = 1;
  execute::PaceWatch pace_;
  double busy_ = 0;  // cores, while programs were profiled
  Learnt learnt_;
  std::vector<Target> targets_;
  Outcome outcome_;
};

}  // namespace

namespace {

// Each part of the scatter that `newer` has nothing of is older's.
void keep_older(const cost::Jitter& older, cost::Jitter& newer) {
  if (std::all_of(newer.kernels.begin(), newer.kernels.end(), [](double s) { return s == 0; }))
    newer.kernels = older.kernels, newer.rank_step = older.rank_step, newer.step = older.step;
  const auto keep = [](double& spread, cost::Delays& delays, double older_spread, const cost::Delays& older_delays) {
    if (spread == 0 && !delays.any()) spread = older_spread, delays = older_delays;
  };
  keep(newer.transfers, newer.transfer_delays, older.transfers, older.transfer_delays);
  keep(newer.waking, newer.waking_delays, older.waking, older.waking_delays);
  if (!newer.dispatch_delays.any()) newer.dispatch_delays = older.dispatch_delays;
}

}  // namespace

cost::Calibration refreshed(const cost::Calibration& older, cost::Calibration newer) {
  keep_older(older.jitter, newer.jitter);
  newer.peak_flops = older.peak_flops;
  newer.memory_bandwidth = older.memory_bandwidth;
  newer.slowdown = older.slowdown;
  if (newer.pace.spread == 0) newer.pace.spread = older.pace.spread;  // of too few probes
  for (const cost::CompanyDelays& c : older.kernel_delays)
    if (std::none_of(newer.kernel_delays.begin(), newer.kernel_delays.end(),
                     [&](const auto& n) { return n.threads == c.threads && n.busy == c.busy; }))
      newer.kernel_delays.push_back(c);
  return merged(older, std::move(newer));
}

Outcome calibrate(const Request& request) {
  const FlushDenormals flush;
  return Calibrating(request).run();
}

}  // namespace rehearse::calibrate
