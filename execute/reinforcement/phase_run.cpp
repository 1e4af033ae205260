// See phase_run.h.
#include "execute/reinforcement/phase_run.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "execute/processes/local_world.h"
#include "execute/program_check.h"
#include "execute/rank/initial_values.h"
#include "sim/base/check.h"
#include "sim/base/half.h"

namespace rehearse::execute {
namespace {

std::int64_t bytes_of(const std::vector<Timeline>& timelines, const plan::RankGrid& grid) {
  std::int64_t sum = 0;
  for (int r = 0; r < grid.ranks(); ++r) {
    const auto& memory = timeline_of(timelines, grid, r).memory;
    sum += memory.arena_bytes + memory.host_bytes;
  }
  return sum;
}

}  // namespace

// Without a deadline: who asks for steps is at work, or has the world stopped.
bool AskedSteps::begin(int rank, std::int64_t of_training, const RankMemory& memory) {
  const std::int64_t step = of_training - first_;
  std::unique_lock lock(mutex_);
  if (step == 0) {
    memories_[static_cast<std::size_t>(rank)] = memory;
    ++standing_;
    changed_.notify_all();
  }
  wait_for(
      lock, changed_, *stop_, std::chrono::milliseconds(0), [&] { return asked_ > step || over_; },
      [] { return std::vector<int>(); });
  return asked_ > step;
}

void AskedSteps::end(int) {
  const std::lock_guard lock(mutex_);
  ++ended_;
  changed_.notify_all();
}

PhaseRun::PhaseRun(std::string name, const PhasePlan& plan, Data& data, AskedSteps& asked, int threads_per_rank,
                   int steps, bool losses, const Options& options, std::int64_t first_step)
    : name_(std::move(name)),
      plan_(plan),
      asked_(asked),
      options_(options),
      grid_(plan.scenario->grid()),
      timelines_(make_timelines(*plan.program, grid_)),
      world_(make_local_world(grid_.ranks(), options.timeout)) {
  options_.steps = steps, options_.record = false;
  check_program(*plan_.program, grid_);
  const int slots = check_memory_reuse(*plan_.program, grid_, timelines_, false);
  asked_.stop_ = &world_->stop();
  asked_.memories_.resize(static_cast<std::size_t>(grid_.ranks()));
  run_ = std::make_unique<Run>(Run{*plan_.scenario,
                                   *plan_.program,
                                   grid_,
                                   options_,
                                   data,
                                   *world_,
                                   timelines_,
                                   threads_per_rank,
                                   world_->knows_arrivals(),
                                   {},
                                   slots});
  run_->phase = &asked_;
  run_->first_step = asked_.first_ = first_step;
  for (int r = 0; r < grid_.ranks(); ++r)
    if (losses && run_->timeline(r).loss >= 0 && grid_.coordinate(r, Axis::tensor) == 0) reporters_.push_back(r);
  for (int r = 0; r < grid_.ranks(); ++r)
    ranks_.push_back(
        std::make_unique<CpuRank>(*run_, r, std::find(reporters_.begin(), reporters_.end(), r) != reporters_.end()));
}

PhaseRun::~PhaseRun() {
  if (!started_) return;
  stop();
  for (const auto& rank : ranks_) rank->join();
}

void PhaseRun::fail() {
  const std::string text = world_->failures().report([this](int rank) { return run_->whereabouts(rank); });
  throw RankFailure(name_.empty() || text.empty() ? text : name_ + ": " + text);
}

template <class Ready>
void PhaseRun::wait(const Ready& ready) {
  std::unique_lock lock(asked_.mutex_);
  while (!ready()) {
    if (world_->stop().requested()) {
      lock.unlock();
      fail();
    }
    if (options_.poll) {
      lock.unlock();
      try {
        options_.poll();
      } catch (...) {
        stop();
        throw;
      }
      lock.lock();
      if (ready()) return;
    }
    asked_.changed_.wait_for(lock, kLook);
  }
}

void PhaseRun::start() {
  std::vector<std::exception_ptr> errors(ranks_.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        ranks_[i]->initialise();
      } catch (...) {
        errors[i] = std::current_exception();
        world_->stop().request();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  run_->began = world_->begin();
  started_ = true;
  for (const auto& rank : ranks_) rank->start();
  wait([this] { return asked_.standing_ == grid_.ranks(); });
}

void PhaseRun::step() {
  {
    const std::lock_guard lock(asked_.mutex_);
    ++asked_.asked_;
  }
  asked_.changed_.notify_all();
  wait([this] { return asked_.ended_ == asked_.asked_ * grid_.ranks(); });
}

double PhaseRun::loss() {
  const std::optional<double> loss = world_->loss(asked_.first_ + asked_.asked_ - 1, reporters_);
  REHEARSE_CHECK(loss.has_value(), "a step that has ended has no loss");
  return *loss;
}

void PhaseRun::finish() {
  {
    const std::lock_guard lock(asked_.mutex_);
    asked_.over_ = true;
  }
  asked_.changed_.notify_all();
  for (const auto& rank : ranks_) rank->join();
}

std::vector<Shares> PhaseRun::take_shares() {
  std::vector<Shares> sums(ranks_.size(), Shares{});
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    for (const Shares& step : ranks_[rank]->take_shares())
      for (std::size_t i = 0; i < step.size(); ++i) sums[rank][i] += step[i];
  return sums;
}

std::int64_t PhaseRun::held_bytes() const {
  std::int64_t sum = 0;
  for (const auto& rank : ranks_) sum += rank->held_bytes();
  return sum;
}

std::int64_t PhaseRun::planned_bytes() const {
  return bytes_of(timelines_, grid_);
}

std::int64_t planned_bytes(const PhasePlan& plan) {
  const plan::RankGrid grid = plan.scenario->grid();
  return bytes_of(make_timelines(*plan.program, grid), grid);
}

Parameters PhaseRun::parameters() const {
  Parameters whole;
  for (int r = 0; r < grid_.ranks(); ++r)
    collect(run_->timeline(r), grid_, r, ranks_[static_cast<std::size_t>(r)]->parameters(), whole);
  return whole;
}

// Where one has a longer vocabulary's table than the other, both padded, the rows that both have are the same.
void PhaseRun::assign(const Parameters& whole) {
  for (int r = 0; r < grid_.ranks(); ++r) {
    const Timeline& timeline = run_->timeline(r);
    const RankMemory& memory = asked_.memories_[static_cast<std::size_t>(r)];
    std::vector<Piece> pieces = parameter_pieces(timeline, grid_, r);
    for (const Piece& master : master_pieces(timeline, grid_, r)) pieces.push_back(master);
    for (const Piece& p : pieces) {
      const program::Buffer& b = timeline.role->buffers[static_cast<std::size_t>(p.buffer)];
      const auto found = whole.find(parameter_name(b));
      REHEARSE_CHECK(found != whole.end(), "no parameter '{}' moves", parameter_name(b));
      const auto there = static_cast<std::int64_t>(found->second.size());
      for (const Extent& extent : extents_of(b, grid_.coordinate(r, Axis::tensor), grid_.position(r, b.init.spread))) {
        const std::int64_t begin = std::max(extent.local, p.first), global = extent.global + begin - extent.local,
                           end = std::min({extent.local + extent.count, p.first + p.count, begin + there - global});
        if (begin >= end) continue;
        from_float(p.type, found->second.data() + global, end - begin,
                   memory.at(p.offset + (begin - p.first) * size_of(p.type)));
      }
    }
  }
}

std::map<std::string, std::vector<PhaseRun::Stretch>> PhaseRun::stretches(int rank) const {
  std::map<std::string, std::vector<Stretch>> all;
  const Timeline& timeline = run_->timeline(rank);
  for (const Piece& p : parameter_pieces(timeline, grid_, rank)) {
    const program::Buffer& b = timeline.role->buffers[static_cast<std::size_t>(p.buffer)];
    for (const Extent& e : extents_of(b, grid_.coordinate(rank, Axis::tensor), grid_.position(rank, b.init.spread))) {
      const std::int64_t begin = std::max(e.local, p.first), end = std::min(e.local + e.count, p.first + p.count);
      if (begin < end) all[parameter_name(b)].push_back({e.global + begin - e.local, e.global + end - e.local, p.type});
    }
  }
  for (auto& [name, of] : all) {  // a table that a stage has twice lies there twice
    std::sort(of.begin(), of.end(), [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
    std::int64_t known = 0;
    for (Stretch& s : of) s.begin = std::max(s.begin, known), s.end = std::max(s.begin, s.end), known = s.end;
  }
  return all;
}

std::int64_t PhaseRun::missing_bytes(int rank, const PhaseRun& other, int other_rank) const {
  const auto held = other.stretches(other_rank);
  std::int64_t bytes = 0;
  for (const auto& [name, of] : stretches(rank)) {
    const auto there = held.find(name);
    for (const Stretch& own : of) {
      std::int64_t missing = own.end - own.begin;
      if (there != held.end())
        for (const Stretch& s : there->second)
          missing -= std::max<std::int64_t>(0, std::min(own.end, s.end) - std::max(own.begin, s.begin));
      bytes += missing * size_of(own.type);
    }
  }
  return bytes;
}

std::int64_t PhaseRun::parameter_bytes(int rank) const {
  std::int64_t bytes = 0;
  for (const auto& [name, of] : stretches(rank))
    for (const Stretch& s : of) bytes += (s.end - s.begin) * size_of(s.type);
  return bytes;
}

}  // namespace rehearse::execute
