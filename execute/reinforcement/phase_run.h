// The ranks of one Program of a phase: threads that stand until a step is asked for. What a phase does with its ops
// beside them is a PhaseSteps' of its own (generation.h, policy.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "execute/performer.h"
#include "execute/rank/cpu_rank.h"
#include "execute/rank/phase_steps.h"
#include "execute/rank/run.h"

namespace rehearse::execute {

// A phase's plan; what it names outlives it.
struct PhasePlan {
  const plan::Scenario* scenario = nullptr;
  const program::Program* program = nullptr;
};

// Begins and ends steps; `perform` is a derived class's.
class AskedSteps : public PhaseSteps {
 public:
  bool begin(int rank, std::int64_t step, const RankMemory& memory) override;
  void end(int rank) override;

 private:
  friend class PhaseRun;
  Stop* stop_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t first_ = 0;              // steps were done before
  std::int64_t asked_ = 0, ended_ = 0;  // steps; ends of steps, of all ranks
  int standing_ = 0;                    // ranks that wait for their first step
  bool over_ = false;
  std::vector<RankMemory> memories_;
};

// Of all ranks' arenas.
std::int64_t planned_bytes(const PhasePlan& plan);

class PhaseRun {
 public:
  // `name`: what a failure is said to be of; empty: whoever catches it says that. `steps`: what learning rates know of;
  // a step asked for is another, the first of them `first_step`. `losses`: each step's is taken.
  PhaseRun(std::string name, const PhasePlan& plan, Data& data, AskedSteps& asked, int threads_per_rank, int steps,
           bool losses, const Options& options, std::int64_t first_step = 0);
  ~PhaseRun();
  PhaseRun(const PhaseRun&) = delete;
  PhaseRun& operator=(const PhaseRun&) = delete;

  void start();  // and waits until all ranks stand
  // A step of all ranks. Throws RankFailure, and what Options::poll throws.
  void step();
  double loss();  // of the last step
  void finish();
  // While the ranks stand: sums over the steps since the last call, by rank.
  std::vector<Shares> take_shares();
  std::int64_t held_bytes() const;
  std::int64_t planned_bytes() const;

  const plan::Scenario& scenario() const { return *plan_.scenario; }
  const program::Program& program() const { return *plan_.program; }
  const plan::RankGrid& grid() const { return grid_; }
  const Timeline& timeline(int rank) const { return run_->timeline(rank); }
  // While the ranks stand.
  const RankMemory& memory(int rank) const { return asked_.memories_[static_cast<std::size_t>(rank)]; }
  // While the ranks stand: all parameters, and others in their place.
  Parameters parameters() const;
  void assign(const Parameters& whole);
  // Of the parameters that a rank of ours reads: what a rank of `other` does not hold.
  std::int64_t missing_bytes(int rank, const PhaseRun& other, int other_rank) const;
  std::int64_t parameter_bytes(int rank) const;
  void stop() { world_->stop().request(); }

 private:
  template <class Ready>
  void wait(const Ready& ready);
  [[noreturn]] void fail();
  struct Stretch {
    std::int64_t begin = 0, end = 0;  // of the whole parameter
    DType type = DType::f32;
  };
  // By parameter, each element once.
  std::map<std::string, std::vector<Stretch>> stretches(int rank) const;

  const std::string name_;
  PhasePlan plan_;
  AskedSteps& asked_;
  Options options_;
  plan::RankGrid grid_;
  std::vector<Timeline> timelines_;
  std::unique_ptr<World> world_;
  std::unique_ptr<Run> run_;
  std::vector<int> reporters_;
  std::vector<std::unique_ptr<CpuRank>> ranks_;
  bool started_ = false;
};

}  // namespace rehearse::execute
