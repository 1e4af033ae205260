// How a run that cannot go on says so, the same whatever connects its ranks. Each process reports what its ranks ran
// into to its Failures, which carries it to whoever tells the user: within the process (LocalFailures), over a status
// board in shared memory (board_failures.h) or over MPI (mpi/control_channel.h). All that is known comes together in
// FailureFacts, of which failure_text() decides what is to blame and makes the one message.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "execute/transport/stop.h"

namespace rehearse::execute {

// A rank failed, or waited longer than the timeout: which rank, in which op of which slot, and who waited for whom. An
// empty text if another process tells the user.
class RankFailure : public std::runtime_error {
 public:
  explicit RankFailure(const std::string& text, int left = 0) : std::runtime_error(text), left_(left) {}
  int left() const { return left_; }  // ranks whose processes were killed or told to end, as far as is known

 private:
  int left_;
};

// Where a rank was, for one that cannot say it any more: "rank 3 (stage1) was in 'loss.forward' (...)".
using WhereaboutsOf = std::function<std::string(int rank)>;
std::string had_not_begun(int rank);  // "rank 3 had not begun": before there is a run

class Failures {
 public:
  virtual ~Failures() = default;
  // A rank here cannot go on. The first of the run is the cause; what is reported later counts as waiting. Stops the
  // run, in all of its processes.
  virtual void fail(int rank, const std::string& text) = 0;
  // A rank here waited for others when the run was stopped. Of each rank the first text is kept.
  virtual void waited(int rank, const std::string& text) = 0;
  // What went wrong in the run, for the user. Empty if nothing failed, and also if it did but another process tells the
  // user. May wait a little, for others to report what they waited for.
  virtual std::string report(const WhereaboutsOf& whereabouts_of) = 0;
};

// What is known of a run that failed.
struct FailureFacts {
  int failed = -1;                     // the rank that was the first to say that it cannot go on; -1: none did
  std::string cause;                   // what it said
  std::map<int, std::string> deaths;   // by rank, how a process ended that could not say so: "was killed by signal 9"
  int lost = -1;                       // a rank whose connection broke
  std::map<int, std::string> waiting;  // by rank, what it waited for
  std::vector<int> silent;             // ranks whose processes live, or seem to, and say nothing
  std::string from_outside;            // who or what ended the whole run, if none of the ranks did
};

// A death of which no more is known.
inline constexpr const char* kEndedSilently = "ended without a word";

// The message: first what is to blame, then who else died, who waited for whom and who is silent, a line each.
//   - What ended the run from outside explains all of it.
//   - A rank that said why it cannot go on is to blame, before one that died without saying so, before one whose
//     connection broke: each of these may follow from the one before.
//   - A rank that says nothing may be the one for which all others wait, through one another.
// Empty if nothing failed.
std::string failure_text(const FailureFacts& facts, const WhereaboutsOf& whereabouts_of);

// "rank 3", "ranks 1, 3".
std::string ranks_text(std::span<const int> ranks);
// "waited 1.5 s"; with the ranks that are missing "waited 1.5 s for ranks 1, 3".
std::string waited_text(std::chrono::milliseconds time, std::span<const int> missing = {});
// "rank 3 does not answer: stopped, perhaps".
std::string silent_text(int rank);

// Facts as they are reported. Thread-safe.
class FailureLog {
 public:
  // The cause, if there is none and no rank has died.
  void failed(int rank, const std::string& text);
  void waited(int rank, const std::string& text);
  void died(int rank);
  FailureFacts facts() const;

 private:
  mutable std::mutex mutex_;
  FailureFacts facts_;
};

// Of ranks that are all in this process.
class LocalFailures final : public Failures {
 public:
  explicit LocalFailures(Stop& stop) : stop_(stop) {}
  void fail(int rank, const std::string& text) override;
  void waited(int rank, const std::string& text) override { log_.waited(rank, text); }
  std::string report(const WhereaboutsOf& whereabouts_of) override;

 private:
  Stop& stop_;
  FailureLog log_;
};

}  // namespace rehearse::execute
