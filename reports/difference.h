// Two results side by side: any two of simulated and measured runs. Ops are joined by identity (rank, slot, body, op;
// the step's number differs between runs and is no part of it); classes, collectives and phases are summed over all
// ops of each, so they compare other plans too. What the difference of the step times consists of is in `account`: the
// lines of step_account.h, whose differences sum to that of the step times to the picosecond.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "reports/step_account.h"
#include "sim/result/read_directory.h"

namespace rehearse::reports {

inline constexpr std::size_t kFirst = 0, kSecond = 1;
template <typename T>
using Pair = std::array<T, 2>;  // of the first result and the second

struct KeyDifference {
  std::string key;
  Pair<std::string> values;  // "-": not there
};

// Sums over the recorded ranks.
struct OpGroup {
  std::string name;
  Pair<std::int64_t> count{}, ps{};
};

// A line of the account, or a detail of it: mean over the recorded ranks.
struct AccountLine {
  std::string line, detail;  // detail: "" for a whole line
  Pair<std::int64_t> ps{};
  std::int64_t difference() const { return ps[kSecond] - ps[kFirst]; }
};

struct JoinedOp {
  Pair<const result::OpRow*> rows{};  // nullptr: not there
};

struct Difference {
  Pair<const result::StoredResult*> results{};
  Pair<std::string> labels;                   // "simulated" and "measured", or "A" and "B"
  std::vector<KeyDifference> keys;            // of the scenarios, by name
  std::vector<KeyDifference> ways;            // calls of both that went by another algorithm or protocol
  std::vector<JoinedOp> ops;                  // the first's order, then those of the second alone
  std::int64_t matched = 0, other_shape = 0;  // other_shape: of the matched, with another kind or shape
  Pair<std::int64_t> alone{};
  std::vector<OpGroup> classes, collectives, phases;
  std::vector<AccountLine> account;  // kernels by class, then waits, then what is not recorded
  std::vector<AccountLine> details;  // the account by op, the largest difference first
  std::int64_t step_difference_ps() const {
    return results[kSecond]->result.step_time_ps - results[kFirst]->result.step_time_ps;
  }
  bool same_program() const { return alone[kFirst] == 0 && alone[kSecond] == 0 && other_shape == 0; }
  std::string sentence;  // what explains most of it
  // How many times slower the machine was in the second than in the first; 0: not known of both.
  double drift = 0;
  // second / first - 1 of the steps, had the machine been as fast in both.
  double step_change_without_drift() const;
  std::vector<std::string> learning_rate;  // what batches that differ mean for it (epoch.h)
  Pair<result::LossTarget> targets;        // where a loss was asked for
  // Second / first of the steps of as many samples of the noise of both, each with its counterpart. pairs 0: none.
  struct Ratio {
    std::int64_t pairs = 0;
    double mean = 0, p2_5 = 0, p50 = 0, p97_5 = 0;
  } ratio;
  std::string drift_sentence;  // empty where it was as fast, to 2%
};

// The results must outlive what is returned.
Difference difference(const result::StoredResult& first, const result::StoredResult& second);

std::string difference_table(const Difference& d);  // 80 columns
std::string difference_json(const Difference& d);   // schema rehearse.compare/1
std::string difference_csv(const Difference& d);    // op by op

// second / first - 1; 0 if both are, not finite if only the first is.
double relative(double first, double second);

}  // namespace rehearse::reports
