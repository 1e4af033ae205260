// What a run of weeks comes to (sim/run/goodput.h): what `rehearse goodput` prints (reports/goodput.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rehearse::result {

// What fails: a GPU, its NIC, the rest of a host, a switch with its cables, the run's own software.
inline constexpr std::size_t kComponents = 5;
inline constexpr std::array<std::string_view, kComponents> kComponentNames = {"gpu", "nic", "host", "switch", "job"};

// Where the time of a run goes. Effective: steps that are part of what the run ends with. Lost: steps, and what there
// was of checkpoints between them, that had to be done again.
// Fewer replicas: what steps took longer for want of hosts.
inline constexpr std::size_t kWeekShares = 7;
inline constexpr std::array<std::string_view, kWeekShares> kWeekShareNames = {
    "effective", "checkpoints", "lost", "detection", "no_host", "restart", "fewer_replicas"};
enum class WeekShare : unsigned char { effective, checkpoints, lost, detection, no_host, restart, fewer_replicas };

// One sample of a run; times in seconds, which sum to its length.
struct Weeks {
  std::array<double, kWeekShares> shares{};
  std::array<std::int64_t, kComponents> failures{};
  std::int64_t steps = 0;  // that count

  double seconds() const;
  double effective_ratio() const;  // the effective training time ratio: effective over all
  std::int64_t interruptions() const;
};

struct WeekQuantiles {
  double p5 = 0, p50 = 0, p95 = 0;
};
WeekQuantiles week_quantiles(std::vector<double> values);

struct Goodput {
  std::string scenario_name;
  std::string batch;                                  // a step's, for people
  std::int64_t gpus = 0, hosts = 0, spare_hosts = 0;  // -1: as many as are needed
  // Of a step with so many replicas missing, seconds; empty: the run waits where no spare host is left.
  std::vector<double> step_s_missing;
  double step_s = 0, tokens_per_step = 0;  // tokens; samples where a model reads none
  bool tokens = true;
  double mean_time_to_failure_s = 0;                      // of the run while it trains
  double checkpoint_bytes = 0, stall_s = 0, write_s = 0;  // of a checkpoint: ranks stand still; until it counts
  double written_bytes = 0;  // of that, on average; less than all where some have what has changed alone
  std::int64_t interval_steps = 0;
  std::int64_t least_interval_steps = 1;  // one checkpoint is written at a time: the one before is by then
  double asked_interval_s = 0;            // checkpoint.interval, which the least may overrule; 0: not given
  // Training between two checkpoints, seconds: the best (exact; no less than the least), and by formulas of the first
  // and third order, which know no write after the stall.
  double best_interval_s = 0, young_s = 0, daly_s = 0;
  double expected_ratio = 0, expected_at_best = 0;  // closed form; spare hosts never run out
  std::vector<Weeks> samples;
  double first_weights_s = 0;     // of each restart besides failures.restart: rank 0 sends its weights
  double price_per_gpu_hour = 0;  // 0: not given

  double cost_of(const Weeks& weeks) const;  // spare hosts stand by and are paid for
};

}  // namespace rehearse::result
