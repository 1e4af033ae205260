// See process_world.h. In turn: a slot on the status board; the other ranks' slots; the wire; one identity of all; a
// run, from the root's "begin" when all are "ready" to its "end" once it has all accounts.
#include "execute/processes/process_world.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "execute/processes/board_failures.h"
#include "execute/processes/control_channel.h"
#include "execute/processes/socket_wire.h"
#include "execute/processes/status_board.h"
#include "execute/transport/gloo/gloo_communicator.h"
#include "execute/transport/gloo/gloo_wire.h"
#include "sim/base/check.h"

namespace rehearse::execute {
namespace {

using Topic = ControlChannel::Topic;

constexpr int kRoot = 0;

std::string bytes_of(Clock::time_point when) {
  return {reinterpret_cast<const char*>(&when), sizeof when};
}

class ProcessWorld : public World {
 public:
  explicit ProcessWorld(const ProcessOptions& o)
      : options_(o),
        here_{o.rank},
        folder_(files_folder(o.folder)),
        board_(folder_ + "/" + kBoardFile, o.ranks, o.rank),
        failures_(board_, stop_, o.supervised, [this] { remove_files(); }) {
    wait_for_presence();
    for (int rank = 0; rank < o.ranks; ++rank)
      if (board_.same_machine(rank)) on_this_machine_.push_back(rank);
    connect();
    if (!o.control_only) communicator_ = make_gloo_communicator(*wire_, board_);
  }
  ~ProcessWorld() override {
    board_.set_through();
    control_.reset();
    wire_.reset();
  }

  std::span<const int> here() const override { return here_; }
  std::span<const int> on_this_machine() const override { return on_this_machine_; }
  // By the board: of ranks on other machines it does not know.
  bool knows_arrivals() const override { return on_this_machine_.size() == static_cast<std::size_t>(options_.ranks); }
  bool root() const override { return options_.rank == kRoot; }
  Communicator& communicator(int) override {
    REHEARSE_CHECK(communicator_ != nullptr, "a world of processes without a communicator");
    return *communicator_;
  }
  Wire* wire() override { return options_.control_only ? nullptr : wire_.get(); }
  Stop& stop() override { return stop_; }
  Failures& failures() override { return failures_; }
  Whereabouts& whereabouts(int rank) override { return board_.whereabouts(rank); }

  std::string from_root(std::string bytes) override {
    if (!root()) return control_->receive(kRoot, Topic::shared);
    for (int rank = 1; rank < options_.ranks; ++rank) control_->post(rank, Topic::shared, bytes);
    return bytes;
  }

  // Before anything of the run: the root compares all identities and tells all whether they are one. Throws
  // RanksDiffer.
  void agree() {
    std::string verdict;
    try {
      if (root()) {
        std::vector<Identity> all{options_.identity};
        for (int rank = 1; rank < options_.ranks; ++rank)
          all.push_back(unpack_identity(control_->receive(rank, Topic::identity)));
        verdict = difference_text(all);
        for (int rank = 1; rank < options_.ranks; ++rank) control_->post(rank, Topic::verdict, verdict);
      } else {
        control_->post(kRoot, Topic::identity, pack(options_.identity));
        verdict = control_->receive(kRoot, Topic::verdict);
      }
    } catch (const WaitEnded& ended) {
      not_connected(ended);
    }
    if (verdict.empty()) return;
    board_.set_through();
    wait_until_verdict_is_read();
    if (root()) remove_files();
    throw RanksDiffer(root() ? verdict : "");
  }

  Clock::time_point begin() override {
    if (root()) {
      for (int rank = 1; rank < options_.ranks; ++rank) control_->receive(rank, Topic::ready);
      remove_files();
      const Clock::time_point now = Clock::now();
      for (int rank = 1; rank < options_.ranks; ++rank) control_->post(rank, Topic::begin, bytes_of(now));
      return now;
    }
    control_->post(kRoot, Topic::ready);
    const std::string bytes = control_->receive(kRoot, Topic::begin);
    Clock::time_point began;
    REHEARSE_CHECK(bytes.size() == sizeof began, "an instant of {} bytes", bytes.size());
    std::memcpy(&began, bytes.data(), sizeof began);
    return board_.same_machine(kRoot) ? began : Clock::now();
  }

  void report_loss(std::int64_t step, int rank, double part) override { control_->report_loss(step, rank, part); }
  std::optional<double> loss(std::int64_t step, std::span<const int> reporters) override {
    return control_->loss(step, reporters);
  }

  std::vector<std::string> gather(std::string bytes) override {
    std::vector<std::string> all;
    if (!root()) {
      control_->post(kRoot, Topic::account, bytes);
      control_->receive(kRoot, Topic::end);
      return all;
    }
    all.push_back(std::move(bytes));
    for (int rank = 1; rank < options_.ranks; ++rank) all.push_back(control_->receive(rank, Topic::account));
    for (int rank = 1; rank < options_.ranks; ++rank) control_->post(rank, Topic::end);
    return all;
  }

 private:
  void wait_for_presence() {
    const Clock::time_point deadline = Clock::now() + options_.timeout;
    for (;;) {
      std::vector<int> absent;
      for (int rank = 0; rank < options_.ranks; ++rank)
        if (!board_.present(rank)) absent.push_back(rank);
      if (absent.empty()) return;
      if (Clock::now() >= deadline)
        board_.fail(fmt::format("rank {} {} in {} for {}, which did not come", options_.rank,
                                waited_text(options_.timeout), options_.folder, ranks_text(absent)));
      if (board_.stopped()) throw RankFailure(failures_.report(had_not_begun));
      std::this_thread::sleep_for(kLook / 5);
    }
  }

  void connect() {
    // Every lane is a connection with each other rank: few lanes if there are many.
    constexpr int kFewRanks = 16, kLanes = 4, kLanesOfMany = 2;
    WireOptions w;
    w.rank = options_.rank;
    w.ranks = options_.ranks;
    w.lanes = options_.ranks <= kFewRanks ? kLanes : kLanesOfMany;
    w.folder = folder_;
    w.interface = options_.interface;
    w.loopback = on_this_machine_.size() == static_cast<std::size_t>(options_.ranks);
    w.timeout = options_.timeout;
    try {
      const auto lost = [this](int rank) { failures_.lost(rank); };
      wire_ = options_.control_only ? make_socket_wire(w, stop_, lost) : make_gloo_wire(w, stop_, lost);
      control_.emplace(*wire_);
    } catch (const WaitEnded& ended) {
      not_connected(ended);
    } catch (const std::exception& error) {
      // Gloo says that a connection broke, or did not come about, before it shows whose process has died.
      if (failures_.death_shows()) throw RankFailure(failures_.report(had_not_begun));
      board_.fail(fmt::format("rank {} could not be connected with the others: {}", options_.rank, error.what()));
      throw RankFailure(failures_.report(had_not_begun));
    }
  }

  [[noreturn]] void not_connected(const WaitEnded& ended) {
    if (dynamic_cast<const DeadlineError*>(&ended) != nullptr && !failures_.death_shows())
      board_.fail(fmt::format("rank {} {} to be connected with {}", options_.rank, waited_text(options_.timeout),
                              ranks_text(ended.missing())));
    throw RankFailure(failures_.report(had_not_begun));
  }

  // The root ends only when all have read the verdict: its end would take away what is still on its way. A rank that
  // has ended since has read it.
  void wait_until_verdict_is_read() {
    try {
      if (!root()) return control_->post(kRoot, Topic::verdict_read);
      for (int rank = 1; rank < options_.ranks; ++rank) control_->receive(rank, Topic::verdict_read);
    } catch (const WaitEnded&) {
      return;
    }
  }

  // Once everyone is here, so that nothing is left however the run ends.
  void remove_files() const {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
    if (options_.supervised) std::filesystem::remove(options_.folder, error);  // was made for us
  }

  const ProcessOptions options_;
  Stop stop_;
  std::vector<int> here_, on_this_machine_;
  const std::string folder_;
  StatusBoard board_;
  BoardFailures failures_;
  std::unique_ptr<Wire> wire_;
  std::optional<ControlChannel> control_;
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace

std::unique_ptr<World> make_process_world(const ProcessOptions& options) {
  auto world = std::make_unique<ProcessWorld>(options);
  world->agree();
  return world;
}

}  // namespace rehearse::execute
