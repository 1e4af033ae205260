// The file of `rehearse queue`: a cluster, a policy, and jobs of which each entry may stand for many. docs/queue.md has
// its keys.
//
// Entries are turned into jobs (queue.h) by these rules:
//   count, every  `count` jobs, the k-th `k * every` after `arrive`
//   halving       successive halving (Jamieson and Talwalkar 2016): when all jobs of a rung have ended, one of `keep`
//                 (rounded down, at least one) goes on with `keep` times the work; until one is left
//   population    population based training (Jaderberg et al. 2017), by rounds: when all have done a round's work,
//                 `copies` of them (rounded to the nearest) take another's weights, bytes / bandwidth, before the next
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/run/queue.h"

namespace rehearse::run {

struct QueueEntry {
  std::string name;
  std::int64_t count = 1, gpus = 1;
  Time arrive, every;
  // How long one works: given, or `steps` steps of a scenario.
  Time time;
  std::string scenario;  // "" where a time is given; a path from the working folder, or a shipped scenario's name
  std::vector<std::string> assignments;
  std::int64_t steps = 0;
  std::int64_t keep = 0;    // halving; 0: none
  std::int64_t rounds = 0;  // population; 0: none
  double copies = 0;
  Bytes copied;  // 0: a checkpoint of the scenario
  Bandwidth copy_bandwidth;
  int line = 0, column = 0;
};

struct QueueFile {
  std::string file, name, topology;
  std::int64_t hosts = 1;
  QueuePolicy policy = QueuePolicy::backfill;
  Time slice, switched;
  std::int64_t level = 1;
  std::vector<QueueEntry> entries;
  int topology_line = 0, topology_column = 0;
};

// Throws InputError with every problem.
QueueFile read_queue_file(const std::string& file);

// The request of a cluster whose hosts have so many devices. `work_s` and `copy_s`: of one job of each entry.
// `entry_of`: of each job the entry. Throws InputError for entries whose jobs fit on no empty cluster.
QueueRequest queue_request(const QueueFile& file, std::int64_t devices, const std::vector<double>& work_s,
                           const std::vector<double>& copy_s, std::vector<std::size_t>& entry_of);

}  // namespace rehearse::run
