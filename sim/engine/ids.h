// Indices that cannot be mixed up. Each kind is a type of its own and indexes only tables of its kind, so that a rank
// is never taken for a stream, nor a transfer for its plan. The way in is explicit, the way out is value(). A default
// one, or any below 0, names nothing.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rehearse::engine {

template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::int32_t value) : value_(value) {}
  constexpr explicit Id(std::size_t index) : value_(static_cast<std::int32_t>(index)) {}

  constexpr std::int32_t value() const { return value_; }
  constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }
  constexpr bool exists() const { return value_ >= 0; }
  constexpr Id& operator++() { return ++value_, *this; }
  friend constexpr Id operator+(Id id, std::int32_t n) { return Id(id.value_ + n); }
  friend constexpr std::int32_t operator-(Id a, Id b) { return a.value_ - b.value_; }
  friend constexpr bool operator==(Id, Id) = default;
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  std::int32_t value_ = -1;
};

// [first, last), for range-for.
template <class Key>
struct IdRange {
  Key first{0}, last{0};

  class Iterator {
   public:
    constexpr explicit Iterator(Key at) : at_(at) {}
    constexpr Key operator*() const { return at_; }
    constexpr Iterator& operator++() { return ++at_, *this; }
    friend constexpr bool operator==(Iterator, Iterator) = default;

   private:
    Key at_;
  };
  constexpr Iterator begin() const { return Iterator(first); }
  constexpr Iterator end() const { return Iterator(last); }
  constexpr bool empty() const { return first == last; }
  constexpr std::int32_t size() const { return last - first; }
};

// A table of T by Key.
template <class Key, class T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(std::size_t count, const T& value = T()) : items_(count, value) {}

  T& operator[](Key key) { return items_[key.index()]; }
  const T& operator[](Key key) const { return items_[key.index()]; }
  T& at(Key key) { return items_.at(key.index()); }
  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  // The id that the next item gets.
  Key next() const { return Key(items_.size()); }
  IdRange<Key> ids() const { return {Key(0), next()}; }
  Key push_back(const T& item) {
    items_.push_back(item);
    return Key(items_.size() - 1);
  }
  Key push_back(T&& item) {
    items_.push_back(std::move(item));
    return Key(items_.size() - 1);
  }
  void resize(std::size_t count, const T& value = T()) { items_.resize(count, value); }
  // Makes room for `key`.
  void reach(Key key) {
    if (key.index() >= items_.size()) items_.resize(key.index() + 1);
  }
  T& back() { return items_.back(); }
  const T& back() const { return items_.back(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<T> items_;
};

// Of a simulation. Ranks and streams of jobs lie one after the other, the streams of a rank too.
using JobId = Id<struct JobTag>;
using RankId = Id<struct RankTag>;
using StreamId = Id<struct StreamTag>;  // a stream of one rank
using NodeId = Id<struct NodeTag>;
using TransferId = Id<struct TransferTag>;          // in flight; used again
using ActivityId = Id<struct ActivityTag>;          // as defined in the network
using StepsId = Id<struct StepsTag>;                // of a collective, as defined in StepRuns
using PlanId = Id<struct PlanTag>;                  // how the transfers of a process group and size go
using ProcessGroupId = Id<struct ProcessGroupTag>;  // an instance of a group, or a channel
using PartId = Id<struct PartTag>;                  // ranks that meet no others for a while (simulator/round_parts.h)

// Of a role's code (code.h).
using SlotId = Id<struct SlotTag>;
using Position = Id<struct PositionTag>;  // an op, in the order of execution of its body and stream
using SegmentId = Id<struct SegmentTag>;
using WaitId = Id<struct WaitTag>;
using LegId = Id<struct LegTag>;
using SyncId = Id<struct SyncTag>;

}  // namespace rehearse::engine
