// A scenario file, read and resolved: every key has a default (docs: README), every problem is reported at once with
// its place, and the combination is feasible (divisibility rules name the numbers) once read_scenario returns.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/model/model.h"
#include "sim/plan/framework.h"
#include "sim/plan/plan.h"
#include "sim/plan/rank_grid.h"

namespace rehearse::plan {

struct ClusterRequest {
  std::string topology = "local";  // a name in topologies/ or a path
  std::int64_t gpus = 1;           // ranks
  std::vector<std::pair<std::string, std::string>>
      overrides;                      // topology key path -> value, e.g. nic.bandwidth: 100Gbps
  std::int64_t threads_per_rank = 0;  // 0: auto (cores / ranks); CPU only
};

struct Scenario {
  std::string file, name;
  model::Model model;
  ClusterRequest cluster;
  FrameworkProfile framework;
  Plan plan;
  Training training;
  std::vector<std::string> calibrations;  // costs.calibration: names in calibrate/devices or paths

  RankGrid grid() const;
};

// `assignments`: --set key.path=value in order. `data_root`: the folder that holds scenarios/, topologies/ and
// calibrate/. Throws InputError with every problem.
Scenario read_scenario(const std::string& path, const std::vector<std::string>& assignments,
                       const std::string& data_root);

}  // namespace rehearse::plan
