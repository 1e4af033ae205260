// Halving and doubling (Rabenseifner 2004): a reduce-scatter halves what each pair exchanges from round to round, an
// all-gather doubles it. Ranks beyond a power of two hand theirs to a partner first. None of NCCL's.
#include <utility>

#include "sim/collective/algorithms/algorithm.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

std::size_t power_within(std::size_t n) {
  std::size_t power = 1;
  while (power * 2 <= n) power *= 2;
  return power;
}

class HalvingDoubling final : public AlgorithmModel {
 public:
  std::string_view refusal(const nccl::Machine&, const nccl::Placement& place, CollectiveKind kind,
                           std::optional<Protocol>) const override {
    if (!timed_by_rounds(kind)) return "does all_reduce, all_gather and reduce_scatter only";
    const auto ranks = static_cast<std::size_t>(place.ranks);
    return ranks == power_within(ranks) ? "" : "needs a power of two of ranks";
  }

  bool timed_by_rounds(CollectiveKind kind) const override {
    return is_half(kind) || kind == CollectiveKind::all_reduce;
  }

  std::vector<Round> rounds(const Group& group, CollectiveKind kind, std::int64_t bytes) const override {
    const std::size_t n = group.members.size(), power = power_within(n);
    std::vector<Round> rounds;
    const auto extras = [&](bool in) {
      Round round;
      for (std::size_t i = power; i < n; ++i)
        round.messages.push_back(in ? Round::Message{i, i - power, bytes} : Round::Message{i - power, i, bytes});
      if (power < n) rounds.push_back(std::move(round));
    };
    const auto exchange = [&](std::size_t distance) {
      Round round;
      for (std::size_t i = 0; i < power; ++i)
        round.messages.push_back({i, i ^ distance, part_of(bytes, static_cast<std::int64_t>(power / distance))});
      rounds.push_back(std::move(round));
    };
    if (kind != CollectiveKind::all_gather) {
      extras(true);
      for (std::size_t d = power / 2; d > 0; d /= 2) exchange(d);
    }
    if (kind != CollectiveKind::reduce_scatter) {
      for (std::size_t d = 1; d < power; d *= 2) exchange(d);
      extras(false);
    }
    return rounds;
  }
};

}  // namespace

const AlgorithmModel& algorithms::halving_doubling() {
  static const HalvingDoubling model;
  return model;
}

}  // namespace rehearse::collective
