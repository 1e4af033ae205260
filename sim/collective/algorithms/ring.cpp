// Ring (Patarasuk and Yuan 2009): every rank passes on to the next; reduce and broadcast go along it as a line, to the
// root or from it. One ring a channel; over several nodes one for each member of the smallest node (wire.h).
//
// One deviation from NCCL's model: the 1.4 times the latency of long rings come in between 64 and 128 bytes a rank and
// channel (NCCL: all at 64), so that more ranks never take less time.
#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/check.h"
#include "sim/collective/algorithms/algorithm.h"
#include "sim/collective/nccl_tables.h"
#include "sim/collective/steps_builder.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

// Highest bandwidth of a channel by LL128, by generation and nodes.
constexpr std::array<nccl::BySpan, 3> kRingLl128 = {{{20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}}};

double steps_round(CollectiveKind kind, int ranks) {
  return kind == CollectiveKind::all_reduce ? 2.0 * (ranks - 1) : ranks - 1.0;
}

double ring_latency(const nccl::Machine& machine, const nccl::Placement& place, CollectiveKind kind,
                    Protocol protocol) {
  const auto p = static_cast<std::size_t>(protocol);
  const bool net = place.nodes > 1;
  const double nvlink = nccl::kRingNvlink[p] + machine.nvlink_latency_us;
  if (has_root(kind)) return nccl::kRingBase[p] + (net ? nccl::kRingNet[p] + machine.net_latency_us : nvlink);
  const double simple = protocol == Protocol::simple ? 1 : 0;
  const double overhead = net ? (machine.cpu == nccl::Cpu::amd ? 2.0 : 1.0) * (1 + 2 * simple) : 0;
  const double inter =
      (place.per_node == 1 ? nccl::kTreeNet[p] : nccl::kRingNet[p]) + machine.net_latency_us * (1 + simple);
  const double net_steps = net ? steps_round(kind, place.nodes) : 0;
  const double steps = steps_round(kind, place.ranks);
  return nccl::kRingBase[p] + (steps - net_steps) * std::max(nvlink, overhead) + net_steps * inter;
}

// `count` messages round a closed ring; hops[i] leads from agents[i] to the next.
void send_round(StepsBuilder& b, const Ids& agents, const std::vector<Hop>& hops, std::int64_t count,
                std::int64_t message) {
  const std::size_t n = agents.size();
  Ids edges;
  for (std::size_t i = 0; i < n; ++i) edges.push_back(b.edge(hops[i].from, hops[i].to, message, agents[(i + 1) % n]));
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t out = edges[i], in = edges[(i + n - 1) % n];
    b.stage(agents[i], {}, {out});
    b.stage(agents[i], {in}, {out}, count - 1);
    b.stage(agents[i], {in}, {});
  }
}

// `chunks` messages down a line of agents, the first of which has them.
void send_along(StepsBuilder& b, const Ids& agents, const std::vector<Hop>& hops, std::int64_t chunks,
                std::int64_t message) {
  Ids edges;
  for (std::size_t i = 0; i + 1 < agents.size(); ++i)
    edges.push_back(b.edge(hops[i].from, hops[i].to, message, agents[i + 1]));
  for (std::size_t i = 0; i < agents.size(); ++i)
    b.stage(agents[i], i > 0 ? Ids{edges[i - 1]} : Ids{}, i + 1 < agents.size() ? Ids{edges[i]} : Ids{}, chunks);
}

// Which hop of channel c's ring (below) leads on from a device.
std::size_t place_in_ring(const Group& group, std::size_t c, int device) {
  std::size_t place = 0;
  for (std::size_t k = 0; k < group.nodes(); ++k)
    for (std::size_t i = 0; i < group.size_of(k); ++i, ++place)
      if (group.member(k, c + i) == device) return place;
  REHEARSE_CHECK(false, "device {} is not in the group", device);
}

// The hops of channel c's ring as wire.h has them: through each node from its member c on, then over c's own NIC.
std::vector<Hop> ring_hops(const Group& group, std::size_t c) {
  const std::size_t nodes = group.nodes();
  std::vector<Hop> hops;
  for (std::size_t k = 0; k < nodes; ++k) {
    for (std::size_t i = 0; i + 1 < group.size_of(k); ++i)
      hops.push_back({group.member(k, c + i), group.member(k, c + i + 1)});
    hops.push_back(nodes == 1 ? Hop{group.member(k, c + group.size_of(k) - 1), group.member(k, c)}
                              : Hop{group.member(k, c), group.member((k + 1) % nodes, c)});
  }
  return hops;
}

class Ring final : public AlgorithmModel {
 public:
  std::string_view refusal(const nccl::Machine& machine, const nccl::Placement&, CollectiveKind kind,
                           std::optional<Protocol> protocol) const override {
    if (protocol == Protocol::ll128 && !machine.ll128) return kDevicesDiffer;
    return kind == CollectiveKind::all_to_all ? "does not do all_to_all" : "";
  }

  nccl::Estimate estimate(const nccl::Machine& machine, const nccl::Placement& place, nccl::Channels channels,
                          CollectiveKind kind, Protocol protocol, double bytes) const override {
    double bus = channels.count * channels.gbps;
    if (protocol == Protocol::ll) bus = std::min(nccl::ll_max(machine, place), bus / 2);
    if (protocol == Protocol::ll128)
      bus = std::min(0.92 * bus, channels.count * kRingLl128[nccl::generation_index(machine)][nccl::span_index(place)]);
    nccl::Estimate e;
    const double steps = has_root(kind) ? place.ranks : steps_round(kind, place.ranks);
    e.gbps = bus * place.ranks / steps;
    e.latency_us = ring_latency(machine, place, kind, protocol);
    const bool long_ring = protocol == Protocol::simple && kind == CollectiveKind::all_reduce && place.nodes > 1;
    const double each = bytes / (static_cast<double>(channels.count) * place.ranks);
    if (long_ring && each > 64) e.latency_us *= 1 + 0.4 * std::min(1.0, std::log2(each / 64));
    return nccl::with_time(e, bytes);
  }

  // Its passes go over every edge.
  Time detours(CollectiveKind kind, Time sum, Time) const override {
    return sum * (kind == CollectiveKind::all_reduce ? 2 : 1);
  }

  bool has_messages(CollectiveKind kind) const override { return kind != CollectiveKind::all_to_all; }

  void add_messages(StepsBuilder& b, const cluster::Cluster&, const Group& group, CollectiveKind kind,
                    std::int64_t bytes, std::int64_t chunk) const override {
    const std::size_t channels = group.channels(), n = group.members.size();
    const auto ranks = static_cast<std::int64_t>(n);
    for (std::size_t c = 0; c < channels; ++c) {
      std::vector<Hop> hops = ring_hops(group, c);
      const std::int64_t share = divided_up(bytes, static_cast<std::int64_t>(channels));
      const Ids agents = b.agents(n);
      if (has_root(kind)) {  // a line from the root, or to it: without the hop into it, or out of it
        const std::size_t first = place_in_ring(group, c, group.root) + (kind == CollectiveKind::reduce ? 1 : 0);
        std::rotate(hops.begin(), hops.begin() + static_cast<std::ptrdiff_t>(first), hops.end());
        const std::int64_t chunks = std::max<std::int64_t>(1, divided_up(share, chunk));
        send_along(b, agents, hops, chunks, divided_up(share, chunks));
        b.deepen(ranks - 1, static_cast<double>(ranks - 2) / static_cast<double>(chunks));
      } else {
        const std::int64_t count = (kind == CollectiveKind::all_reduce ? 2 : 1) * (ranks - 1);
        send_round(b, agents, hops, count, divided_up(share, ranks));
        b.deepen(count);
      }
    }
  }

  int blocks(const nccl::Placement& place, Protocol protocol, double bytes, const BlockLimits& limits) const override {
    return blocks_for(protocol, bytes, protocol == Protocol::ll ? place.ranks : 1,
                      place.nodes == 1 ? limits.node : limits.nodes);
  }
};

}  // namespace

const AlgorithmModel& algorithms::ring() {
  static const Ring model;
  return model;
}

}  // namespace rehearse::collective
