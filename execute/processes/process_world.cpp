// See process_world.h. Control goes over the wire's lane 0: "ready" to the root and its "go", losses, accounts, and the
// root's "enough", after which a process may end.
#include "execute/processes/process_world.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <thread>
#include <utility>

#include "execute/performer.h"
#include "execute/processes/run_state.h"
#include "execute/processes/status_board.h"
#include "execute/transport/gloo/gloo_communicator.h"
#include "execute/transport/wire.h"
#include "sim/base/check.h"
#include "sim/base/interrupt.h"

namespace rehearse::execute {
namespace {

namespace fs = std::filesystem;

constexpr int kRoot = 0;
constexpr std::chrono::milliseconds kGrace{2000};  // for others to say what they waited for

enum Control : std::int64_t {
  kReady,
  kGo,
  kSize,
  kAccounts,
  kEnough,
  kSharedSize,
  kShared,
  kVerdictSize,
  kVerdict,
  kRead
};
std::uint64_t control_tag(Control what) {
  return make_tag(TagKind::control, what, 0);
}

// Raises the stop of this process when any process of the run raises its own on the board, and looks whether the next
// rank lives: of any that are dead one is next to a living one. (Gloo does not always tell a wait that its peer is
// gone.)
class StopWatch {
 public:
  StopWatch(Board& board, int rank, Stop& stop)
      : board_(board), rank_(rank), next_((rank + 1) % board.ranks()), stop_(stop) {
    thread_ = std::thread([this] {
      for (; !ended_; std::this_thread::sleep_for(kLook / 2)) look();
    });
  }
  ~StopWatch() {
    ended_ = true;
    thread_.join();
  }
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

 private:
  void look() {
    const bool here = board_.same_machine(next_);
    if (here && !board_.alive(next_) && !board_.through(next_)) board_.lost(next_);
    // Whoever waits for others does not look for it.
    if (const int signal = end_signal(); signal != 0 && !board_.stopped())
      board_.fail(fmt::format("rank {} was {}", rank_, Interrupted(signal).what()));
    if (board_.stopped()) stop_.request();
  }

  Board& board_;
  const int rank_, next_;
  Stop& stop_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

class GlooWorld : public World {
 public:
  explicit GlooWorld(const GlooOptions& o)
      : options_(o),
        here_{o.rank},
        folder_(files_folder(o.folder)),
        board_(folder_ + "/" + kBoardFile, o.ranks, o.rank),
        watch_(board_, o.rank, stop_) {
    wait_for_presence();
    for (int rank = 0; rank < o.ranks; ++rank)
      if (board_.same_machine(rank)) on_this_machine_.push_back(rank);
    connect();
    if (!o.control_only) communicator_ = make_gloo_communicator(*wire_, board_);
  }
  ~GlooWorld() override {
    board_.set_through();
    parts_.clear();
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
  Stop& stop() override { return stop_; }
  Whereabouts& whereabouts(int rank) override { return board_.whereabouts(rank); }

  std::string from_root(std::string bytes) override {
    if (!root()) return receive_text(kRoot, kSharedSize, kShared);
    for (int rank = 1; rank < options_.ranks; ++rank) post_text(rank, kSharedSize, kShared, bytes);
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
          all.push_back(unpack_identity(receive_text(rank, kSharedSize, kShared)));
        verdict = difference_text(all);
        for (int rank = 1; rank < options_.ranks; ++rank) post_text(rank, kVerdictSize, kVerdict, verdict);
      } else {
        post_text(kRoot, kSharedSize, kShared, pack(options_.identity));
        verdict = receive_text(kRoot, kVerdictSize, kVerdict);
      }
    } catch (const WaitEnded& ended) {
      not_connected(ended);
    }
    if (verdict.empty()) return;
    board_.set_through();
    await_readers();
    if (root()) remove_files();
    throw RanksDiffer(root() ? verdict : "");
  }

  Clock::time_point begin() override {
    Clock::time_point now;
    if (root()) {
      for (int rank = 1; rank < options_.ranks; ++rank) receive(rank, kReady, &now, sizeof now);
      remove_files();
      now = Clock::now();
      for (int rank = 1; rank < options_.ranks; ++rank)
        wire_->post(rank, kControlLane, control_tag(kGo), bytes_of(now));
      return now;
    }
    wire_->post(kRoot, kControlLane, control_tag(kReady), bytes_of(Clock::now()));
    receive(kRoot, kGo, &now, sizeof now);
    return board_.same_machine(kRoot) ? now : Clock::now();
  }

  void report_loss(std::int64_t step, int rank, double part) override {
    if (root())
      losses_.report(step, rank, part);
    else
      wire_->post(kRoot, kControlLane, make_tag(TagKind::loss, 0, step), bytes_of(part));
  }

  std::optional<double> loss(std::int64_t step, std::span<const int> reporters) override {
    try {
      for (const int rank : reporters) {
        if (rank == kRoot) continue;
        Part& part = parts_[rank];
        if (part.step == step) continue;  // has come
        if (part.transfer == nullptr)
          part.transfer =
              wire_->receive(rank, kControlLane, make_tag(TagKind::loss, 0, step), &part.value, sizeof part.value);
        if (!wire_->look(*part.transfer)) return {};
        part.transfer.reset();
        part.step = step;
        losses_.report(step, rank, part.value);
      }
    } catch (const Stopped&) {
      return {};
    }
    return losses_.take(step, reporters);
  }

  void fail(int, std::string text) override {
    board_.fail(text);
    stop_.request();
  }
  void waited(int, std::string text) override { board_.waited(text); }

  std::string failure(const std::function<std::string(int)>& whereabouts_of) override {
    if (!board_.stopped()) return "";
    board_.set_through();
    if (options_.supervised) return "";
    wait_for_others_to_say();
    if (!board_.claim_telling()) return "";
    remove_files();
    std::vector<std::string> deaths(static_cast<std::size_t>(options_.ranks));
    for (int rank = 0; rank < options_.ranks; ++rank)
      if (board_.same_machine(rank) && !board_.alive(rank) && !board_.through(rank))
        deaths[static_cast<std::size_t>(rank)] = "ended without a word";
    return failure_text(board_, deaths, whereabouts_of);
  }

  std::vector<std::string> gather(std::string bytes) override {
    std::vector<std::string> all;
    if (!root()) {
      post_text(kRoot, kSize, kAccounts, bytes);
      char enough = 0;
      receive(kRoot, kEnough, &enough, sizeof enough);
      return all;
    }
    all.push_back(std::move(bytes));
    for (int rank = 1; rank < options_.ranks; ++rank) all.push_back(receive_text(rank, kSize, kAccounts));
    for (int rank = 1; rank < options_.ranks; ++rank)
      wire_->post(rank, kControlLane, control_tag(kEnough), std::string(1, '\0'));
    return all;
  }

 private:
  struct Part {  // of a step's loss, from another process
    std::int64_t step = -1;
    double value = 0;
    std::unique_ptr<Wire::Transfer> transfer;
  };

  template <class T>
  static std::string bytes_of(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
  void post_text(int to, Control size, Control what, const std::string& text) {
    wire_->post(to, kControlLane, control_tag(size), bytes_of(static_cast<std::uint64_t>(text.size())));
    if (!text.empty()) wire_->post(to, kControlLane, control_tag(what), text);
  }
  std::string receive_text(int from, Control size, Control what) {
    std::uint64_t bytes = 0;
    receive(from, size, &bytes, sizeof bytes);
    std::string text(bytes, '\0');
    if (!text.empty()) receive(from, what, text.data(), text.size());
    return text;
  }
  void receive(int from, Control what, void* data, std::size_t bytes) {
    wire_->wait(*wire_->receive(from, kControlLane, control_tag(what), data, bytes));
  }

  void wait_for_presence() {
    const Clock::time_point deadline = Clock::now() + options_.timeout;
    for (;;) {
      std::vector<int> absent;
      for (int rank = 0; rank < options_.ranks; ++rank)
        if (!board_.present(rank)) absent.push_back(rank);
      if (absent.empty()) return;
      if (Clock::now() >= deadline)
        board_.fail(fmt::format("rank {} waited {:.3g} s in {} for rank{} {}, which did not come", options_.rank,
                                static_cast<double>(options_.timeout.count()) / 1000, options_.folder,
                                absent.size() == 1 ? "" : "s", fmt::join(absent, ", ")));
      if (board_.stopped()) throw RankFailure(failure(unknown_place));
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
      const auto lost = [this](int rank) {
        board_.lost(rank);
        stop_.request();
      };
      wire_ = options_.control_only ? make_socket_wire(w, stop_, lost) : make_gloo_wire(w, stop_, lost);
    } catch (const WaitEnded& ended) {
      not_connected(ended);
    } catch (const std::exception& error) {
      // Gloo says that a connection broke, or did not come about, before it shows whose process has died.
      if (death_shows()) throw RankFailure(failure(unknown_place));
      board_.fail(fmt::format("rank {} could not be connected with the others: {}", options_.rank, error.what()));
      throw RankFailure(failure(unknown_place));
    }
  }

  [[noreturn]] void not_connected(const WaitEnded& ended) {
    if (dynamic_cast<const DeadlineError*>(&ended) != nullptr && !death_shows())
      board_.fail(fmt::format("rank {} waited {:.3g} s to be connected with rank{} {}", options_.rank,
                              static_cast<double>(options_.timeout.count()) / 1000,
                              ended.missing().size() == 1 ? "" : "s", fmt::join(ended.missing(), ", ")));
    throw RankFailure(failure(unknown_place));
  }

  // The root ends only when all have read the verdict: its end would take away what is still on its way. A rank that
  // has ended since has read it.
  void await_readers() {
    try {
      if (!root()) return wire_->post(kRoot, kControlLane, control_tag(kRead), std::string(1, '\0'));
      for (int rank = 1; rank < options_.ranks; ++rank) {
        char read = 0;
        receive(rank, kRead, &read, sizeof read);
      }
    } catch (const WaitEnded&) {
      return;
    }
  }

  // Whether a rank of this machine is found dead, now or very soon, or the run is stopped.
  bool death_shows() {
    for (const Clock::time_point end = Clock::now() + kGrace / 4; !board_.stopped() && Clock::now() < end;
         std::this_thread::sleep_for(kLook / 5))
      for (int rank = 0; rank < options_.ranks; ++rank)
        if (board_.same_machine(rank) && !board_.alive(rank) && !board_.through(rank)) board_.lost(rank);
    return board_.stopped();
  }

  static std::string unknown_place(int rank) { return fmt::format("rank {} had not begun", rank); }

  // Once everyone is here, so that nothing is left however the run ends.
  void remove_files() const {
    std::error_code error;
    fs::remove_all(folder_, error);
    if (options_.supervised) fs::remove(options_.folder, error);  // was made for us
  }

  // Until every other rank is through or dead, and then in the order of ranks, the first that is left tells.
  void wait_for_others_to_say() const {
    const Clock::time_point deadline = Clock::now() + kGrace;
    const auto silent = [&](int rank) {
      return board_.same_machine(rank) && board_.alive(rank) && !board_.through(rank);
    };
    const auto any_silent = [&] {
      for (int rank = 0; rank < options_.ranks; ++rank)
        if (silent(rank)) return true;
      return false;
    };
    while (Clock::now() < deadline && any_silent()) std::this_thread::sleep_for(kLook / 2);
    for (int rank = 0; rank < options_.rank; ++rank)
      if (board_.alive(rank) && board_.through(rank)) std::this_thread::sleep_for(kLook);
  }

  const GlooOptions options_;
  Stop stop_;
  std::vector<int> here_, on_this_machine_;
  const std::string folder_;
  Board board_;
  StopWatch watch_;
  std::unique_ptr<Wire> wire_;
  std::unique_ptr<Communicator> communicator_;
  Losses losses_;
  std::map<int, Part> parts_;
};

}  // namespace

std::unique_ptr<World> make_gloo_world(const GlooOptions& options) {
  auto world = std::make_unique<GlooWorld>(options);
  world->agree();
  return world;
}

}  // namespace rehearse::execute
