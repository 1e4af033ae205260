// Which algorithm NCCL takes, its channels, and its messages; see nccl_tuning.h for the source and what is left out.
// One deviation: link speeds are not rounded to the graph search's candidate list, so that any rate of a topology file
// can be asked about.
#include "sim/collective/nccl_tuning.h"

#include <algorithm>
#include <cmath>

#include "sim/base/check.h"
#include "sim/collective/algorithms/algorithm.h"
#include "sim/collective/nccl_tables.h"

namespace rehearse::collective {

using program::CollectiveKind;

std::string_view name_of(Algorithm algorithm) {
  return kCollectiveAlgorithmWords[static_cast<std::size_t>(algorithm)];
}
std::string_view name_of(Protocol protocol) {
  return kCollectiveProtocolWords[static_cast<std::size_t>(protocol)];
}

std::optional<Algorithm> algorithm_called(std::string_view name) {
  for (int a = 0; a < kAlgorithms; ++a)
    if (const auto algorithm = static_cast<Algorithm>(a); name_of(algorithm) == name) return algorithm;
  return std::nullopt;
}

namespace nccl {

Channels ring_channels(const Machine& machine, const Placement& place) {
  // One node: 6 channels found on Ampere and Hopper, 8 on Blackwell, then doubled at half speed.
  const int found = machine.generation == Generation::blackwell ? 16 : 12;
  if (place.nodes == 1) return {found, machine.nvlink_gbps / found};
  Channels ch{place.per_node, machine.nic_gbps};
  if (place.per_node > 1) ch.gbps = std::min(ch.gbps, machine.nvlink_gbps / place.per_node);
  // ncclTopoDupChannels: fast channels are doubled, except on Hopper when there are more than four slower than 50.
  const bool keep = machine.generation >= Generation::hopper && ch.gbps < 50 && ch.count > 4;
  if (ch.gbps >= 25 && !keep) ch = {2 * ch.count, ch.gbps / 2};
  return ch;
}

bool offers(const Machine& machine, const Placement& place, CollectiveKind kind, Algorithm algorithm,
            Protocol protocol) {
  const AlgorithmModel& model = model_of(algorithm);
  return !model.timed_by_rounds(kind) && model.refusal(machine, place, kind, protocol).empty();
}

namespace {

// In NCCL's own model.
Estimate as_library(const Machine& machine, const Placement& place, Channels channels, CollectiveKind kind,
                    Algorithm algorithm, Protocol protocol, double bytes) {
  REHEARSE_CHECK(place.ranks > 1, "a communicator of {} ranks", place.ranks);
  if (!offers(machine, place, kind, algorithm, protocol)) return {.time_us = -1};
  Estimate e = model_of(algorithm).estimate(machine, place, channels, kind, protocol, bytes);
  e.algorithm = algorithm;
  e.protocol = protocol;
  return e;
}

Estimate filled(const Machine& machine, const Placement& place, double bytes, Estimate e) {
  const double longer = e.time_us < 0 ? 1 : model_of(e.algorithm).filling(machine, place, bytes);
  if (longer == 1) return e;
  e.library_us = e.time_us;
  e.gbps /= longer;
  return with_time(e, bytes);
}

}  // namespace

Estimate estimate(const Machine& machine, const Placement& place, Channels channels, CollectiveKind kind,
                  Algorithm algorithm, Protocol protocol, double bytes) {
  return filled(machine, place, bytes, as_library(machine, place, channels, kind, algorithm, protocol, bytes));
}

Estimate best(const Machine& machine, const Placement& place, CollectiveKind kind, double bytes) {
  if (kind == CollectiveKind::all_to_all) return all_to_all(machine, place, bytes);
  const Channels channels = ring_channels(machine, place);
  Estimate chosen{.time_us = -1};
  for (int a = 0; a < kAlgorithms; ++a)
    for (const Protocol p : {Protocol::ll, Protocol::ll128, Protocol::simple}) {
      const Estimate e = as_library(machine, place, channels, kind, static_cast<Algorithm>(a), p, bytes);
      if (e.time_us >= 0 && (chosen.time_us < 0 || e.time_us < chosen.time_us)) chosen = e;
    }
  REHEARSE_CHECK(chosen.time_us >= 0, "no algorithm for collective {}", static_cast<int>(kind));
  return filled(machine, place, bytes, chosen);
}

double message_latency(const Machine& machine, Protocol protocol, double inside, double outside) {
  const auto p = static_cast<std::size_t>(protocol);
  const double net = machine.net_latency_us * (protocol == Protocol::simple ? 2 : 1);
  return kRingBase[p] + inside * (kRingNvlink[p] + machine.nvlink_latency_us) + outside * (kRingNet[p] + net);
}

double payload_share(Protocol protocol) {
  constexpr PerProtocol kShare = {0.5, 120.0 / 128.0, 1};
  return kShare[static_cast<std::size_t>(protocol)];
}

namespace {

// Latency: a ring's base and one of its hops.
Estimate send_by(const Machine& machine, bool crosses_nodes, double bytes, Protocol protocol) {
  Estimate e{.algorithm = Algorithm::direct, .protocol = protocol};
  const auto p = static_cast<std::size_t>(protocol);
  e.latency_us = kRingBase[p] +
                 (crosses_nodes ? kRingNet[p] + machine.net_latency_us : kRingNvlink[p] + machine.nvlink_latency_us);
  e.gbps = crosses_nodes ? machine.nic_gbps : machine.nvlink_gbps;
  if (protocol == Protocol::ll) e.gbps /= 2;
  e.time_us = e.latency_us + bytes / (1000 * e.gbps);
  return e;
}

Protocol protocol_of_message(double bytes) {
  return bytes <= kPointToPointLlBytes ? Protocol::ll : Protocol::simple;
}

}  // namespace

Estimate send(const Machine& machine, bool crosses_nodes, double bytes) {
  return send_by(machine, crosses_nodes, bytes, protocol_of_message(bytes));
}

// Every rank sends bytes / ranks to each other one. The latency of one send, and for each further peer an LL hop over
// NVLink or NCCL's per-message network overhead: a judgement, close to measured small sizes on one node (10 to 15 us on
// A100). Bandwidth: the slower of a member's port and its node's NICs, used at the same time.
Estimate all_to_all(const Machine& machine, const Placement& place, double bytes, std::optional<Protocol> protocol) {
  const double each = bytes / place.ranks;
  Estimate e = send_by(machine, place.nodes > 1, each, protocol.value_or(protocol_of_message(each)));
  const int remote = place.nodes > 1 ? place.ranks - place.per_node : 0;
  const int local = place.per_node - 1;
  const double overhead = machine.cpu == Cpu::amd ? 2.0 : 1.0;
  e.latency_us += (kRingNvlink[0] + machine.nvlink_latency_us) * std::max(0, local - (remote == 0 ? 1 : 0)) +
                  overhead * std::max(0, remote - 1);
  const double ll = e.protocol == Protocol::ll ? 2 : 1;
  const double port_us = each * local * ll / (1000 * machine.nvlink_gbps);
  const double nic_us = remote > 0 ? each * remote * ll / (1000 * machine.nic_gbps) : 0;
  const double move_us = std::max(port_us, nic_us);
  e.gbps = move_us > 0 ? bytes / (1000 * move_us) : 0;
  e.time_us = e.latency_us + move_us;
  return e;
}

}  // namespace nccl
}  // namespace rehearse::collective
