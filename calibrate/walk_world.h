// The world of a rank that is performed alone to be timed, on a CPU (profile_run.h) or a GPU (gpu/walk.h): nobody
// answers, transfers move nothing, examples are there for any model.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "execute/data.h"
#include "execute/processes/failures.h"
#include "execute/processes/world.h"
#include "execute/transport/communicator.h"
#include "execute/transport/queued_transfers.h"
#include "sim/plan/scenario.h"

namespace rehearse::calibrate {

// Moves nothing.
class NoTransfers final : public execute::Communicator {
 public:
  using Time = execute::Arrival;
  using Call = execute::CollectiveCall;
  Time all_reduce(const Call&, program::ReduceOp, kernels::In, kernels::Out, std::int64_t) override { return now(); }
  Time all_gather(const Call&, kernels::In, kernels::Out, std::int64_t) override { return now(); }
  Time reduce_scatter(const Call&, kernels::In, kernels::Out, std::int64_t) override { return now(); }
  Time broadcast(const Call&, kernels::In, kernels::Out, std::int64_t) override { return now(); }
  Time reduce(const Call&, program::ReduceOp, kernels::In, kernels::Out, std::int64_t) override { return now(); }
  Time all_to_all(const Call&, kernels::In, kernels::Out, std::int64_t) override { return now(); }
  Time all_to_all_parts(const Call&, kernels::In, kernels::Out, const execute::Parts&) override { return now(); }
  Time exchange(std::span<const execute::Message>) override { return now(); }
  std::string_view way(program::CollectiveKind, std::int64_t, std::int64_t, DType) const override { return ""; }

 private:
  static Time now() { return {execute::Clock::now()}; }
};

// The same on a GPU's streams.
class NoQueuedTransfers final : public execute::QueuedTransfers {
 public:
  void collective(const program::Collective&, DType, const void*, void*, void*) override {}
  void all_to_all_parts(program::GroupId, DType, const void*, void*, const execute::Parts&, void*) override {}
  void exchange(std::span<const execute::QueuedMessage>, DType, void*) override {}
  std::string problem() override { return ""; }
  void abort() override {}
};

// The few ranks that are performed, of `ranks` in all.
class WalkWorld final : public execute::World {
 public:
  WalkWorld(std::vector<int> here, std::size_t ranks) : here_(std::move(here)), whereabouts_(ranks) {}

  std::span<const int> here() const override { return here_; }
  std::span<const int> on_this_machine() const override { return here_; }
  bool root() const override { return true; }
  execute::Communicator& communicator(int) override { return communicator_; }
  execute::Stop& stop() override { return stop_; }
  execute::Failures& failures() override { return failures_; }
  execute::Whereabouts& whereabouts(int rank) override { return whereabouts_[static_cast<std::size_t>(rank)]; }
  execute::Clock::time_point begin() override { return execute::Clock::now(); }
  void report_loss(std::int64_t, int, double) override {}
  std::optional<double> loss(std::int64_t, std::span<const int>) override { return {}; }
  std::vector<std::string> gather(std::string) override { return {}; }

 private:
  execute::Stop stop_;
  std::vector<int> here_;
  std::vector<execute::Whereabouts> whereabouts_;
  execute::LocalFailures failures_{stop_};
  NoTransfers communicator_;
};

// The default text, or made examples for a model that it does not suit (a vocabulary below its bytes).
std::unique_ptr<execute::Data> walk_data(const plan::Scenario& scenario);

}  // namespace rehearse::calibrate
