// NCCL's PAT for all-gather and reduce-scatter of one rank a node. Its time is NCCL's; its messages are Bruck's
// exchange (Bruck et al. 1997): round k doubles what each has, and a reduce-scatter is the reverse.
#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/collective/algorithms/algorithm.h"
#include "sim/collective/nccl_tables.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

constexpr double kPatBase = 8.0, kPatNet = 14.0;

class Pat final : public AlgorithmModel {
 public:
  std::string_view refusal(const nccl::Machine& machine, const nccl::Placement& place, CollectiveKind kind,
                           std::optional<Protocol> protocol) const override {
    if (!protocol) return kNeedsNccl;
    if (!is_half(kind)) return "does all_gather and reduce_scatter only";
    if (!machine.pat) return "is not in this library";
    if (*protocol != Protocol::simple) return kSimpleOnly;
    return place.per_node == 1 && place.nodes == place.ranks ? "" : "needs one rank a node";
  }

  nccl::Estimate estimate(const nccl::Machine& machine, const nccl::Placement& place, nccl::Channels channels,
                          CollectiveKind, Protocol, double bytes) const override {
    nccl::Estimate e;
    e.gbps = 0.75 * channels.count * channels.gbps;
    e.latency_us = kPatBase + std::floor(std::log2(place.nodes)) * (kPatNet + 2 * machine.net_latency_us) / 3.5 +
                   2.8 * place.ranks;
    return nccl::with_time(e, bytes);
  }

  bool has_messages(CollectiveKind kind) const override { return is_half(kind); }

  std::vector<Round> rounds(const Group& group, CollectiveKind kind, std::int64_t bytes) const override {
    const std::size_t n = group.members.size();
    const bool reduces = kind == CollectiveKind::reduce_scatter;
    std::vector<Round> rounds;
    for (std::size_t d = 1; d < n; d *= 2) {
      Round round;
      const auto blocks = static_cast<std::int64_t>(std::min(d, n - d));
      for (std::size_t i = 0; i < n; ++i)
        round.messages.push_back(
            {i, (i + (reduces ? n - d : d)) % n, blocks * part_of(bytes, static_cast<std::int64_t>(n))});
      rounds.push_back(std::move(round));
    }
    if (reduces) std::reverse(rounds.begin(), rounds.end());
    return rounds;
  }
};

}  // namespace

const AlgorithmModel& algorithms::pat() {
  static const Pat model;
  return model;
}

}  // namespace rehearse::collective
