// Direct: each member sends to each other one at once; an all-reduce does so for the sums, and again for the results.
// NCCL has it for all-to-all alone, with bytes for another node first over NVLink to the member on the receiver's rail
// (PXN), which is what wire.h and the messages here do; the others go in rounds.
#include <algorithm>
#include <utility>

#include "sim/collective/algorithms/algorithm.h"
#include "sim/collective/steps_builder.h"

namespace rehearse::collective {
namespace {

using cluster::Cluster;
using program::CollectiveKind;

// A message over rails goes in parts of NCCL's NVLink p2p chunk (512 KiB), so that a relay sends what has come while
// the rest is coming; in at most so many of them, which keeps the number of messages in bounds.
constexpr std::int64_t kMostParts = 16;

// Of the time that the busiest NIC needs, what goes by before it has anything to send: the first part of all local
// messages to the relay. Where ports are slower than NICs nothing: they have work from the beginning.
double rails_fill(const cluster::NodeView& view, std::int64_t local, std::int64_t nodes, std::int64_t parts) {
  if (view.port.per_s() == 0 || view.nic.per_s() == 0) return 0;
  const double port = static_cast<double>(local - 1) / static_cast<double>(view.port.per_s());
  const double nic = static_cast<double>(local * (nodes - 1)) / static_cast<double>(view.nic.per_s());
  return static_cast<double>(nodes) * port > nic ? 0 : port / static_cast<double>(parts) / nic;
}

// Rails: messages for member i of another node go to the local member i first, one a node after the other, and from
// there to all of that node's together (NCCL's PXN), part by part.
void over_rails(StepsBuilder& b, const Cluster& cluster, const Group& group, std::int64_t each, std::int64_t chunk) {
  const std::size_t nodes = group.nodes(), local = group.size_of(0);
  const auto g = static_cast<std::int64_t>(local), m = static_cast<std::int64_t>(nodes);
  const std::int64_t parts = std::clamp<std::int64_t>(divided_up(each, chunk), 1, kMostParts);
  const std::int64_t message = divided_up(each, parts);
  const std::size_t n = group.members.size();
  const Ids senders = b.agents(n), relays = b.agents(n), receivers = b.agents(n);
  std::vector<Ids> to_relay(n), in(n), out(n);
  for (std::size_t k = 0; k < nodes; ++k)
    for (std::size_t i = 0; i < local; ++i) {
      const std::size_t at = group.begins[k] + i;
      for (std::size_t d = 1; d < local; ++d) {
        const std::size_t relay = group.begins[k] + (i + d) % local;
        const std::int32_t e = b.edge(group.members[at], group.members[relay], message, relays[relay]);
        out[at].push_back(e);
        to_relay[relay].push_back(e);
      }
    }
  for (std::size_t k = 0; k < nodes; ++k)
    for (std::size_t i = 0; i < local; ++i) {
      const std::size_t at = group.begins[k] + i;
      b.stage(senders[at], {}, out[at], m * parts);
      for (std::size_t d = 1; d < nodes; ++d) {
        const std::size_t to = group.begins[(k + d) % nodes] + i;
        const std::int32_t e = b.edge(group.members[at], group.members[to], g * message, receivers[to]);
        b.stage(relays[at], to_relay[at], {e}, parts);
        in[to].push_back(e);
      }
      b.stage(relays[at], to_relay[at], {}, parts);
    }
  for (std::size_t i = 0; i < n; ++i) b.stage(receivers[i], in[i], {}, parts);
  b.deepen(2, rails_fill(cluster.node_view(cluster.node_of(group.members.front())), g, m, parts));
  b.concurrent();
}

// Whether the nodes' members are the same ones, so that each rail has one of every node.
bool on_rails(const Cluster& cluster, const Group& group) {
  if (group.place.nodes == 1 || group.place.per_node == 1 || !group.place.uniform) return false;
  for (std::size_t k = 1; k < group.nodes(); ++k)
    for (std::size_t i = 0; i < group.size_of(0); ++i)
      if (cluster.local_index(group.member(k, i)) != cluster.local_index(group.member(0, i))) return false;
  return true;
}

class Direct final : public AlgorithmModel {
 public:
  std::string_view refusal(const nccl::Machine&, const nccl::Placement&, CollectiveKind kind,
                           std::optional<Protocol> protocol) const override {
    if (kind == CollectiveKind::broadcast) return "does not do broadcast";
    if (kind == CollectiveKind::reduce) return "does not do reduce";
    const bool nccl = kind == CollectiveKind::all_to_all;
    return nccl && protocol == Protocol::ll128 ? "has the protocols ll and simple only" : "";
  }

  bool timed_by_rounds(CollectiveKind kind) const override {
    return !has_root(kind) && kind != CollectiveKind::all_to_all;
  }

  nccl::Estimate estimate(const nccl::Machine& machine, const nccl::Placement& place, nccl::Channels, CollectiveKind,
                          Protocol protocol, double bytes) const override {
    return nccl::all_to_all(machine, place, bytes, protocol);
  }

  std::vector<Round> rounds(const Group& group, CollectiveKind kind, std::int64_t bytes) const override {
    const std::size_t n = group.members.size();
    Round round;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t d = 1; d < n; ++d)
        round.messages.push_back({i, (i + d) % n, part_of(bytes, static_cast<std::int64_t>(n))});
    round.repeat = kind == CollectiveKind::all_reduce ? 2 : 1;
    return {round};
  }

  std::vector<Activity> activities(const Cluster& cluster, const Group& group, CollectiveKind,
                                   std::int64_t bytes) const override {
    return {exchange_activity(cluster, group, bytes)};
  }

  bool has_messages(CollectiveKind kind) const override { return !has_root(kind); }

  void add_messages(StepsBuilder& b, const Cluster& cluster, const Group& group, CollectiveKind kind,
                    std::int64_t bytes, std::int64_t chunk) const override {
    if (kind == CollectiveKind::all_to_all && on_rails(cluster, group))
      over_rails(b, cluster, group, divided_up(bytes, group.place.ranks), chunk);
    else
      b.in_order(group, rounds(group, kind, bytes));
  }

  int blocks(const nccl::Placement& place, Protocol, double, const BlockLimits& limits) const override {
    return place.nodes == 1 ? limits.node : limits.nodes;
  }
};

}  // namespace

const AlgorithmModel& algorithms::direct() {
  static const Direct model;
  return model;
}

}  // namespace rehearse::collective
