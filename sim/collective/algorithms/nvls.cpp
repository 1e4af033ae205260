// NVLink SHARP: the node's switch adds up, on Hopper and later. Within one node, or over several where the network adds
// up too (nvls), or with a tree between the nodes (nvls_tree). Leaves out messages: there are none between ranks.
#include <algorithm>
#include <cmath>

#include "sim/collective/algorithms/algorithm.h"
#include "sim/collective/nccl_tables.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

constexpr double kNvlsNvlink = 25.0, kNvlsNet = 18.0, kNvlsTreeNet = 20.9;
constexpr std::array<double, 3> kNvlsEfficiency = {0, 0.85, 0.74};
constexpr std::array<nccl::BySpan, 3> kNvlsTreeMax = {{{}, {0, 57.7, 45.5}, {0, 96.0, 43.8}}};
// Candidates of NCCL's graph search inside a node.
constexpr std::array<std::array<double, 11>, 3> kNvlsSpeeds = {
    {{}, {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3}, {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18}}};

class InSwitch : public AlgorithmModel {
 public:
  std::string_view refusal(const nccl::Machine& machine, const nccl::Placement& place, CollectiveKind kind,
                           std::optional<Protocol> protocol) const final {
    if (!protocol) return kNeedsNccl;
    if (kind != CollectiveKind::all_reduce) return kAllReduceOnly;
    if (*protocol != Protocol::simple) return kSimpleOnly;
    if (!machine.nvswitch) return kNeedsNvswitch;
    if (machine.generation < nccl::Generation::hopper) return "needs switches that add up (Hopper and later)";
    // ncclNvlsInit (src/transport/nvls.cc, v2.28.9-1): none for communicators of two GPUs a node, or a domain of
    // NVLink, or one; older versions have `< 2` there, and so have it for two.
    if (place.per_node <= 2) return "needs three ranks on a node";
    return network_refusal(machine, place);
  }

  int blocks(const nccl::Placement&, Protocol, double, const BlockLimits& limits) const final { return limits.nvls; }

 protected:
  virtual std::string_view network_refusal(const nccl::Machine& machine, const nccl::Placement& place) const = 0;

  // One head (and channel) a member of the node, at the highest candidate speed that its port carries for all heads.
  static double node_gbps(const nccl::Machine& machine, int heads) {
    const std::size_t g = nccl::generation_index(machine);
    double head_gbps = machine.nvlink_gbps / heads;  // more heads than candidates have speeds for
    for (const double speed : kNvlsSpeeds[g])
      if (heads * speed <= machine.nvlink_gbps) {
        head_gbps = speed;
        break;
      }
    return head_gbps * kNvlsEfficiency[g] * (heads - 1) / heads * 2;
  }

  static nccl::Estimate estimate_of(const nccl::Placement& place, double bus, double latency_us, double bytes) {
    return nccl::with_time(
        {.latency_us = latency_us, .gbps = bus * place.per_node * place.ranks / (2.0 * (place.ranks - 1))}, bytes);
  }
};

class Nvls final : public InSwitch {
 public:
  nccl::Estimate estimate(const nccl::Machine& machine, const nccl::Placement& place, nccl::Channels channels,
                          CollectiveKind, Protocol, double bytes) const override {
    double bus = node_gbps(machine, place.per_node);
    double latency_us = kNvlsNvlink + machine.nvlink_latency_us;
    if (place.nodes > 1) {  // the network adds up what the nodes' switches have
      bus = std::min(bus, channels.gbps * channels.count / place.per_node);
      latency_us += kNvlsNet + 2 * machine.net_latency_us;
    }
    return estimate_of(place, bus, latency_us, bytes);
  }

  // Each of g heads reads B/g once and stores it once through the switch: (1 + 1/g) B in and out of a port. Rings of
  // several nodes load a port with (g-1)/g of an intra edge, hence the other form; the network adds up what leaves a
  // node: B out of it and in.
  EdgeBytes edge_bytes(const Group& group, CollectiveKind, std::int64_t bytes) const override {
    const int g = group.place.per_node;
    if (group.place.nodes > 1) return {scaled_up(bytes, g + 1, g - 1), bytes};
    return {scaled_up(bytes, g + 1, g), 0};
  }

  // The switch reads and writes each buffer once.
  std::int64_t memory_bytes(CollectiveKind, std::int64_t bytes, std::int64_t) const override { return 2 * bytes; }

 protected:
  std::string_view network_refusal(const nccl::Machine& machine, const nccl::Placement& place) const override {
    if (place.nodes == 1 || machine.sharp) return "";
    return "over several nodes needs a network that adds up (the topology's fabric.sharp)";
  }
};

class NvlsTree final : public InSwitch {
 public:
  nccl::Estimate estimate(const nccl::Machine& machine, const nccl::Placement& place, nccl::Channels channels,
                          CollectiveKind, Protocol, double bytes) const override {
    const double net = channels.gbps * channels.count / place.per_node;
    const double most = kNvlsTreeMax[nccl::generation_index(machine)][nccl::span_index(place)];
    const double bus = std::min({node_gbps(machine, place.per_node), net * (place.nodes == 2 ? 2 : 1), most});
    double latency_us = kNvlsNvlink + machine.nvlink_latency_us;
    latency_us += 2 * levels(place) * (kNvlsTreeNet + machine.net_latency_us);
    return estimate_of(place, bus, latency_us, bytes);
  }

  // What all heads and channels hand on at once goes up the levels of the tree and down again, the next behind it, so
  // that the last comes 2 levels later than bandwidth alone says.
  double filling(const nccl::Machine& machine, const nccl::Placement& place, double bytes) const override {
    if (machine.generation != nccl::Generation::hopper || bytes <= 0) return 1;
    return 1 + 2 * levels(place) * std::min(1.0, handed_on(machine, place, bytes) / bytes);
  }

  EdgeBytes edge_bytes(const Group& group, CollectiveKind, std::int64_t bytes) const override {
    const int g = group.place.per_node;
    return {scaled_up(bytes, g + 1, g - 1), double_tree_bytes(group.place.nodes, bytes)};
  }

 protected:
  std::string_view network_refusal(const nccl::Machine&, const nccl::Placement& place) const override {
    return place.nodes == 1 ? kSeveralNodes : "";
  }

 private:
  static double levels(const nccl::Placement& place) { return std::floor(std::log2(place.nodes)); }

  // A chunk of each head and channel: NVLS_TREE in src/enqueue.cc, v2.28.9-1; channels: NVLS_NCHANNELS_SM90 in
  // src/transport/nvls.cc. On Blackwell both are tuned by tables (ncclNvlsTreeSm100Tuning), which are not taken.
  static double handed_on(const nccl::Machine& machine, const nccl::Placement& place, double bytes) {
    constexpr double kChannels = 16, kChunk = 131072, kChunkOfMany = 65536;
    constexpr std::array<std::array<double, 2>, 4> kLess = {{{32, 262144}, {16, 131072}, {4, 65536}, {1, 32768}}};
    double chunk = machine.nvls_tree_chunk > 0 ? machine.nvls_tree_chunk : place.nodes >= 4 ? kChunkOfMany : kChunk;
    const double at_once = kChannels * place.per_node;
    for (const auto& [chunks, less] : kLess)
      if (bytes < chunks * at_once * chunk) chunk = std::min(chunk, less);
    return at_once * chunk;
  }
};

}  // namespace

const AlgorithmModel& algorithms::nvls() {
  static const Nvls model;
  return model;
}

const AlgorithmModel& algorithms::nvls_tree() {
  static const NvlsTree model;
  return model;
}

}  // namespace rehearse::collective
