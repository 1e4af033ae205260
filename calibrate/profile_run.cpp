#include "calibrate/profile_run.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "calibrate/flush_denormals.h"
#include "calibrate/generation_profile.h"
#include "calibrate/walk_world.h"
#include "execute/rank/cpu_rank.h"
#include "sim/base/check.h"

namespace rehearse::calibrate {
namespace {

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
  for (const int rank : request.ranks) {
    const program::ArenaPlaces& memory = timelines[role_index(request, rank)].memory;
    bytes += memory.arena_bytes + memory.host_bytes;
  }
  if (request.generates) bytes += GenerationProfile::cache_bytes(request.scenario);
  return bytes;
}

ProfileRun profile(const ProfileRequest& request, const Budget& budget) {
  const FlushDenormals flush;
  const auto timelines = timelines_of(request);
  const auto data = walk_data(request.scenario);
  std::optional<GenerationProfile> generation;
  if (request.generates) generation.emplace(request.scenario, request.program, request.grid);
  WalkWorld world(request.ranks, static_cast<std::size_t>(request.grid.ranks()));
  Course course(request, timelines, world.stop());
  execute::Options options;
  options.steps = INT32_MAX;  // the course ends it
  options.record = options.record_every_step = options.clear_arena = true;
  options.before_op = [&](int rank, std::int64_t step, const program::Op& op) { course.before_op(rank, step, op); };
  execute::Data& examples = generation ? static_cast<execute::Data&>(*generation) : *data;
  execute::Run run{request.scenario, request.program, request.grid, options, examples, world,
                   timelines,        request.threads, true,         {}};
  if (generation) run.phase = &*generation;
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
