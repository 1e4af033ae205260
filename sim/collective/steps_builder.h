// Writes the steps of a collective (steps.h): agents first, then the edges between them and what each agent does in
// order.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/collective/rounds.h"
#include "sim/collective/steps.h"

namespace rehearse::collective {

using Ids = std::vector<std::int32_t>;  // of agents or edges

// From one device to another.
struct Hop {
  int from, to;
};

class StepsBuilder {
 public:
  std::int32_t agent();
  Ids agents(std::size_t count);
  std::int32_t edge(int from, int to, std::int64_t bytes, std::int32_t receiver);
  void stage(std::int32_t agent, Ids waits, Ids sends, std::int64_t repeat = 1);
  // Round after round: an agent sends its messages of a round when those of the one before have come.
  void in_order(const Group& group, const std::vector<Round>& rounds);
  // Latencies of the longest chain add up; pipelines run side by side.
  void deepen(std::int64_t depth, double fill = 0);
  // An agent sends to several at once.
  void concurrent() { steps_.concurrent = true; }
  // At last: the builder is empty afterwards.
  Steps finish();

 private:
  struct Draft {
    Ids waits, sends;
    std::int64_t repeat;
  };
  Steps steps_;
  std::vector<std::vector<Draft>> drafts_;
};

}  // namespace rehearse::collective
