// Failures of ranks that are processes of one machine, over their status board: what one of them puts on it stops all,
// and one of them tells the user. A thread looks for the word of the others, for the next rank's death and for a signal
// that ends this process.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "execute/processes/failures.h"
#include "execute/processes/status_board.h"

namespace rehearse::execute {

class BoardFailures final : public Failures {
 public:
  // `supervised`: whoever started the ranks tells the user (start_ranks.h). `before_telling` is called by the process
  // that does. Both references outlive it.
  BoardFailures(StatusBoard& board, Stop& stop, bool supervised, std::function<void()> before_telling);
  ~BoardFailures() override;
  BoardFailures(const BoardFailures&) = delete;
  BoardFailures& operator=(const BoardFailures&) = delete;

  void fail(int rank, const std::string& text) override;
  void waited(int rank, const std::string& text) override;
  std::string report(const WhereaboutsOf& whereabouts_of) override;

  // The connection to a rank broke.
  void lost(int rank);
  // Whether a rank of this machine is found dead, now or very soon, or the run is stopped.
  bool death_shows();

 private:
  void look();
  bool dead(int rank) const;
  void wait_for_other_reports() const;

  StatusBoard& board_;
  std::mutex words_;  // of the texts that threads of this process put on the board
  Stop& stop_;
  const bool supervised_;
  const std::function<void()> before_telling_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace rehearse::execute
