// See board_failures.h.
#include "execute/processes/board_failures.h"

#include <fmt/format.h>

#include <utility>

#include "sim/base/interrupt.h"

namespace rehearse::execute {
namespace {

constexpr std::chrono::milliseconds kForOthersToReport{2000};  // what they waited for

}  // namespace

BoardFailures::BoardFailures(StatusBoard& board, Stop& stop, bool supervised, std::function<void()> before_telling)
    : board_(board), stop_(stop), supervised_(supervised), before_telling_(std::move(before_telling)) {
  thread_ = std::thread([this] {
    for (; !ended_; std::this_thread::sleep_for(kLook / 2)) look();
  });
}

BoardFailures::~BoardFailures() {
  ended_ = true;
  thread_.join();
}

bool BoardFailures::dead(int rank) const {
  return board_.same_machine(rank) && !board_.alive(rank) && !board_.through(rank);
}

// Only the next rank is looked at: of any that are dead one is next to a living one. (Gloo does not always tell a wait
// that its peer is gone.)
void BoardFailures::look() {
  const int next = (board_.rank() + 1) % board_.ranks();
  if (dead(next)) board_.lost(next);
  // Whoever waits for others does not look for it.
  if (const int signal = end_signal(); signal != 0 && !board_.stopped())
    fail(board_.rank(), fmt::format("rank {} was {}", board_.rank(), Interrupted(signal).what()));
  if (board_.stopped()) stop_.request();
}

void BoardFailures::fail(int, const std::string& text) {
  {
    const std::lock_guard lock(words_);
    board_.fail(text);
  }
  stop_.request();
}

void BoardFailures::waited(int, const std::string& text) {
  const std::lock_guard lock(words_);
  board_.waited(text);
}

void BoardFailures::lost(int rank) {
  board_.lost(rank);
  stop_.request();
}

bool BoardFailures::death_shows() {
  for (const Clock::time_point end = Clock::now() + kForOthersToReport / 4; !board_.stopped() && Clock::now() < end;
       std::this_thread::sleep_for(kLook / 5))
    for (int rank = 0; rank < board_.ranks(); ++rank)
      if (dead(rank)) board_.lost(rank);
  return board_.stopped();
}

std::string BoardFailures::report(const WhereaboutsOf& whereabouts_of) {
  if (!board_.stopped()) return "";
  board_.set_through();
  if (supervised_) return "";
  wait_for_other_reports();
  if (!board_.claim_report()) return "";
  before_telling_();
  FailureFacts facts = board_.facts();
  for (int rank = 0; rank < board_.ranks(); ++rank)
    if (dead(rank)) facts.deaths[rank] = kEndedSilently;
  return failure_text(facts, whereabouts_of);
}

// Until every other rank is through or dead, and then in the order of ranks: the first that is left tells.
void BoardFailures::wait_for_other_reports() const {
  const Clock::time_point deadline = Clock::now() + kForOthersToReport;
  const auto any_silent = [&] {
    for (int rank = 0; rank < board_.ranks(); ++rank)
      if (board_.same_machine(rank) && board_.alive(rank) && !board_.through(rank)) return true;
    return false;
  };
  while (Clock::now() < deadline && any_silent()) std::this_thread::sleep_for(kLook / 2);
  for (int rank = 0; rank < board_.rank(); ++rank)
    if (board_.alive(rank) && board_.through(rank)) std::this_thread::sleep_for(kLook);
}

}  // namespace rehearse::execute
