// See queue.h.
#include "sim/run/queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"

namespace rehearse::run {
namespace {

constexpr std::int64_t kMostTurns = 5'000'000;  // some seconds
constexpr double kNoEvent = std::numeric_limits<double>::infinity();

// The hosts of a job and how many devices of each.
using Taken = std::vector<std::pair<std::size_t, std::int64_t>>;

// Devices that are free, by host.
class QueueRoom {
 public:
  QueueRoom(std::int64_t hosts, std::int64_t devices)
      : devices_(devices), all_(hosts * devices), whole_(hosts), free_(static_cast<std::size_t>(hosts), devices) {}

  std::optional<Taken> find(std::int64_t gpus) const {
    if (gpus > all_) return std::nullopt;
    return gpus <= devices_ ? on_a_host(gpus) : on_whole_hosts(gpus / devices_);
  }
  // Whether there is room now that these were given, where there was none before.
  bool holds_after(const Taken& given, std::int64_t gpus) const {
    if (gpus > devices_) return whole_ >= gpus / devices_;
    return std::any_of(given.begin(), given.end(), [&](const auto& part) { return free_[part.first] >= gpus; });
  }
  void take(const Taken& taken) {
    for (const auto& [host, devices] : taken) change(host, -devices);
  }
  void give(const Taken& taken) {
    for (const auto& [host, devices] : taken) change(host, devices);
  }
  std::int64_t free() const { return all_; }
  std::int64_t free_on(std::size_t host) const { return free_[host]; }
  std::size_t hosts() const { return free_.size(); }

 private:
  void change(std::size_t host, std::int64_t devices) {
    whole_ -= free_[host] == devices_ ? 1 : 0;
    free_[host] += devices, all_ += devices;
    whole_ += free_[host] == devices_ ? 1 : 0;
  }
  std::optional<Taken> on_a_host(std::int64_t gpus) const {
    std::size_t best = free_.size();
    for (std::size_t host = 0; host < free_.size(); ++host)
      if (free_[host] >= gpus && (best == free_.size() || free_[host] < free_[best])) best = host;
    if (best == free_.size()) return std::nullopt;
    return Taken{{best, gpus}};
  }
  std::optional<Taken> on_whole_hosts(std::int64_t hosts) const {
    if (whole_ < hosts) return std::nullopt;
    Taken taken;
    for (std::size_t host = 0; host < free_.size(); ++host) {
      if (free_[host] < devices_) continue;
      taken.emplace_back(host, devices_);
      if (static_cast<std::int64_t>(taken.size()) == hosts) return taken;
    }
    return std::nullopt;
  }

  std::int64_t devices_, all_, whole_;  // whole_: hosts that are free
  std::vector<std::int64_t> free_;
};

struct Running {
  std::size_t job = 0;
  Taken taken;
  double left_s = 0;  // of its work
  bool began = false;
};

// Jobs that run together: all of the cluster's, or those of one turn.
struct Turn {
  QueueRoom room;
  std::vector<Running> running;
};

class Queue {
 public:
  explicit Queue(const QueueRequest& request) : request_(request) {
    out_.runs.resize(request.jobs.size());
    for (const QueuedJob& job : request.jobs) {
      REHEARSE_CHECK(job.gpus >= 1 && job.gpus <= request.hosts * request.devices &&
                         (job.gpus <= request.devices || job.gpus % request.devices == 0),
                     "a job that fits on no empty cluster");
      REHEARSE_CHECK(job.after < job.group, "a job that waits for its own or a later group");
      left_in_group_.resize(std::max<std::size_t>(left_in_group_.size(), static_cast<std::size_t>(job.group) + 1));
      ++left_in_group_[static_cast<std::size_t>(job.group)];
    }
    waiting_jobs_of_.resize(left_in_group_.size());
    for (std::size_t j = 0; j < request.jobs.size(); ++j) {
      const QueuedJob& job = request.jobs[j];
      if (job.after < 0)
        arriving_.emplace(job.arrive_s, j);
      else
        waiting_jobs_of_[static_cast<std::size_t>(job.after)].push_back(j);
    }
    turns_.push_back(empty_turn());
  }

  QueueOutcome run() && {
    while (true) {
      check_interrupt();
      const double next = std::min({arriving_.empty() ? kNoEvent : arriving_.top().first, first_end(), turn_ends_});
      if (next == kNoEvent) break;
      pass(std::max(now_, next));  // jobs may come while a turn is changed
      end_jobs();
      while (!arriving_.empty() && arriving_.top().first <= now_) arrive();
      start_jobs();
      take_turns();
    }
    out_.makespan_s = now_;
    return std::move(out_);
  }

 private:
  Turn empty_turn() const { return {QueueRoom(request_.hosts, request_.devices), {}}; }
  Turn& turn() { return turns_[at_]; }
  const Turn& turn() const { return turns_[at_]; }
  bool gang() const { return request_.policy == QueuePolicy::gang; }
  const QueuedJob& job(std::size_t j) const { return request_.jobs[j]; }

  double first_end() const {
    double end = kNoEvent;
    for (const Running& r : turn().running) end = std::min(end, now_ + r.left_s);
    return end;
  }

  // Time goes on to `next` with the jobs that run.
  void pass(double next) {
    const double seconds = next - now_;
    for (Running& r : turn().running) {
      if (!r.began) out_.runs[r.job].start_s = now_, r.began = true;
      out_.gpu_s.busy += seconds * static_cast<double>(job(r.job).gpus);
      r.left_s = now_ + r.left_s <= next ? 0 : r.left_s - seconds;
    }
    const std::int64_t free = turn().room.free();
    const bool others = turns_.size() > 1;
    double& share = waiting_.empty() && !others                               ? out_.gpu_s.idle
                    : !waiting_.empty() && job(waiting_.front()).gpus <= free ? out_.gpu_s.fragmented
                                                                              : out_.gpu_s.too_few;
    share += seconds * static_cast<double>(free);
    now_ = next;
  }

  void arrive() {
    const std::size_t j = arriving_.top().second;
    out_.runs[j].arrive_s = arriving_.top().first;
    arriving_.pop();
    waiting_.push_back(j);
  }

  void end_jobs() {
    std::erase_if(turn().running, [&](const Running& r) {
      if (r.left_s > 0) return false;
      turn().room.give(r.taken);
      out_.runs[r.job].end_s = now_;
      const auto group = static_cast<std::size_t>(job(r.job).group);
      if (--left_in_group_[group] == 0)
        for (const std::size_t j : waiting_jobs_of_[group]) arriving_.emplace(now_ + job(j).arrive_s, j);
      return true;
    });
  }

  void start(Turn& in, std::size_t j, const Taken& taken) {
    in.room.take(taken);
    in.running.push_back({j, taken, job(j).work_s, false});
  }

  // The first that wait, as far as they fit; then, where the policy lets them, others.
  void start_jobs() {
    while (!waiting_.empty() && start_somewhere(waiting_.front())) waiting_.pop_front();
    if (request_.policy == QueuePolicy::backfill && waiting_.size() > 1) backfill();
  }

  bool start_somewhere(std::size_t j) {
    for (Turn& one : turns_)
      if (const auto taken = one.room.find(job(j).gpus)) {
        start(one, j, *taken);
        return true;
      }
    if (!gang() || static_cast<std::int64_t>(turns_.size()) >= request_.level) return false;
    turns_.push_back(empty_turn());
    start(turns_.back(), j, *turns_.back().room.find(job(j).gpus));
    return true;
  }

  // When the first that waits has room, and what is free then.
  std::pair<double, QueueRoom> promised() {
    std::vector<const Running*> ends;
    for (const Running& r : turn().running) ends.push_back(&r);
    std::stable_sort(ends.begin(), ends.end(),
                     [](const Running* a, const Running* b) { return a->left_s < b->left_s; });
    QueueRoom room = turn().room;
    bool found = false;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      room.give(ends[i]->taken);
      found = found || room.holds_after(ends[i]->taken, job(waiting_.front()).gpus);
      const bool others = i + 1 < ends.size() && ends[i + 1]->left_s == ends[i]->left_s;  // end with it
      if (found && !others) return {now_ + ends[i]->left_s, room};
    }
    REHEARSE_CHECK(false, "a job that has no room when all others have ended");
    return {kNoEvent, room};
  }

  void backfill() {
    auto [at, then] = promised();
    const std::int64_t first = job(waiting_.front()).gpus;
    std::map<std::int64_t, double> in_vain;  // by GPUs the shortest work that could not start
    for (auto w = waiting_.begin() + 1; w != waiting_.end();) {
      const QueuedJob& one = job(*w);
      const auto known = in_vain.find(one.gpus);
      std::optional<Taken> taken;
      if (known == in_vain.end() || one.work_s < known->second) {
        taken = now_ + one.work_s <= at ? turn().room.find(one.gpus) : beside(then, one.gpus, first);
        if (!taken) in_vain[one.gpus] = one.work_s;
      }
      if (taken) start(turn(), *w, *taken);
      w = taken ? waiting_.erase(w) : w + 1;
    }
  }

  // Room for a job that still runs when `first` GPUs were promised, and leaves them: of hosts the fullest with which
  // that holds. It is taken from `then`.
  std::optional<Taken> beside(QueueRoom& then, std::int64_t gpus, std::int64_t first) const {
    const auto leaves = [&](const Taken& taken) {
      QueueRoom left = then;
      left.take(taken);
      if (!left.find(first)) return false;
      then = std::move(left);
      return true;
    };
    const QueueRoom& room = turn().room;
    if (gpus > request_.devices) {
      auto taken = room.find(gpus);
      return taken && leaves(*taken) ? taken : std::nullopt;
    }
    // Hosts with as much room now and then are alike.
    std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> kinds;
    for (std::size_t host = 0; host < room.hosts(); ++host)
      if (room.free_on(host) >= gpus) kinds.try_emplace({room.free_on(host), then.free_on(host)}, host);
    for (const auto& [free, host] : kinds)
      if (const Taken taken{{host, gpus}}; leaves(taken)) return taken;
    return std::nullopt;
  }

  // Gang: an empty set of jobs goes; the next one's turn comes when this one's is over.
  void take_turns() {
    if (!gang()) return;
    const bool over = now_ >= turn_ends_, empty = turn().running.empty();
    for (std::size_t t = turns_.size(); t-- > 0;) {
      if (!turns_[t].running.empty() || turns_.size() == 1 || t == at_) continue;
      turns_.erase(turns_.begin() + static_cast<std::ptrdiff_t>(t));
      if (t < at_) --at_;
    }
    if (turns_.size() == 1) {
      turn_ends_ = kNoEvent;
      return;
    }
    if (over || empty) {
      if (empty) {
        turns_.erase(turns_.begin() + static_cast<std::ptrdiff_t>(at_));
        at_ %= turns_.size();
      } else {
        at_ = (at_ + 1) % turns_.size();
      }
      if (++turns_taken_ > kMostTurns)
        throw InputError(Diagnostic{"", 0, 0, "gang.slice",
                                    fmt::format("the jobs would take more than {} turns", kMostTurns),
                                    "a longer slice"});
      out_.gpu_s.switching += request_.switch_s * static_cast<double>(request_.hosts * request_.devices);
      now_ += request_.switch_s;
      turn_ends_ = turns_.size() > 1 ? now_ + request_.slice_s : kNoEvent;
    } else if (turn_ends_ == kNoEvent) {
      turn_ends_ = now_ + request_.slice_s;
    }
  }

  using Arrivals =
      std::priority_queue<std::pair<double, std::size_t>, std::vector<std::pair<double, std::size_t>>, std::greater<>>;

  const QueueRequest& request_;
  QueueOutcome out_;
  double now_ = 0, turn_ends_ = kNoEvent;
  Arrivals arriving_;
  std::deque<std::size_t> waiting_;
  std::vector<Turn> turns_;
  std::size_t at_ = 0;  // whose turn it is
  std::int64_t turns_taken_ = 0;
  std::vector<std::int64_t> left_in_group_;
  std::vector<std::vector<std::size_t>> waiting_jobs_of_;  // by group
};

}  // namespace

const char* policy_name(QueuePolicy policy) {
  constexpr const char* kNames[] = {"fifo", "backfill", "gang"};
  return kNames[static_cast<std::size_t>(policy)];
}

QueueOutcome simulate_queue(const QueueRequest& request) {
  return Queue(request).run();
}

}  // namespace rehearse::run
