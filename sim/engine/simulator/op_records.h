// The ops of the last step of the ranks whose ops are recorded.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/simulator/ranks.h"
#include "sim/result/result.h"

namespace rehearse::engine {

class OpRecords {
 public:
  // Of a run whose step number steps - 1 is recorded.
  OpRecords(const Ranks& ranks, std::int32_t steps) : ranks_(ranks), step_(steps - 1) {}

  bool wanted(RankId rank, std::int32_t step) const { return step == step_ && ranks_[rank].recorded; }
  // Keeps one that is wanted. `waited` is a transfer's time until the last participant had come, `waited_for` who that
  // was.
  void keep(RankId rank, SlotId slot, program::BodyId body, std::int32_t op, Time start, Time duration,
            Time waited = Time(), result::Share waited_for = result::Share::other) {
    records_.push_back(
        {rank.value(), step_, slot.value(), body, op, start.ps(), duration.ps(), waited.ps(), waited_for});
  }
  // All, by rank and start.
  std::vector<result::OpRecord> take();

 private:
  const Ranks& ranks_;
  std::int32_t step_;
  std::vector<result::OpRecord> records_;
};

}  // namespace rehearse::engine
