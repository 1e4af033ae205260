// The future, in clock order: a 4-ary heap of instants, each with the events that were pushed for it. Ranks that do the
// same work end it at the same picosecond, so many events share an instant and only the first of them touches the heap;
// a small direct-mapped table finds the bucket of an instant that is pending (a miss costs a second entry for that
// time, nothing else). Within an instant events come in the order they were pushed, which nothing may depend on:
// the simulator brings every instant to rest before it looks at the outcome. An event is cancelled by its owner moving
// on to another version; the owner drops stale ones.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "sim/base/units.h"

namespace rehearse::engine {

struct Event {
  std::uint32_t target;   // what it is about; see simulator/clock.h
  std::uint32_t version;  // of its owner's expectation
};

class EventQueue {
 public:
  EventQueue() { recent_.fill({kNoTime, 0}); }

  bool empty() const { return heap_.empty(); }
  // Time::max() if there is none.
  Time next_time() const { return heap_.empty() ? Time::max() : heap_[0].time; }

  // time >= 0.
  void push(Time time, std::uint32_t target, std::uint32_t version) {
    Instant& recent = recent_[place(time)];
    if (recent.time != time) {
      recent = {time, new_bucket()};
      push_instant(recent);
    }
    buckets_[recent.bucket].push_back({target, version});
  }

  // Of what is to come all comes later by so much for which concerns(event).
  template <class Concerns>
  void postpone(Time by, const Concerns& concerns) {
    std::vector<Instant> before;
    before.swap(heap_);
    recent_.fill({kNoTime, 0});
    std::vector<std::pair<Time, Event>> later;
    for (const Instant& instant : before) {
      std::vector<Event>& bucket = buckets_[instant.bucket];
      const auto rest = std::stable_partition(bucket.begin(), bucket.end(), std::not_fn(concerns));
      for (auto event = rest; event != bucket.end(); ++event) later.emplace_back(instant.time + by, *event);
      bucket.erase(rest, bucket.end());
      if (bucket.empty())
        free_.push_back(instant.bucket);
      else
        push_instant(instant);
    }
    for (const auto& [time, event] : later) push(time, event.target, event.version);
  }

  // Moves events of the next time into `events`; there may be more of that time, in the queue already or pushed
  // meanwhile.
  void take(std::vector<Event>& events) {
    const Instant next = heap_[0];
    Instant& recent = recent_[place(next.time)];
    if (recent.time == next.time && recent.bucket == next.bucket) recent.time = kNoTime;
    events.clear();
    events.swap(buckets_[next.bucket]);
    free_.push_back(next.bucket);
    pop_instant();
  }

 private:
  struct Instant {
    Time time;
    std::uint32_t bucket;
  };
  static constexpr std::size_t kRecentBits = 9;
  static constexpr Time kNoTime = Time::from_ps(-1);

  static std::size_t place(Time time) {
    return static_cast<std::size_t>(static_cast<std::uint64_t>(time.ps()) * 0x9e3779b97f4a7c15u >> (64 - kRecentBits));
  }
  std::uint32_t new_bucket() {
    if (free_.empty()) {
      buckets_.emplace_back();
      return static_cast<std::uint32_t>(buckets_.size() - 1);
    }
    const std::uint32_t bucket = free_.back();
    free_.pop_back();
    return bucket;
  }
  void push_instant(const Instant& instant) {
    std::size_t hole = heap_.size();
    heap_.push_back(instant);
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / 4;
      if (heap_[parent].time <= instant.time) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = instant;
  }
  void pop_instant() {
    const Instant last = heap_.back();
    heap_.pop_back();
    const std::size_t count = heap_.size();
    if (count == 0) return;
    std::size_t hole = 0;
    for (std::size_t first = 1; first < count; first = hole * 4 + 1) {
      // Which child is least is anybody's guess, so it is chosen without a branch.
      std::size_t least = first;
      Time time = heap_[first].time;
      const std::size_t end = first + 4 < count ? first + 4 : count;
      for (std::size_t child = first + 1; child < end; ++child) {
        const Time own = heap_[child].time;
        const bool less = own < time;
        least = less ? child : least;
        time = less ? own : time;
      }
      if (last.time <= time) break;
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = last;
  }

  std::vector<Instant> heap_;
  std::vector<std::vector<Event>> buckets_;
  std::vector<std::uint32_t> free_;
  std::array<Instant, std::size_t{1} << kRecentBits> recent_;
};

}  // namespace rehearse::engine
