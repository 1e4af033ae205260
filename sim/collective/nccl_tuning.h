// NCCL's own performance model: how long each algorithm and protocol would take for a collective, and which is fastest.
// Formulas and constants of src/graph/tuning.cc (ncclTopoTuneModel, ncclTopoGetAlgoTime) and src/enqueue.cc, tag
// v2.28.9-1. NCCL uses it to choose; here it is also the shape that measurements correct (measurements.h).
//
// Taken: Ring, Tree, NVLS and NVLSTree (Hopper and later), PAT, CollNetDirect and CollNetChain where the network adds
// up (InfiniBand SHARP); protocols LL, LL128, Simple. Left out: all-gather and reduce-scatter in switches, tuner
// plugins, fp8 penalties. Ours, because NCCL has no such model: all-to-all and send. Units as in NCCL: microseconds,
// GB/s (1e9), which is also 1e3 bytes a microsecond.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sim/program/op.h"

namespace rehearse::collective::nccl {

enum class Generation : unsigned char { ampere, hopper, blackwell };
enum class Cpu : unsigned char { intel, amd };
// The last two are none of NCCL's (rounds.h).
enum class Algorithm : unsigned char {
  ring,
  tree,
  nvls,
  nvls_tree,
  pat,
  direct,
  collnet_direct,
  collnet_chain,
  halving_doubling,
  hierarchical
};
inline constexpr int kAlgorithms = 10;
enum class Protocol : unsigned char { ll, ll128, simple };
inline constexpr int kProtocols = 3;
std::string_view name_of(Algorithm algorithm);
std::string_view name_of(Protocol protocol);
std::optional<Algorithm> algorithm_called(std::string_view name);

// The machine as the model sees it.
struct Machine {
  Generation generation = Generation::ampere;
  Cpu cpu = Cpu::intel;
  bool pat = false;              // library has PAT (2.23 and later)
  bool nvswitch = true;          // devices of a node are joined by one, which can add up from Hopper on
  bool sharp = false;            // the network's switches add up (InfiniBand SHARP)
  double nvlink_gbps = 0;        // payload of one device's port, one direction
  double nic_gbps = 0;           // payload of one NIC, one direction
  double net_latency_us = 0;     // beyond NCCL's constant: the `latency` a network plugin reports
  double nvlink_latency_us = 0;  // the same of a hop over NVLink; ours
};
// NCCL's constants of the LL protocol, which a topology file gives as its latencies.
inline constexpr double kNvlinkHopUs = 0.6, kNetHopUs = 2.7;
// NCCL_P2P_LL_THRESHOLD: up to here a message goes by LL, above by Simple.
inline constexpr double kPointToPointLlBytes = 16384;

// Where the ranks of a communicator are.
struct Placement {
  int ranks = 1;
  int nodes = 1;
  int per_node = 1;  // of the node with the fewest members: rings that cross nodes have that many rails
};

// A communicator's channels as NCCL's graph search finds them: count and GB/s each.
struct Channels {
  int count = 1;
  double gbps = 0;
};
Channels ring_channels(const Machine& machine, const Placement& place);

struct Estimate {
  double time_us = 0;
  double latency_us = 0;
  double gbps = 0;  // bytes of the collective a second (algorithm bandwidth), 0: latency only
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
};

// Why NCCL does not offer the algorithm and protocol there, for people; "" if it does.
std::string refusal(const Machine& machine, const Placement& place, program::CollectiveKind kind, Algorithm algorithm,
                    Protocol protocol);
// One algorithm and protocol with given channels; time_us < 0 if NCCL does not offer it there. all_reduce, all_gather,
// reduce_scatter, broadcast. `bytes` is the full size.
Estimate estimate(const Machine& machine, const Placement& place, Channels channels, program::CollectiveKind kind,
                  Algorithm algorithm, Protocol protocol, double bytes);
// The fastest of them; all_to_all by the point-to-point model.
Estimate best(const Machine& machine, const Placement& place, program::CollectiveKind kind, double bytes);

// Messages of which each waits for the one before, by one protocol: the latency of `inside` of them within a node and
// `outside` between nodes, and the share of the wire that payload gets (LL: 8 of 16 bytes, LL128: 120 of 128).
double message_latency(const Machine& machine, Protocol protocol, double inside, double outside);
double payload_share(Protocol protocol);

Estimate send(const Machine& machine, bool crosses_nodes, double bytes);
// Without a protocol, the one that NCCL takes for messages of the size.
Estimate all_to_all(const Machine& machine, const Placement& place, double bytes,
                    std::optional<Protocol> protocol = std::nullopt);

// Thread blocks that NCCL uses of `limit`: fewer for small messages (enqueue.cc: while B < channels * threads *
// threshold).
int blocks(const Estimate& chosen, const Placement& place, double bytes, int limit);

}  // namespace rehearse::collective::nccl
