// See shown_state.h.
#include "sim/engine/simulator/shown_state.h"

namespace rehearse::engine {

std::optional<std::vector<std::int64_t>> StateReader::growth(const StateReader& before, const StateReader& after,
                                                             Time passed) {
  if (before.kinds_ != after.kinds_) return std::nullopt;
  const std::size_t count = after.kinds_.size();
  std::vector<std::int64_t> growth(count);
  for (std::size_t i = 0; i < count; ++i) growth[i] = after.values_[i] - before.values_[i];
  for (std::size_t begin = 0; begin < count;) {
    std::size_t end = begin + 1;
    bool moves = false;
    for (; end < count && after.kinds_[end] != Kind::thing; ++end) {
      if (after.kinds_[end] == Kind::count && growth[end] < 0) return std::nullopt;
      moves = moves || (after.kinds_[end] == Kind::count && growth[end] > 0);
    }
    for (std::size_t i = begin; i < end; ++i) {
      const Kind kind = after.kinds_[i];
      if (kind == Kind::count) continue;
      const bool passes = kind == Kind::recent || (kind == Kind::time && moves);
      if (growth[i] != (passes ? passed.ps() : 0)) return std::nullopt;
    }
    begin = end;
  }
  return growth;
}

}  // namespace rehearse::engine
