// Hierarchical all-reduce: reduce-scatter in the node, a ring over the nodes of each rail, all-gather in the node. None
// of NCCL's.
#include <utility>

#include "sim/base/check.h"
#include "sim/collective/algorithms/algorithm.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

class Hierarchical final : public AlgorithmModel {
 public:
  std::string_view refusal(const nccl::Machine&, const nccl::Placement& place, CollectiveKind kind,
                           std::optional<Protocol>) const override {
    if (!timed_by_rounds(kind)) return kAllReduceOnly;
    return place.uniform ? "" : "needs as many ranks on each node";
  }

  bool timed_by_rounds(CollectiveKind kind) const override { return kind == CollectiveKind::all_reduce; }

  std::vector<Round> rounds(const Group& group, CollectiveKind, std::int64_t bytes) const override {
    REHEARSE_CHECK(group.place.uniform, "a hierarchical all-reduce over nodes with different numbers of members");
    const std::size_t nodes = group.nodes(), local = group.size_of(0);
    const auto g = static_cast<std::int64_t>(local), m = static_cast<std::int64_t>(nodes);
    Round inside{{}, g - 1}, across{{}, 2 * (m - 1)};
    for (std::size_t k = 0; k < nodes; ++k)
      for (std::size_t i = 0; i < local; ++i) {
        inside.messages.push_back({k * local + i, k * local + (i + 1) % local, part_of(bytes, g)});
        across.messages.push_back({k * local + i, (k + 1) % nodes * local + i, part_of(bytes, g * m)});
      }
    std::vector<Round> rounds{inside, std::move(across), inside};
    std::erase_if(rounds, [](const Round& r) { return r.repeat == 0; });
    return rounds;
  }
};

}  // namespace

const AlgorithmModel& algorithms::hierarchical() {
  static const Hierarchical model;
  return model;
}

}  // namespace rehearse::collective
