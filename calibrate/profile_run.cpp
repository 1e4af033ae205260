#include "calibrate/profile_run.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "calibrate/flush_denormals.h"
#include "execute/rank/cpu_rank.h"
#include "sim/base/check.h"

namespace rehearse::calibrate {
namespace {

// Moves nothing.
class NoTransfers : public execute::Communicator {
 public:
  using Time = execute::Arrival;
  using Call = execute::CollectiveCall;
  Time all_reduce(const Call&, program::ReduceOp, kernels::In, kernels::Out, std::int64_t) override { return now(); }
  Time all_gather(const Call&, kernels::In, kernels::Out, std::int64_t) override { return now(); }
  Time reduce_scatter(const Call&, kernels::In, kernels::Out, std::int64_t) override { return now(); }
  Time broadcast(const Call&, kernels::In, kernels::Out, std::int64_t) override { return now(); }
  Time reduce(const Call&, program::ReduceOp, kernels::In, kernels::Out, std::int64_t) override { return now(); }
  Time all_to_all(const Call&, kernels::In, kernels::Out, std::int64_t) override { return now(); }
  Time exchange(std::span<const execute::Message>) override { return now(); }

 private:
  static Time now() { return {execute::Clock::now()}; }
};

// The few ranks that are profiled, in a world in which nobody answers.
class WalkWorld : public execute::World {
 public:
  explicit WalkWorld(const ProfileRequest& r)
      : here_(r.ranks), whereabouts_(static_cast<std::size_t>(r.grid.ranks())) {}

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

// Examples for a model that the default text does not suit (a vocabulary below its bytes).
class MadeData : public execute::Data {
 public:
  explicit MadeData(std::int64_t vocab) : vocab_(std::max<std::int64_t>(1, vocab)) {}
  void load(program::InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements,
            void* out) override {
    const bool ids =
        kind == program::InputKind::tokens || kind == program::InputKind::targets || kind == program::InputKind::labels;
    std::int64_t next = numbers.empty() ? 0 : numbers.front();
    for (std::int64_t i = 0; i < elements; ++i, next += 7919) {
      if (ids)
        static_cast<std::int32_t*>(out)[i] = static_cast<std::int32_t>(next % vocab_);
      else
        static_cast<float*>(out)[i] = static_cast<float>(next % 1000) / 1000;
    }
  }
  std::int64_t examples() const override { return 0; }
  std::string description() const override { return "made examples"; }

 private:
  std::int64_t vocab_;
};

std::unique_ptr<execute::Data> data_for(const plan::Scenario& s) {
  try {
    return execute::open_data(s.model, s.training.seq_len, s.training.seed, "");
  } catch (const InputError&) {
    return std::make_unique<MadeData>(s.model.vocab);
  }
}

using Ranks = std::vector<std::unique_ptr<execute::CpuRank>>;

// Joins whatever way the run ends.
class Threads {
 public:
  Threads(Ranks& ranks, execute::Stop& stop) : ranks_(ranks), stop_(stop) {
    for (auto& rank : ranks_) rank->start();
  }
  ~Threads() { end(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  void end() {
    stop_.request();
    for (auto& rank : ranks_) rank->join();
  }

 private:
  Ranks& ranks_;
  execute::Stop& stop_;
};

// Drawing the parameters takes a core some 20 ns a number; where that is dear, zeros do: kernels take as long on them.
bool worth_initialising(const std::vector<execute::Timeline>& timelines, double seconds) {
  std::int64_t elements = 0;
  for (const execute::Timeline& timeline : timelines)
    for (std::size_t b = 0; b < timeline.persistent.size(); ++b)
      if (timeline.persistent[b] >= 0) elements += timeline.role->buffers[b].elements();
  return static_cast<double>(elements) * 20e-9 < seconds / 5;
}

std::size_t role_index(const ProfileRequest& r, int rank) {
  return static_cast<std::size_t>(program::role_of(r.program, r.grid.coordinates(rank)));
}

// By role; empty for roles that are not profiled.
std::vector<execute::Timeline> timelines_of(const ProfileRequest& r) {
  std::vector<execute::Timeline> timelines(r.program.roles.size());
  for (const int rank : r.ranks) {
    const auto role = role_index(r, rank);
    if (timelines[role].role == nullptr) timelines[role] = execute::make_timeline(r.program.roles[role], r.grid);
  }
  return timelines;
}

// How far the ranks' streams are, and whether they should go on. before_op() is called by their threads.
class Course {
 public:
  Course(const ProfileRequest& request, const std::vector<execute::Timeline>& timelines, const execute::Stop& stop)
      : request_(request), stop_(stop), places_(static_cast<std::size_t>(request.grid.ranks())) {
    for (const int rank : request.ranks) {
      places_[static_cast<std::size_t>(rank)] = streams_;
      for (const auto& instances : timelines[role_index(request, rank)].streams) {
        if (!instances.empty()) used_.push_back(streams_);
        ++streams_;
      }
    }
    step_ = std::vector<std::atomic<std::int64_t>>(streams_);
  }

  void before_op(int rank, std::int64_t step, const program::Op& op) {
    step_[places_[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(op.stream)].store(
        step, std::memory_order_relaxed);
    // Once one has done all, the others are no longer beside it; but they too do the least.
    if (step >= request_.steps && whole_steps() >= std::min(request_.least, request_.steps))
      ended_.store(true, std::memory_order_relaxed);
    if (ended() || stop_.requested()) throw execute::Stopped(std::vector<int>());
  }
  bool ended() const { return ended_.load(std::memory_order_relaxed); }
  // A stream that begins step n has done n.
  std::int64_t whole_steps() const {
    std::int64_t fewest = INT64_MAX;
    for (const std::size_t place : used_) fewest = std::min(fewest, step_[place].load(std::memory_order_relaxed));
    return fewest;
  }

 private:
  const ProfileRequest& request_;
  const execute::Stop& stop_;
  std::size_t streams_ = 0;
  std::vector<std::size_t> places_, used_;       // by rank: its first stream; streams that have ops
  std::vector<std::atomic<std::int64_t>> step_;  // by stream: being done
  std::atomic<bool> ended_ = false;
};

}  // namespace

std::int64_t arena_bytes(const ProfileRequest& request) {
  const auto timelines = timelines_of(request);
  std::int64_t bytes = 0;
  for (const int rank : request.ranks) bytes += timelines[role_index(request, rank)].memory.arena_bytes;
  return bytes;
}

ProfileRun profile(const ProfileRequest& request, const Budget& budget) {
  const FlushDenormals flush;
  const auto timelines = timelines_of(request);
  const auto data = data_for(request.scenario);
  WalkWorld world(request);
  Course course(request, timelines, world.stop());
  execute::Options options;
  options.steps = INT32_MAX;  // the course ends it
  options.record = options.record_every_step = options.clear_arena = true;
  options.before_op = [&](int rank, std::int64_t step, const program::Op& op) { course.before_op(rank, step, op); };
  execute::Run run{request.scenario, request.program, request.grid, options, *data, world,
                   timelines,        request.threads, true,         {}};
  Ranks ranks;
  for (const int rank : request.ranks) ranks.push_back(std::make_unique<execute::CpuRank>(run, rank, false));
  if (worth_initialising(timelines, std::min(request.seconds, budget.left())))
    for (auto& rank : ranks) rank->initialise();

  run.began = execute::Clock::now();
  {
    Threads threads(ranks, world.stop());
    const Budget soft = budget.part(request.seconds);
    while (!course.ended() && !budget.spent() && !world.stop().requested()) {
      if (soft.spent() && course.whole_steps() >= request.least) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      budget.poll();
    }
    threads.end();
  }
  if (const std::string cause = world.failures().report(execute::had_not_begun); !cause.empty())
    throw std::runtime_error("while calibrating, " + cause);
  ProfileRun out;
  for (const auto& rank : ranks) {
    const auto records = rank->records();
    out.records.insert(out.records.end(), records.begin(), records.end());
  }
  out.whole_steps = course.whole_steps();
  return out;
}

}  // namespace rehearse::calibrate
