// What the simulation asks of a collective algorithm: where it is offered, how long it takes alone, which bytes cross
// which resources, which messages it consists of, and how many channels (thread blocks) it uses. One file an algorithm
// next to this one; sim/base/collective_words.h lists them.
//
// Two families. The time of NCCL's own algorithms is a closed form (nccl_tuning.h), which measurements correct; the
// others go in rounds of messages (rounds.h), from which time and bytes follow.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/nccl_tuning.h"
#include "sim/collective/rounds.h"
#include "sim/collective/wire.h"
#include "sim/program/op.h"

namespace rehearse::collective {

class StepsBuilder;  // steps_builder.h

// Thread blocks that the library uses at most, each of which holds a multiprocessor: within a node, over several nodes,
// where a switch adds up, and for a message.
struct BlockLimits {
  int node = 0, nodes = 0, nvls = 0, send = 0;
};

class AlgorithmModel {
 public:
  virtual ~AlgorithmModel() = default;

  // Why it is not offered there, for people, to be read after its word; "" if it is. Without a protocol the library is
  // not known to be NCCL.
  virtual std::string_view refusal(const nccl::Machine& machine, const nccl::Placement& place,
                                   program::CollectiveKind kind, std::optional<Protocol> protocol) const = 0;

  // Whether the collective's time is that of its rounds. If not, `estimate` gives latency, bandwidth and time in NCCL's
  // model where it is offered; `bytes` is the full size.
  virtual bool timed_by_rounds(program::CollectiveKind kind) const;
  virtual nccl::Estimate estimate(const nccl::Machine& machine, const nccl::Placement& place, nccl::Channels channels,
                                  program::CollectiveKind kind, Protocol protocol, double bytes) const;
  // By how much longer bytes move than NCCL's model has them, where it leaves out that chunks fill what they go
  // through; NCCL chooses without.
  virtual double filling(const nccl::Machine& /*machine*/, const nccl::Placement& /*place*/, double /*bytes*/) const {
    return 1;
  }
  virtual std::vector<Round> rounds(const Group& group, program::CollectiveKind kind, std::int64_t bytes) const;
  // What latency beyond that of neighbouring nodes adds, from that of each pair of nodes that follow each other: their
  // sum and the longest. Not asked of what goes in rounds.
  virtual Time detours(program::CollectiveKind kind, Time sum, Time longest) const;

  // Bytes over one edge between neighbours of the structure in wire.h, all channels together; those of a ring, unless
  // said otherwise. Not asked of what goes in rounds.
  virtual EdgeBytes edge_bytes(const Group& group, program::CollectiveKind kind, std::int64_t bytes) const;
  virtual std::vector<Activity> activities(const cluster::Cluster& cluster, const Group& group,
                                           program::CollectiveKind kind, std::int64_t bytes) const;
  // Device memory that each participant moves; `wire`: its share of the wire's bytes (wire_bytes).
  virtual std::int64_t memory_bytes(program::CollectiveKind kind, std::int64_t bytes, std::int64_t wire) const;

  // Whether it consists of messages between ranks, and these (steps.h); `chunk` as in steps_of.
  virtual bool has_messages(program::CollectiveKind kind) const;
  virtual void add_messages(StepsBuilder& builder, const cluster::Cluster& cluster, const Group& group,
                            program::CollectiveKind kind, std::int64_t bytes, std::int64_t chunk) const;

  // Thread blocks that it uses; 0: none are known of.
  virtual int blocks(const nccl::Placement& place, Protocol protocol, double bytes, const BlockLimits& limits) const;
};

const AlgorithmModel& model_of(Algorithm algorithm);

// One function an algorithm, in the file of its name.
namespace algorithms {
#define REHEARSE_DECLARE(word) const AlgorithmModel& word();
REHEARSE_COLLECTIVE_ALGORITHMS(REHEARSE_DECLARE)
#undef REHEARSE_DECLARE
}  // namespace algorithms

// For several files of this folder: words of refusals, and what is common to NCCL's algorithms.
inline constexpr std::string_view kDevicesDiffer =
    "is not offered among devices that differ, unless all are Hopper or later";
inline constexpr std::string_view kNeedsNccl = "is NCCL's, and nothing is known of NCCL on this device";
inline constexpr std::string_view kAllReduceOnly = "does all_reduce only";
inline constexpr std::string_view kSimpleOnly = "has the protocol simple only";
inline constexpr std::string_view kSeveralNodes = "goes over several nodes";
inline constexpr std::string_view kNeedsSharp = "needs a network that adds up (the topology's fabric.sharp)";
inline constexpr std::string_view kNeedsNvswitch = "needs an NVSwitch in the node";

// all_gather or reduce_scatter, the halves of an all-reduce.
bool is_half(program::CollectiveKind kind);
// How many of `limit` thread blocks a collective of the size uses: fewer for small ones (NCCL's enqueue.cc: while
// bytes < blocks * threads * threshold); `factor` times the threshold.
int blocks_for(Protocol protocol, double bytes, int factor, int limit);

}  // namespace rehearse::collective
