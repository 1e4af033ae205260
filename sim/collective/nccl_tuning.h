// NCCL's own performance model: how long each algorithm and protocol would take for a collective, and which is fastest.
// Formulas and constants of src/graph/tuning.cc (ncclTopoTuneModel, ncclTopoGetAlgoTime) and src/enqueue.cc, tag
// v2.28.9-1. NCCL uses it to choose; here it is also the shape that measurements correct (measurements.h). The formulas
// of an algorithm stand in its file (algorithms/).
//
// Taken: Ring, Tree, NVLS and NVLSTree (Hopper and later), PAT, CollNetDirect and CollNetChain where the network adds
// up (InfiniBand SHARP); protocols LL, LL128, Simple. Left out: all-gather and reduce-scatter in switches, tuner
// plugins, fp8 penalties. Ours, because NCCL has no such model: all-to-all and send. Units as in NCCL: microseconds,
// GB/s (1e9), which is also 1e3 bytes a microsecond.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "sim/base/collective_words.h"
#include "sim/program/op.h"

namespace rehearse::collective {

using Algorithm = CollectiveAlgorithm;
using Protocol = CollectiveProtocol;
inline constexpr int kAlgorithms = static_cast<int>(kCollectiveAlgorithmWords.size());
inline constexpr int kProtocols = static_cast<int>(kCollectiveProtocolWords.size());
std::string_view name_of(Algorithm algorithm);
std::string_view name_of(Protocol protocol);
std::optional<Algorithm> algorithm_called(std::string_view name);

namespace nccl {

enum class Generation : unsigned char { ampere, hopper, blackwell };
enum class Cpu : unsigned char { intel, amd };
using PerProtocol = std::array<double, kProtocols>;  // LL, LL128, Simple

// The machine as the model sees it.
struct Machine {
  Generation generation = Generation::ampere;
  Cpu cpu = Cpu::intel;
  bool pat = false;              // library has PAT (2.23 and later)
  bool ll128 = true;             // offered: not among devices that differ, unless all are Hopper or later
  bool nvswitch = true;          // devices of a node are joined by one, which can add up from Hopper on
  bool sharp = false;            // the network's switches add up (InfiniBand SHARP)
  double nvls_tree_chunk = 0;    // most bytes of an NVLSTree's chunk; 0: NCCL's own
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
  int per_node = 1;     // of the node with the fewest members: rings that cross nodes have that many rails
  bool uniform = true;  // the same number on every node
  bool torus = false;   // a rank on every node of whole dimensions of a torus that wraps
};

// A communicator's channels as NCCL's graph search finds them: count and GB/s each.
struct Channels {
  int count = 1;
  double gbps = 0;
};
Channels ring_channels(const Machine& machine, const Placement& place);

struct Estimate {
  double time_us = 0;
  double library_us = 0;  // NCCL's own, by which it chooses, where that is less; 0: the same
  double latency_us = 0;
  double gbps = 0;  // bytes of the collective a second (algorithm bandwidth), 0: latency only
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
};

// One algorithm and protocol with given channels; time_us < 0 if NCCL does not offer it there. `bytes` is the full
// size.
Estimate estimate(const Machine& machine, const Placement& place, Channels channels, program::CollectiveKind kind,
                  Algorithm algorithm, Protocol protocol, double bytes);
bool offers(const Machine& machine, const Placement& place, program::CollectiveKind kind, Algorithm algorithm,
            Protocol protocol);
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

}  // namespace nccl
}  // namespace rehearse::collective
