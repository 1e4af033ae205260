// What the ranks of a run that are processes of one machine know of one another without a message: a file mapped into
// all of them, a slot a rank. A process holds a lock on its own slot for as long as it lives, so that others see a
// death whatever its cause. Only a slot's owner writes it; stopping, the first cause and who tells the user are claimed
// in the header. Any thread may call anything.
//
// On a file system that does not keep maps of several hosts coherent, a rank sees only ranks of its own host move.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "execute/processes/failures.h"
#include "execute/processes/whereabouts.h"
#include "execute/transport/arrivals.h"

namespace rehearse::execute {

inline constexpr const char* kBoardFile = "board";  // its name
// Where the ranks' files are: a folder of ours within the rendezvous, made if there is none, gone once all ranks have
// found one another. Throws InputError if it cannot be made, or if others than we may write to it.
std::string files_folder(const std::string& rendezvous);

class StatusBoard final : public Arrivals {
 public:
  static constexpr int kObserver = -1;

  // Opens, or makes, the board `file` of `ranks` and takes the slot of `rank`. Throws InputError if the slot is taken,
  // now or by an earlier run, the file is another run's or cannot be made; std::runtime_error if there is no room.
  StatusBoard(const std::string& file, int ranks, int rank);
  ~StatusBoard() override;
  StatusBoard(const StatusBoard&) = delete;
  StatusBoard& operator=(const StatusBoard&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool present(int rank) const;  // has taken its slot, whatever became of it
  bool alive(int rank) const;    // holds it now
  bool through(int rank) const;  // said that it has nothing more to say
  void set_through();
  bool same_machine(int rank) const override;
  Whereabouts& whereabouts(int rank) const;

  // The last few calls of each group are known.
  void arrive(program::GroupId group, std::int64_t sequence, Clock::time_point when) override;
  std::optional<Clock::time_point> arrival(int rank, program::GroupId group, std::int64_t sequence) const override;

  void stop();
  bool stopped() const;
  // We cannot go on, or waited: the first text of each is kept and cut at kText. fail() claims the cause if nobody has.
  void fail(const std::string& text);
  void waited(const std::string& text);
  // The connection to `rank` broke.
  void lost(int rank);
  // Whether we are the one process that tells the user.
  bool claim_report();

  // What is on the board; deaths are for others to add.
  FailureFacts facts() const;

 private:
  struct Text;
  struct CallTime;
  struct Slot;
  struct Header;
  Header& header() const;
  Slot& slot(int rank) const;
  void map(const std::string& file);
  void take_slot(const std::string& file);

  int file_ = -1, ranks_, rank_;
  std::size_t bytes_ = 0;
  void* map_ = nullptr;
  std::string machine_;
};

}  // namespace rehearse::execute
