// The tables and formulas of NCCL's model; see nccl_tuning.h for the source and what is left out. Three deviations: the
// tree correction is interpolated between NCCL's powers of two (NCCL takes the lower one), so that time grows with
// size; the 1.4 times the latency of long rings come in between 64 and 128 bytes a rank and channel (NCCL: all at 64),
// so that more ranks never take less time; link speeds are not rounded to the graph search's candidate list, so that
// any rate of a topology file can be asked about.
#include "sim/collective/nccl_tuning.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/base/check.h"

namespace rehearse::collective::nccl {
namespace {

using program::CollectiveKind;
using PerProtocol = std::array<double, kProtocols>;  // LL, LL128, Simple

constexpr PerProtocol kTreeBase = {6.8, 14.0, 8.4};
constexpr PerProtocol kRingBase = {6.6, 14.0, 8.4};
constexpr double kPatBase = 8.0;
constexpr PerProtocol kTreeNvlink = {kNvlinkHopUs, 1.25, 4.0};
constexpr PerProtocol kRingNvlink = {kNvlinkHopUs, 1.9, 3.4};
constexpr PerProtocol kTreeNet = {5.0, 8.5, 14.0};
constexpr PerProtocol kRingNet = {kNetHopUs, 4.0, 14.0};
constexpr double kNvlsNvlink = 25.0;
constexpr double kNvlsNet = 18.0;
constexpr double kNvlsTreeNet = 20.9;
constexpr double kDirectNvlink = 3.7, kDirectNet = 31.0;  // CollNetDirect
constexpr double kChainNvlink = 2.8, kChainNet = 30.0;    // CollNetChain
constexpr double kPatNet = 14.0;

// Highest LL bandwidth: one node by generation; two nodes and more by CPU vendor.
constexpr std::array<double, 3> kLlMaxNode = {87.7, 141.0, 282.0};
constexpr std::array<std::array<double, 2>, 2> kLlMaxNodes = {{{39.0, 20.4}, {22.5, 19.0}}};
// Per channel; index 0 one node, 1 two nodes, 2 more.
using BySpan = std::array<double, 3>;
constexpr std::array<BySpan, 3> kRingLl128 = {{{20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}}};
constexpr std::array<BySpan, 3> kTreeLl128 = {{{20, 20, 20}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}}};
constexpr std::array<BySpan, 3> kTreeMax = {{{24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}}};
constexpr std::array<BySpan, 3> kNvlsTreeMax = {{{}, {0, 57.7, 45.5}, {0, 96.0, 43.8}}};
constexpr std::array<double, 3> kNvlsEfficiency = {0, 0.85, 0.74};
// Candidates of the graph search inside a node.
using Speeds = std::array<double, 11>;
constexpr std::array<Speeds, 3> kNvlsSpeeds = {
    {{}, {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3}, {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18}}};

constexpr std::array<std::array<double, 23>, kProtocols> kTreeCorrection = {{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9},
}};

int generation(const Machine& machine) {
  return static_cast<int>(machine.generation);
}
int span(const Placement& place) {
  return place.nodes == 1 ? 0 : place.nodes == 2 ? 1 : 2;
}

double ll_max(const Machine& machine, const Placement& place) {
  if (place.nodes == 1) return kLlMaxNode[static_cast<std::size_t>(generation(machine))];
  return kLlMaxNodes[static_cast<std::size_t>(machine.cpu)][place.nodes == 2 ? 0 : 1];
}

double tree_correction(Protocol protocol, double bytes) {
  const auto& table = kTreeCorrection[static_cast<std::size_t>(protocol)];
  const double x = std::log2(std::max(bytes / 64, 1.0));
  const auto i = static_cast<std::size_t>(x);
  if (i + 1 >= table.size()) return i + 1 == table.size() ? table.back() : 1.0;
  return std::lerp(table[i], table[i + 1], x - static_cast<double>(i));
}

double ring_steps(CollectiveKind kind, int ranks) {
  return kind == CollectiveKind::all_reduce ? 2.0 * (ranks - 1) : ranks - 1.0;
}

double ring_latency(const Machine& machine, const Placement& place, CollectiveKind kind, Protocol protocol) {
  const auto p = static_cast<std::size_t>(protocol);
  const bool net = place.nodes > 1;
  const double nvlink = kRingNvlink[p] + machine.nvlink_latency_us;
  if (has_root(kind)) return kRingBase[p] + (net ? kRingNet[p] + machine.net_latency_us : nvlink);
  const double simple = protocol == Protocol::simple ? 1 : 0;
  const double overhead = net ? (machine.cpu == Cpu::amd ? 2.0 : 1.0) * (1 + 2 * simple) : 0;
  const double inter = (place.per_node == 1 ? kTreeNet[p] : kRingNet[p]) + machine.net_latency_us * (1 + simple);
  const double net_steps = net ? ring_steps(kind, place.nodes) : 0;
  const double steps = ring_steps(kind, place.ranks);
  return kRingBase[p] + (steps - net_steps) * std::max(nvlink, overhead) + net_steps * inter;
}

Estimate ring(const Machine& machine, const Placement& place, Channels ch, CollectiveKind kind, Protocol protocol,
              double bytes) {
  double bus = ch.count * ch.gbps;
  if (protocol == Protocol::ll) bus = std::min(ll_max(machine, place), bus / 2);
  if (protocol == Protocol::ll128)
    bus = std::min(
        0.92 * bus,
        ch.count * kRingLl128[static_cast<std::size_t>(generation(machine))][static_cast<std::size_t>(span(place))]);
  Estimate e;
  const double steps = has_root(kind) ? place.ranks : ring_steps(kind, place.ranks);
  e.gbps = bus * place.ranks / steps;
  e.latency_us = ring_latency(machine, place, kind, protocol);
  const bool long_ring = protocol == Protocol::simple && kind == CollectiveKind::all_reduce && place.nodes > 1;
  const double each = bytes / (static_cast<double>(ch.count) * place.ranks);
  if (long_ring && each > 64) e.latency_us *= 1 + 0.4 * std::min(1.0, std::log2(each / 64));
  return e;
}

Estimate tree(const Machine& machine, const Placement& place, Channels ch, Protocol protocol, double bytes) {
  const auto p = static_cast<std::size_t>(protocol);
  const auto g = static_cast<std::size_t>(generation(machine));
  const auto j = static_cast<std::size_t>(span(place));
  double bus = std::min(0.92 * ch.count * ch.gbps, ch.count * kTreeMax[g][j]);
  if (protocol == Protocol::ll) bus = std::min(bus / 3.8, ll_max(machine, place));
  if (protocol == Protocol::ll128)
    bus = std::min(bus * (place.nodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0), ch.count * kTreeLl128[g][j]);
  Estimate e;
  e.gbps = bus / 2 * tree_correction(protocol, bytes);
  const double inter = kTreeNet[p] + machine.net_latency_us * (protocol == Protocol::simple ? 2 : 1);
  e.latency_us = kTreeBase[p] + 2 * ((place.per_node - 1) * (kTreeNvlink[p] + machine.nvlink_latency_us) +
                                     std::floor(std::log2(place.nodes)) * inter);
  return e;
}

// NVLink SHARP: the switch adds. One head (and channel) a member of the node; the highest candidate speed that its port
// carries for all heads.
Estimate nvls(const Machine& machine, const Placement& place, Channels ch, Algorithm algorithm) {
  const int heads = place.per_node;
  const auto g = static_cast<std::size_t>(generation(machine));
  double head_gbps = machine.nvlink_gbps / heads;  // more heads than candidates have speeds for
  for (const double speed : kNvlsSpeeds[g])
    if (heads * speed <= machine.nvlink_gbps) {
      head_gbps = speed;
      break;
    }
  double bus = head_gbps * kNvlsEfficiency[g] * (heads - 1) / heads * 2;
  Estimate e;
  e.latency_us = kNvlsNvlink + machine.nvlink_latency_us;
  const double net = ch.gbps * ch.count / heads;
  if (algorithm == Algorithm::nvls_tree) {
    const double most = kNvlsTreeMax[g][static_cast<std::size_t>(span(place))];
    bus = std::min({bus, net * (place.nodes == 2 ? 2 : 1), most});
    e.latency_us += 2 * std::floor(std::log2(place.nodes)) * (kNvlsTreeNet + machine.net_latency_us);
  } else if (place.nodes > 1) {  // the network adds up what the nodes' switches have
    bus = std::min(bus, net);
    e.latency_us += kNvlsNet + 2 * machine.net_latency_us;
  }
  e.gbps = bus * heads * place.ranks / (2.0 * (place.ranks - 1));
  return e;
}

// The network adds up: a rank's head sends its part of the node's sum and gets back that of all. One channel a head,
// which its part of the rank's port carries; NCCL's model leaves the NICs out, which here carry every byte once each
// way.
Estimate collnet(const Machine& machine, const Placement& place, bool direct) {
  const bool hopper = machine.generation >= Generation::hopper;
  const double inside = machine.nvlink_gbps * (direct && hopper ? 0.85 : 1) / 2;
  const double hop = (direct ? kDirectNvlink : kChainNvlink) + machine.nvlink_latency_us;
  const double others = place.per_node - 1;
  Estimate e;
  e.gbps = std::min(inside, machine.nic_gbps * place.per_node);
  if (place.per_node == 1) e.gbps = machine.nic_gbps;
  e.latency_us = direct ? 2 * (std::min(1.0, others) * hop + 0.4 * others) + kDirectNet : 2 * others * hop + kChainNet;
  e.latency_us += 2 * machine.net_latency_us;
  return e;
}

Estimate pat(const Machine& machine, const Placement& place, Channels ch) {
  Estimate e;
  e.gbps = 0.75 * ch.count * ch.gbps;
  e.latency_us =
      kPatBase + std::floor(std::log2(place.nodes)) * (kPatNet + 2 * machine.net_latency_us) / 3.5 + 2.8 * place.ranks;
  return e;
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  constexpr std::array<std::string_view, kAlgorithms> names = {
      "ring",   "tree",           "nvls",          "nvls_tree",        "pat",
      "direct", "collnet_direct", "collnet_chain", "halving_doubling", "hierarchical"};
  return names[static_cast<std::size_t>(algorithm)];
}
std::string_view name_of(Protocol protocol) {
  constexpr std::array<std::string_view, kProtocols> names = {"ll", "ll128", "simple"};
  return names[static_cast<std::size_t>(protocol)];
}

std::optional<Algorithm> algorithm_called(std::string_view name) {
  for (int a = 0; a < kAlgorithms; ++a)
    if (const auto algorithm = static_cast<Algorithm>(a); name_of(algorithm) == name) return algorithm;
  return std::nullopt;
}

std::string refusal(const Machine& machine, const Placement& place, CollectiveKind kind, Algorithm algorithm,
                    Protocol protocol) {
  const bool reduce = kind == CollectiveKind::all_reduce;
  const bool halves = kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter;
  const auto adds_up = [&]() -> std::string {
    if (!reduce) return "does all_reduce only";
    if (protocol != Protocol::simple) return "has the protocol simple only";
    if (algorithm == Algorithm::collnet_chain) return "";
    if (!machine.nvswitch) return "needs an NVSwitch in the node";
    if (algorithm == Algorithm::collnet_direct) return "";
    if (machine.generation < Generation::hopper) return "needs switches that add up (Hopper and later)";
    return place.per_node < 2 ? "needs two ranks on a node" : "";
  };
  const auto network = [&]() -> std::string {
    if (place.nodes == 1) return "goes over several nodes";
    return machine.sharp ? "" : "needs a network that adds up (the topology's fabric.sharp)";
  };
  std::string why;
  switch (algorithm) {
    case Algorithm::ring:
      return kind == CollectiveKind::all_to_all ? "does not do all_to_all" : "";
    case Algorithm::tree:
      return reduce ? "" : "does all_reduce only";
    case Algorithm::nvls:
      if (why = adds_up(); !why.empty() || place.nodes == 1) return why;
      return machine.sharp ? "" : "over several nodes " + network();
    case Algorithm::nvls_tree:
      if (why = adds_up(); !why.empty()) return why;
      return place.nodes == 1 ? "goes over several nodes" : "";
    case Algorithm::collnet_direct:
    case Algorithm::collnet_chain:
      if (why = adds_up(); why.empty()) why = network();
      if (!why.empty()) return why;
      return place.per_node > 8 ? "takes at most 8 ranks of a node" : "";
    case Algorithm::pat:
      if (!halves) return "does all_gather and reduce_scatter only";
      if (!machine.pat) return "is not in this library";
      if (protocol != Protocol::simple) return "has the protocol simple only";
      return place.per_node == 1 && place.nodes == place.ranks ? "" : "needs one rank a node";
    default:
      return "is none of NCCL's";
  }
}

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

Estimate estimate(const Machine& machine, const Placement& place, Channels channels, CollectiveKind kind,
                  Algorithm algorithm, Protocol protocol, double bytes) {
  REHEARSE_CHECK(place.ranks > 1, "a communicator of {} ranks", place.ranks);
  if (!refusal(machine, place, kind, algorithm, protocol).empty()) return {.time_us = -1};
  Estimate e;
  switch (algorithm) {
    case Algorithm::ring:
      e = ring(machine, place, channels, kind, protocol, bytes);
      break;
    case Algorithm::tree:
      e = tree(machine, place, channels, protocol, bytes);
      break;
    case Algorithm::nvls:
    case Algorithm::nvls_tree:
      e = nvls(machine, place, channels, algorithm);
      break;
    case Algorithm::collnet_direct:
    case Algorithm::collnet_chain:
      e = collnet(machine, place, algorithm == Algorithm::collnet_direct);
      break;
    case Algorithm::pat:
      e = pat(machine, place, channels);
      break;
    default:
      break;
  }
  e.algorithm = algorithm;
  e.protocol = protocol;
  e.time_us = e.latency_us + bytes / (1000 * e.gbps);
  return e;
}

Estimate best(const Machine& machine, const Placement& place, CollectiveKind kind, double bytes) {
  if (kind == CollectiveKind::all_to_all) return all_to_all(machine, place, bytes);
  const Channels channels = ring_channels(machine, place);
  Estimate chosen{.time_us = -1};
  for (const Algorithm a : {Algorithm::ring, Algorithm::tree, Algorithm::nvls, Algorithm::nvls_tree,
                            Algorithm::collnet_direct, Algorithm::collnet_chain, Algorithm::pat})
    for (const Protocol p : {Protocol::ll, Protocol::ll128, Protocol::simple}) {
      const Estimate e = estimate(machine, place, channels, kind, a, p, bytes);
      if (e.time_us >= 0 && (chosen.time_us < 0 || e.time_us < chosen.time_us)) chosen = e;
    }
  REHEARSE_CHECK(chosen.time_us >= 0, "no algorithm for collective {}", static_cast<int>(kind));
  return chosen;
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

int blocks(const Estimate& chosen, const Placement& place, double bytes, int limit) {
  if (chosen.algorithm == Algorithm::nvls || chosen.algorithm == Algorithm::nvls_tree ||
      chosen.algorithm == Algorithm::direct)
    return limit;
  constexpr PerProtocol kThreads = {512, 640, 512};
  constexpr PerProtocol kThreshold = {8, 8, 64};
  const auto p = static_cast<std::size_t>(chosen.protocol);
  const bool ring_ll = chosen.algorithm == Algorithm::ring && chosen.protocol == Protocol::ll;
  const double per_channel = kThreads[p] * kThreshold[p] * (ring_ll ? place.ranks : 1);
  return static_cast<int>(std::clamp(std::floor(bytes / per_channel), 1.0, static_cast<double>(std::max(1, limit))));
}

}  // namespace rehearse::collective::nccl
