// Blame and the mean over ranks; see breakdown.h.
#include "sim/engine/breakdown.h"

#include <numeric>

#include "sim/base/check.h"

namespace rehearse::engine {

using result::Share;

Blame blame_for_group(program::GroupKind kind, bool several_roles) {
  switch (kind) {
    case program::GroupKind::tensor:
      return {Share::exposed_tensor, Share::exposed_tensor, Share::exposed_tensor};
    case program::GroupKind::context:
      return {Share::exposed_context, Share::exposed_context, Share::exposed_context};
    case program::GroupKind::expert:
      return {Share::exposed_expert, Share::exposed_expert, Share::exposed_expert};
    case program::GroupKind::data:
      return {Share::exposed_data, Share::exposed_data, Share::exposed_data};
    case program::GroupKind::pipeline:
      return {Share::exposed_pipeline, Share::exposed_pipeline, Share::exposed_pipeline};
    case program::GroupKind::embedding:
      return {Share::exposed_pipeline, several_roles ? Share::bubble : Share::exposed_data, Share::exposed_pipeline};
    case program::GroupKind::world:
      return {Share::other, several_roles ? Share::bubble : Share::other, Share::other};
  }
  return {};
}

Blame blame_for_messages(Axis axis) {
  switch (axis) {
    case Axis::pipeline:
      return {Share::exposed_pipeline, Share::bubble, Share::exposed_pipeline};
    case Axis::tensor:
      return blame_for_group(program::GroupKind::tensor, false);
    case Axis::context:
      return blame_for_group(program::GroupKind::context, false);
    case Axis::expert:
      return blame_for_group(program::GroupKind::expert, false);
    case Axis::data:
      return blame_for_group(program::GroupKind::data, false);
  }
  return {};
}

Blame blame_for_kernel(program::StreamKind stream) {
  switch (stream) {
    case program::StreamKind::tensor:
      return blame_for_group(program::GroupKind::tensor, false);
    case program::StreamKind::data:
      return blame_for_group(program::GroupKind::data, false);
    case program::StreamKind::pipeline:
      return blame_for_group(program::GroupKind::pipeline, false);
    case program::StreamKind::host:
      return kHostBlame;
    case program::StreamKind::compute:
    case program::StreamKind::copy:
      return {};
  }
  return {};
}

std::array<std::int64_t, result::kShares> Breakdown::mean(std::size_t ranks, std::int64_t window) const {
  std::array<Int128, result::kShares> sums{};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto& own = shares_[rank];
    const std::int64_t total = std::accumulate(own.begin(), own.end(), std::int64_t{0});
    REHEARSE_CHECK(total == window, "rank {}: the breakdown sums to {} ps of {}", rank, total, window);
    for (std::size_t share = 0; share < own.size(); ++share) sums[share] += own[share];
  }
  std::array<std::int64_t, result::kShares> mean{};
  std::int64_t left = window;
  for (std::size_t share = 0; share < mean.size(); ++share) {
    mean[share] = static_cast<std::int64_t>(sums[share] / static_cast<std::int64_t>(ranks));
    left -= mean[share];
  }
  *std::max_element(mean.begin(), mean.end()) += left;
  return mean;
}

}  // namespace rehearse::engine
