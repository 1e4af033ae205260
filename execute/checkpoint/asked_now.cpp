// See asked_now.h.
#include "execute/checkpoint/asked_now.h"

#include <unistd.h>

#include <algorithm>

namespace rehearse::execute {

// Whoever takes the file away has been asked.
bool AskedNow::take() const {
  return ::unlink(file_.c_str()) == 0;
}

bool AskedNow::after(std::int64_t steps_done) {
  if (steps_done >= steps_) return false;  // one is due then anyway
  const std::lock_guard lock(mutex_);
  const std::int64_t ahead = world_.root() ? 1 : 0, known = std::min(steps_done + ahead, steps_ - 1);
  while (first_ + static_cast<std::int64_t>(said_.size()) < known)
    said_.push_back(world_.from_root(world_.root() && take() ? "y" : "n") == "y");
  return said_[static_cast<std::size_t>(steps_done - first_ - 1)];
}

bool AskedNow::known_after(std::int64_t steps_done) const {
  const std::lock_guard lock(mutex_);
  const auto at = static_cast<std::size_t>(steps_done - first_ - 1);
  return steps_done > first_ && at < said_.size() && said_[at];
}

}  // namespace rehearse::execute
