// A scenario file, read and resolved: every key has a default (docs: README), every problem is reported at once with
// its place, and the combination is feasible (divisibility rules name the numbers) once read_scenario returns.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/diagnostics.h"
#include "sim/base/size_or_share.h"
#include "sim/model/model.h"
#include "sim/plan/data.h"
#include "sim/plan/failures.h"
#include "sim/plan/framework.h"
#include "sim/plan/noise.h"
#include "sim/plan/plan.h"
#include "sim/plan/rank_grid.h"
#include "sim/plan/reinforcement.h"

namespace rehearse {
class ParsedFiles;  // sim/base/document.h
}

namespace rehearse::plan {

// Which algorithms and protocols a collective may take, as NCCL_ALGO and NCCL_PROTO say; names as in the file, "auto":
// any.
struct PinnedCollective {
  std::string kind, algorithm = "auto", protocol = "auto";
};

// Nodes of one kind of a mixed cluster: those of another topology.
struct NodesOfKind {
  std::string topology;  // a name in topologies/ or a path; "": the entry writes its nodes out
  std::int64_t count = 0;
};

struct ClusterRequest {
  std::string topology = "local";  // a name in topologies/ or a path
  std::int64_t gpus = 1;           // ranks
  std::vector<NodesOfKind> nodes;  // cluster.nodes; as a whole in overrides
  std::vector<std::pair<std::string, std::string>>
      overrides;                      // topology key path -> value, e.g. nic.bandwidth: 100Gbps
  std::int64_t threads_per_rank = 0;  // 0: auto (cores / ranks); CPU only
  bool gpudirect = true;              // false is among the overrides, too
  SizeOrShare headroom;               // of each device's memory: what must stay free for a plan to fit
  std::vector<PinnedCollective> collectives;
};

// Where the file (or --set, line 0) gives a value.
struct Place {
  std::string file;
  int line = 0, column = 0;
};

struct JobBeside;

// What a scenario is read for: `framework: auto` is what people run on its cluster, or what is performed here.
enum class Purpose : unsigned char { simulate, perform };

struct Scenario {
  std::string file, name;
  Purpose purpose = Purpose::simulate;
  model::Model model;
  ClusterRequest cluster;
  FrameworkProfile framework;
  std::string framework_why;  // of framework: auto, why this one (auto_framework.h); "": the file names it
  Plan plan;
  Training training;
  Data data;
  Noise noise;
  Failures failures;
  CheckpointRequest checkpoint;
  Reinforcement reinforcement;
  std::vector<std::string> calibrations;  // costs.calibration: names in calibrate/devices or paths
  std::map<std::string, Place>
      places;  // of the keys below cluster, data, costs, noise, failures, checkpoint and reinforcement that are given
  std::vector<JobBeside> jobs;  // cluster.jobs; where they run is in cluster.overrides

  RankGrid grid() const;
  // Whether what is sharded of trained parameters is the fp32 values themselves, without 16-bit ones beside them
  // (FrameworkProfile::fp32_shards).
  bool shards_in_fp32() const {
    return framework.fp32_shards && training.precision != Precision::fp32 && !plan.served() && plan.zero == 3 &&
           plan.data * plan.context > plan.replicas && !plan.offload_optimizer && !plan.offload_parameters;
  }
};

// Another whole job on the scenario's cluster. Its own cluster section says no more than how many GPUs it has.
struct JobBeside {
  std::string name;  // of no other job
  Scenario scenario;
  Time start;
};

// `assignments`: --set key.path=value in order. `data_root`: the folder that holds scenarios/, topologies/ and
// calibrate/. Throws InputError with every problem. `files`: for many scenarios of one file; nullptr: of one.
Scenario read_scenario(const std::string& path, const std::vector<std::string>& assignments,
                       const std::string& data_root, Purpose purpose = Purpose::simulate, ParsedFiles* files = nullptr);

// The file with what is assigned, as a file of its own that says the same wherever it lies: files that it names beside
// itself have their whole path. One line of comment leads it; the file's own comments are not kept. Throws InputError
// if the file cannot be read.
std::string scenario_text(const std::string& path, const std::vector<std::string>& assignments,
                          const std::string& comment);

// What came to light only when the cluster and the costs were loaded: problems that name a key of the scenario
// (path "cluster.topology") and no file get the place of that key.
InputError located(const InputError& error, const Scenario& scenario);

}  // namespace rehearse::plan
