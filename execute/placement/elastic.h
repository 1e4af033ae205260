// Ranks that come and go while a run goes on: how many there may be, how many there are, with how many of them the plan
// is performed, and the run that goes on from its last checkpoint when that changes. The global batch stays: fewer
// replicas take more micro-batches each.
//
// A rank whose process is killed has left; others come, and are told to go, by a number in the file `ranks` of the
// checkpoint folder. For a change a checkpoint is written at the end of the next step, from which the run goes on with
// the new number: no step is done twice for it but those that were begun while that one was written.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>

#include "execute/performer.h"
#include "sim/plan/scenario.h"

namespace rehearse::execute {

inline constexpr const char* kRanksFile = "ranks";

struct RankRange {
  int least = 1, most = 1;
};

// "2:8", or "4" for exactly so many. Throws InputError.
RankRange parse_rank_range(const std::string& option, const std::string& text);

// The most ranks, of `present` and at most range.most, with which the plan can be performed; nothing if these are fewer
// than range.least.
std::optional<int> ranks_to_perform_with(const RankRange& range, int present,
                                         const std::function<bool(int ranks)>& possible);

// How many ranks there are. Says by `note` what it cannot follow.
class Membership {
 public:
  Membership(RankRange range, int first, std::string file, std::function<void(const std::string&)> note);

  int present() const { return present_; }
  bool look();           // reads the file if it is not as it was; whether that says another number than present()
  void lost(int ranks);  // so many have left

 private:
  struct Stamp {
    std::int64_t seconds = 0, nanoseconds = 0, bytes = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };

  const RankRange range_;
  const std::string file_;
  const std::function<void(const std::string&)> note_;
  int present_;
  Stamp read_;  // the file as it was when it was read
};

struct ElasticRun {
  RankRange range;
  int first = 1;             // ranks at the beginning, if the file does not say otherwise
  std::string folder;        // of checkpoints
  std::int64_t steps = 0;    // of the whole run
  int failures_at_most = 0;  // of ranks that end by themselves, which would do so again
  std::function<bool(int ranks)> possible;
  // Performs with so many ranks until all is done and returns the exit status; `starts` were before. Throws
  // RankFailure, and what `poll` throws.
  std::function<int(int ranks, int starts, const std::function<void()>& poll)> perform;
  std::function<void(const std::string& text)> note;
};

// Throws RankFailure if too few ranks are left, or too many failed; InputError if there are too few at the beginning.
int run_elastic(const ElasticRun& run);

// Throws InputError for what no other number of ranks can go on from.
void check_elastic(const plan::Scenario& scenario, const CheckpointOptions& checkpoint);

}  // namespace rehearse::execute
