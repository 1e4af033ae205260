// How a rank comes by first weights that rank 0 draws for all (training.first_weights: broadcast): message by message
// (sim/account/first_weights.h) whoever is first in all of the message's groups draws the parameters in it, whole as
// far as this rank's part of the model goes, and sends them; everybody, the drawing rank too, then has what the message
// says in its types, at the places that are its own: 16-bit parameters, fp32 copies, shards.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <vector>

#include "execute/rank/initial_memory.h"
#include "execute/rank/run.h"
#include "kernels/device.h"
#include "sim/account/first_weights.h"

namespace rehearse::execute {

class FirstWeights {
 public:
  FirstWeights(const Run& run, int rank);

  bool any() const { return !messages_.empty(); }
  std::set<program::BufferId> parameters() const;  // that come so
  // Broadcasts that are made on a group, in all; its other calls come after.
  std::int64_t calls(program::GroupId group) const;

  // Sends elements within one group, from its first member: `data` is read there and written elsewhere.
  using Broadcast = std::function<void(program::GroupId group, kernels::Out data, std::int64_t elements)>;
  // Puts a block where it belongs; `values` are its elements.
  using Keep = std::function<void(const InitialMemory::Block& block, const float* values)>;
  // Throws what `broadcast` and `keep` do.
  void distribute(const Broadcast& broadcast, const Keep& keep) const;

 private:
  bool draws(const account::FirstMessage& message) const;
  std::vector<float> drawn(const account::FirstMessage& message) const;

  const Run& run_;
  int rank_;
  std::vector<account::FirstMessage> messages_;
};

}  // namespace rehearse::execute
