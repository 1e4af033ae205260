// CollNet (InfiniBand SHARP): the network adds up. A rank's head sends its part of the node's sum and gets back that of
// all. One channel a head, which its part of the rank's port carries; NCCL's model leaves the NICs out, which here
// carry every byte once each way. collnet_direct gathers within the node through its NVSwitch, collnet_chain along a
// chain. Leaves out messages: there are none between ranks of different nodes.
#include <algorithm>

#include "sim/collective/algorithms/algorithm.h"
#include "sim/collective/nccl_tables.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

constexpr double kDirectNvlink = 3.7, kDirectNet = 31.0;
constexpr double kChainNvlink = 2.8, kChainNet = 30.0;
constexpr int kMostOfANode = 8;

class CollNet final : public AlgorithmModel {
 public:
  explicit CollNet(bool direct) : direct_(direct) {}

  std::string_view refusal(const nccl::Machine& machine, const nccl::Placement& place, CollectiveKind kind,
                           std::optional<Protocol> protocol) const override {
    if (!protocol) return kNeedsNccl;
    if (kind != CollectiveKind::all_reduce) return kAllReduceOnly;
    if (*protocol != Protocol::simple) return kSimpleOnly;
    if (direct_ && !machine.nvswitch) return kNeedsNvswitch;
    if (place.nodes == 1) return kSeveralNodes;
    if (!machine.sharp) return kNeedsSharp;
    return place.per_node > kMostOfANode ? "takes at most 8 ranks of a node" : "";
  }

  nccl::Estimate estimate(const nccl::Machine& machine, const nccl::Placement& place, nccl::Channels, CollectiveKind,
                          Protocol, double bytes) const override {
    const bool hopper = machine.generation >= nccl::Generation::hopper;
    const double inside = machine.nvlink_gbps * (direct_ && hopper ? 0.85 : 1) / 2;
    const double hop = (direct_ ? kDirectNvlink : kChainNvlink) + machine.nvlink_latency_us;
    const double others = place.per_node - 1;
    nccl::Estimate e;
    e.gbps = std::min(inside, machine.nic_gbps * place.per_node);
    if (place.per_node == 1) e.gbps = machine.nic_gbps;
    e.latency_us =
        direct_ ? 2 * (std::min(1.0, others) * hop + 0.4 * others) + kDirectNet : 2 * others * hop + kChainNet;
    e.latency_us += 2 * machine.net_latency_us;
    return nccl::with_time(e, bytes);
  }

  // Every member's share but its own to the node's heads and back; over nodes B out and in.
  EdgeBytes edge_bytes(const Group&, CollectiveKind, std::int64_t bytes) const override { return {2 * bytes, bytes}; }

 private:
  bool direct_;
};

}  // namespace

const AlgorithmModel& algorithms::collnet_direct() {
  static const CollNet model(true);
  return model;
}

const AlgorithmModel& algorithms::collnet_chain() {
  static const CollNet model(false);
  return model;
}

}  // namespace rehearse::collective
