// Checkpoints that are asked for while a run goes on, by a file in their folder (kNowFile). The root looks for it at
// the end of each of its steps, and what it finds holds for the end of the next one: by then all ranks can know, and
// none waits for the answer but one that is more than a step ahead of the root. Takes a message of a few bytes a step
// to each other process.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "execute/processes/world.h"

namespace rehearse::execute {

class AskedNow {
 public:
  // Of a run of `steps` steps, of which `first` are done.
  AskedNow(World& world, std::string file, std::int64_t first, std::int64_t steps)
      : world_(world), file_(std::move(file)), first_(first), steps_(steps), said_{false} {}

  // Whether there is to be one after so many steps. By the threads of ranks here, of every step that they end. A wait
  // as in World::begin().
  bool after(std::int64_t steps_done);
  // Likewise; never waits. At the root known before the step's loss is, which takes a step of the root's.
  bool known_after(std::int64_t steps_done) const;

 private:
  bool take() const;

  World& world_;
  const std::string file_;
  const std::int64_t first_, steps_;
  mutable std::mutex mutex_;
  std::vector<bool> said_;  // of the ends of the steps from first_ on; for the first it is too late
};

}  // namespace rehearse::execute
