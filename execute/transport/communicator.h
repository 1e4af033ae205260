// How ranks on CPUs move numbers between them, whatever carries them: threads of one process, Gloo or MPI.
// One Communicator a rank; its calls block until our part is done, and may be made by several threads at once (one a
// stream), because every call names its match: collectives by their number on the group, messages by their number on
// the channel, both counted in program order. Sends are buffered: they never wait for the receiver, so no order of a
// rank's own operations can make two ranks wait for one another in a circle.
//
// A wait ends with DeadlineError after the run's deadline, with Stopped once another thread of the run has failed.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device.h"
#include "sim/program/op.h"

namespace rehearse::execute {

using Clock = std::chrono::steady_clock;

// One call of a collective on a group, as a member sees it.
struct CollectiveCall {
  program::GroupId group = 0;
  std::span<const int> members;  // ranks in group order, ours among them
  std::int64_t sequence = 0;     // how many calls the group made before, since the run began
};

// One send or receive of a group of them that start and finish together.
struct Message {
  bool send = false;
  int peer = 0;
  int channel = 0;
  std::int64_t sequence = 0;  // how many messages went from sender to receiver on this channel before
  kernels::Out data;          // only read if sent
  std::int64_t elements = 0;
};

// When the last participant of a call had come, and of a collective which rank that was (-1: not known).
struct Arrival {
  Clock::time_point when;
  int last = -1;
};

class WaitEnded : public std::exception {
 public:
  explicit WaitEnded(std::vector<int> missing) : missing_(std::move(missing)) {}
  const std::vector<int>& missing() const { return missing_; }  // the ranks that had not come

 private:
  std::vector<int> missing_;
};
class DeadlineError : public WaitEnded {
 public:
  using WaitEnded::WaitEnded;
  const char* what() const noexcept override { return "deadline passed"; }
};
class Stopped : public WaitEnded {
 public:
  using WaitEnded::WaitEnded;
  const char* what() const noexcept override { return "stopped"; }
};

// Of an all-to-all of unequal parts, by member in group order: elements of what we send it and what we get from it,
// each in that order one after the other, and where in what it sends our part begins.
struct Parts {
  std::vector<std::int64_t> sent, received, begins;
};

// Element counts are those of program::Collective; `in` and `out` are of one type, fp32, bf16 or f16, on every rank
// alike. Reductions add in fp32, element by element, in an order that does not depend on who came first (of 16-bit
// elements in group order), and round the result once. `in` and `out` may be the same buffer, or the shard our own part
// of the whole. Each says when the last participant had come; of messages, when the last that we receive was sent, if
// that is known.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual Arrival all_reduce(const CollectiveCall& m, program::ReduceOp op, kernels::In in, kernels::Out out,
                             std::int64_t elements) = 0;
  virtual Arrival all_gather(const CollectiveCall& m, kernels::In in, kernels::Out out, std::int64_t elements) = 0;
  virtual Arrival reduce_scatter(const CollectiveCall& m, kernels::In in, kernels::Out out, std::int64_t elements) = 0;
  // From the group's first member.
  virtual Arrival broadcast(const CollectiveCall& m, kernels::In in, kernels::Out out, std::int64_t elements) = 0;
  // To the group's first member; `out` of the others is left as it is.
  virtual Arrival reduce(const CollectiveCall& m, program::ReduceOp op, kernels::In in, kernels::Out out,
                         std::int64_t elements) = 0;
  virtual Arrival all_to_all(const CollectiveCall& m, kernels::In in, kernels::Out out, std::int64_t elements) = 0;
  // `in` and `out` do not overlap.
  virtual Arrival all_to_all_parts(const CollectiveCall& m, kernels::In in, kernels::Out out, const Parts& parts) = 0;
  virtual Arrival exchange(std::span<const Message> messages) = 0;

  // How it performs a collective of so many elements among so many: "ring", "direct", ..., of two parts both.
  virtual std::string_view way(program::CollectiveKind kind, std::int64_t elements, std::int64_t members,
                               program::DType type) const = 0;
};

}  // namespace rehearse::execute
