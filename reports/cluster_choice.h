// Several clusters for one run of training: the best plan of each, days and dollars, which is fewest GPUs and which is
// cheapest; as text for a terminal and as JSON (rehearse.plan_clusters/1).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/search.h"

namespace rehearse::reports {

// A cluster with some number of GPUs. `problem` says why there is no plan.
struct ClusterOption {
  std::string cluster;
  std::int64_t gpus = 0;
  SearchReport search;  // of price and tokens too
  std::string problem;
  std::vector<std::int64_t> tried;  // numbers of GPUs before this one that were too slow or too small

  bool can() const { return problem.empty() && !search.best.empty(); }
};

struct ClusterChoice {
  std::vector<ClusterOption> options;
  double tokens = 0, days = 0;  // 0: not given
};

// Of those that train the tokens in time (of all, without a number of days): fewest GPUs, then fewest days; least
// dollars of those whose price is known.
std::optional<std::size_t> fewest_gpus(const ClusterChoice& c);
std::optional<std::size_t> cheapest(const ClusterChoice& c);

std::string cluster_text(const ClusterChoice& c, std::size_t width = kWidth);
std::string cluster_json(const ClusterChoice& c);

}  // namespace rehearse::reports
