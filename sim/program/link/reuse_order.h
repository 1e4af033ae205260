// In which slot the op runs that a wait refers to, of events (waits.h) and of memory (places.h).
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "sim/program/link/places.h"
#include "sim/program/link/waits.h"

namespace rehearse::program {

inline constexpr std::int32_t kNoSlot = INT32_MIN;

class ReuseOrder {
 public:
  // `arena`: nullptr: of events alone.
  ReuseOrder(const Role& role, const ArenaPlaces* arena);

  // As StepOrder.
  std::int32_t latest(std::int32_t slot, BodyId body) const { return order_.latest(slot, body); }
  // For an execution in `slot`: negative if it is of the step before, -1 being that step's last slot; kNoSlot: no step
  // has one.
  std::int32_t slot_of(const ReuseWait& wait, std::int32_t slot) const;
  // The same of a wait for the same place, whose row is looked up once.
  std::size_t row(const ReuseWait& wait) const { return row_of_.at(ring_of(wait)); }
  std::int32_t slot_in(std::size_t row, std::int32_t slot) const { return rows_[row][static_cast<std::size_t>(slot)]; }

 private:
  using Ring = std::tuple<BodyId, int, int, int>;  // body, ring, written, touched
  static Ring ring_of(const ReuseWait& wait) { return {wait.body, wait.ring, wait.written, wait.touched}; }
  static std::vector<std::int32_t> make_row(const Role& role, const ReuseWait& wait);

  StepOrder order_;
  std::map<Ring, std::size_t> row_of_;
  std::vector<std::vector<std::int32_t>> rows_;  // by slot
};

}  // namespace rehearse::program
