// Interning of interference states; see interference.h.
#include "sim/engine/interference.h"

#include <algorithm>

#include "sim/base/check.h"

namespace rehearse::engine {

InterferenceStates::InterferenceStates() {
  intern({});
  holds_.push_back({});
}

HoldId InterferenceStates::hold(const cost::Interference& what) {
  const auto found = std::find(holds_.begin(), holds_.end(), what);
  if (found != holds_.end()) return HoldId(static_cast<std::size_t>(found - holds_.begin()));
  if ((holds_.size() + 1) * 2 > std::size_t{1} << row_bits_) {
    ++row_bits_;
    next_.assign(states_.size() << row_bits_, StateId());
  }
  return holds_.push_back(what);
}

StateId InterferenceStates::intern(const cost::Interference& value) {
  const auto [entry, fresh] = ids_.try_emplace(value, states_.next());
  if (fresh) {
    states_.push_back(value);
    next_.resize(states_.size() << row_bits_);
  }
  return entry->second;
}

StateId InterferenceStates::find(StateId state, HoldId hold, int removing) {
  const cost::Interference& now = value(state);
  const cost::Interference& change = holds_[hold];
  const int sign = removing != 0 ? -1 : 1;
  const cost::Interference sum{now.sms_held + sign * change.sms_held,
                               now.bandwidth_taken + sign * change.bandwidth_taken, now.busy_cores};
  REHEARSE_CHECK(sum.sms_held >= 0 && sum.bandwidth_taken >= 0, "a transfer gave back more than it held");
  const StateId result = intern(sum);
  next_[place(state, hold, removing)] = result;
  return result;
}

}  // namespace rehearse::engine
