// The state of a simulation as a row of numbers. Parts show theirs to a visitor, field by field and always in the same
// order, so that two states can be compared (StateReader) and one be moved on in time (StateMover) without knowing what
// any of it means. A thing (a stream, a host, a transfer) either stands still between two states, with all its numbers,
// or moves: its counts grow, and its times by what the clock does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/ids.h"

namespace rehearse::engine {

class StateReader {
 public:
  // What follows is of another thing.
  void thing() { add(Kind::thing, 0); }
  // Is the same in both states; grows with a thing that moves; is as long ago in both states if the thing moves; is as
  // long ago in any case.
  template <class T>
  void same(const T& value) {
    add(Kind::same, number(value));
  }
  template <class T>
  void count(const T& value) {
    add(Kind::count, number(value));
  }
  void time(Time value) { add(Kind::time, value.ps()); }
  void recent(Time value) { add(Kind::recent, value.ps()); }

  // By how much each number has grown from `before` to `after`, `passed` later, if nothing else tells the two apart.
  static std::optional<std::vector<std::int64_t>> growth(const StateReader& before, const StateReader& after,
                                                         Time passed);

 private:
  enum class Kind : unsigned char { thing, same, count, time, recent };

  template <class T>
  static std::int64_t number(const T& value) {
    if constexpr (std::is_pointer_v<T>)
      return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(value));
    else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>)
      return static_cast<std::int64_t>(value);
    else if constexpr (std::is_same_v<T, Time>)
      return value.ps();
    else
      return value.value();  // an Id
  }
  void add(Kind kind, std::int64_t value) {
    kinds_.push_back(kind);
    values_.push_back(value);
  }

  std::vector<Kind> kinds_;
  std::vector<std::int64_t> values_;
};

// Adds to every number `times` of its growth.
class StateMover {
 public:
  StateMover(const std::vector<std::int64_t>& growth, std::int64_t times) : growth_(growth), times_(times) {}

  void thing() { ++next_; }
  template <class T>
  void same(const T&) {
    ++next_;
  }
  template <class T>
  void count(T& value) {
    if constexpr (std::is_integral_v<T>)
      value = static_cast<T>(value + by());
    else
      value = T(static_cast<std::int32_t>(value.value() + by()));
  }
  void time(Time& value) { value = value + Time::from_ps(by()); }
  void recent(Time& value) { time(value); }
  bool done() const { return next_ == growth_.size(); }

 private:
  std::int64_t by() { return growth_.at(next_++) * times_; }

  const std::vector<std::int64_t>& growth_;
  std::int64_t times_;
  std::size_t next_ = 0;
};

}  // namespace rehearse::engine
