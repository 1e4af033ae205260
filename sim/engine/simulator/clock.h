// The clock of a simulation: what time it is, and what comes next. An event names its kind and what it is about; one
// whose owner has moved on to another version is stale, and its owner drops it.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/ids.h"

namespace rehearse::engine {

enum class EventKind : std::uint32_t {
  kernels,        // the kernels of a stream's segment end; where cores are shared: its next kernel is launched
  core_work,      // a stream's kernel or copy on shared cores ends
  copy,           // of a buffered message by a stream ends
  staged_copy,    // of a message into the slot that it is sent from ends
  launch,         // the host has launched what a stream waits for, or its thread has come to it
  host_record,    // the host of a rank has reached a HostSync that records; version: its progress
  activity,       // of the network ends
  bytes,          // a transfer's start-up is over
  core_transfer,  // a transfer that cores of a shared host move ends
  message,        // of a collective's steps arrives
  loaded,         // a micro-batch that a stream waits for is
  job             // starts
};

class Clock {
 public:
  // The kind lies in the top bits of an event's target, an index below.
  static constexpr std::uint32_t target(EventKind kind) { return static_cast<std::uint32_t>(kind) << kIndexBits; }
  static EventKind kind(const Event& event) { return static_cast<EventKind>(event.target >> kIndexBits); }
  template <class Key>
  static Key about(const Event& event) {
    return Key(static_cast<std::int32_t>(event.target & kIndexMask));
  }

  Time now() const { return now_; }
  template <class Tag>
  void at(Time when, EventKind kind, Id<Tag> about, std::uint32_t version = 0) {
    queue_.push(when, target(kind) | static_cast<std::uint32_t>(about.value()), version);
  }

  bool empty() const { return queue_.empty(); }
  Time next() const { return queue_.next_time(); }  // Time::max(): nothing
  void advance(Time to) { now_ = to; }
  // Events of this instant; dispatching them may bring up more.
  const std::vector<Event>& take() {
    queue_.take(instant_);
    events_ += static_cast<std::int64_t>(instant_.size());
    return instant_;
  }
  std::int64_t events() const { return events_; }  // taken
  // For parts that choose targets themselves, below target(their kind).
  EventQueue& queue() { return queue_; }

 private:
  static constexpr int kIndexBits = 28;
  static constexpr std::uint32_t kIndexMask = (1u << kIndexBits) - 1;

  EventQueue queue_;
  std::vector<Event> instant_;
  Time now_;
  std::int64_t events_ = 0;
};

}  // namespace rehearse::engine
