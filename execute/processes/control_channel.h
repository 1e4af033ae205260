// What processes tell one another besides the numbers of Communicators, over lane 0 of a Wire: short texts by topic,
// and losses on their way to the root (rank 0). Texts of one topic between two ranks arrive in order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "execute/processes/losses.h"
#include "execute/transport/wire.h"

namespace rehearse::execute {

class ControlChannel {
 public:
  enum class Topic : std::int64_t { ready, begin, account, end, identity, verdict, verdict_read, shared };

  explicit ControlChannel(Wire& wire) : wire_(wire) {}  // which outlives it

  // Never waits.
  void post(int to, Topic topic, const std::string& text = "");
  // Throws WaitEnded.
  std::string receive(int from, Topic topic);

  void report_loss(std::int64_t step, int rank, double part);
  // At the root: see World::loss().
  std::optional<double> loss(std::int64_t step, std::span<const int> reporters);

 private:
  struct Part {  // of a step's loss, from another process
    std::int64_t step = -1;
    double value = 0;
    std::unique_ptr<Wire::Transfer> transfer;
  };

  Wire& wire_;
  Losses losses_;
  std::map<int, Part> parts_;
};

}  // namespace rehearse::execute
