// See local_world.h.
#include "execute/processes/local_world.h"

#include <numeric>
#include <utility>

#include "execute/processes/losses.h"
#include "execute/transport/local/local_communicator.h"

namespace rehearse::execute {
namespace {

class LocalWorld : public World {
 public:
  LocalWorld(int ranks, std::chrono::milliseconds timeout)
      : ranks_(static_cast<std::size_t>(ranks)),
        whereabouts_(static_cast<std::size_t>(ranks)),
        communicators_(make_local_communicators(ranks, timeout, stop_)) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }

  std::span<const int> here() const override { return ranks_; }
  std::span<const int> on_this_machine() const override { return ranks_; }
  bool root() const override { return true; }
  Communicator& communicator(int rank) override { return *communicators_[static_cast<std::size_t>(rank)]; }
  Stop& stop() override { return stop_; }
  Failures& failures() override { return failures_; }
  Whereabouts& whereabouts(int rank) override { return whereabouts_[static_cast<std::size_t>(rank)]; }
  Clock::time_point begin() override { return Clock::now(); }

  void report_loss(std::int64_t step, int rank, double part) override { losses_.report(step, rank, part); }
  std::optional<double> loss(std::int64_t step, std::span<const int> reporters) override {
    return losses_.take(step, reporters);
  }
  std::vector<std::string> gather(std::string bytes) override { return {std::move(bytes)}; }

 private:
  Stop stop_;
  std::vector<int> ranks_;
  std::vector<Whereabouts> whereabouts_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  Losses losses_;
  LocalFailures failures_{stop_};
};

}  // namespace

std::unique_ptr<World> make_local_world(int ranks, std::chrono::milliseconds timeout) {
  return std::make_unique<LocalWorld>(ranks, timeout);
}

}  // namespace rehearse::execute
