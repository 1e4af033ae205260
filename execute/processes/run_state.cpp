// See run_state.h.
#include "execute/processes/run_state.h"

#include <fmt/format.h>

#include <algorithm>

namespace rehearse::execute {

std::string Failures::text() const {
  constexpr std::size_t kShown = 8;
  const std::lock_guard lock(mutex_);
  if (cause_.empty()) return "";
  std::string text = cause_;
  for (std::size_t i = 0; i < std::min(kShown, waiting_.size()); ++i) text += "\n  " + waiting_[i];
  if (waiting_.size() > kShown) text += fmt::format("\n  and {} more waits", waiting_.size() - kShown);
  return text;
}

}  // namespace rehearse::execute
