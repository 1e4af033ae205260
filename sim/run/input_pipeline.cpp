// See input_pipeline.h.
#include "sim/run/input_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/base/diagnostics.h"

namespace rehearse::run {
namespace {

constexpr double kLongest = 86400;  // seconds to load a micro-batch: a day

// The rank that reads for all that train on the same samples.
int reader_of(const plan::RankGrid& grid, int rank) {
  for (const Axis axis : {Axis::tensor, Axis::context, Axis::pipeline})
    rank = grid.peer(rank, axis, -grid.coordinate(rank, axis));
  return rank;
}

struct Times {
  double read = 0, decode = 0;  // of a micro-batch, with the storage to itself
  std::int64_t workers = 0;
  // What loading a micro-batch takes its worker, so that all workers together are as fast as they can be.
  double batch(std::int64_t readers) const {
    const double shared = static_cast<double>(readers) * read;
    if (workers == 0) return shared + decode;
    return std::max(read + decode, shared * static_cast<double>(workers));
  }
  // By what it is limited.
  std::string bound(std::int64_t readers) const {
    if (workers == 0) return "process";
    return batch(readers) > read + decode ? "storage" : "workers";
  }
};

Times times_of(const plan::Scenario& scenario) {
  const plan::Data& data = scenario.data;
  const auto batch = static_cast<double>(scenario.plan.micro_batch);
  Times times;
  times.workers = data.workers;
  times.decode = batch * data.sample_time.seconds();
  if (data.storage_bandwidth > Bandwidth())
    times.read =
        batch * static_cast<double>(data.sample_bytes.count()) / static_cast<double>(data.storage_bandwidth.per_s());
  return times;
}

}  // namespace

InputPipeline input_pipeline(const plan::Scenario& scenario, const cluster::Cluster& cluster) {
  InputPipeline pipeline;
  const plan::Data& data = scenario.data;
  if (!data.takes_time()) return pipeline;
  const plan::RankGrid grid = scenario.grid();
  const Times times = times_of(scenario);
  std::map<int, std::int64_t> on_node;
  for (int rank = 0; rank < grid.ranks(); ++rank)
    if (reader_of(grid, rank) == rank) ++on_node[cluster.node_of(rank)];
  std::int64_t most = 0;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const std::int64_t readers = data.storage_of == plan::StorageOf::cluster
                                     ? scenario.plan.data
                                     : on_node.at(cluster.node_of(reader_of(grid, rank)));
    most = std::max(most, readers);
    const double batch = times.batch(readers);
    if (batch > kLongest)
      throw InputError(Diagnostic{"", 0, 0, "data",
                                  fmt::format("a worker takes {:.3g} s to load a micro-batch of {} samples; expected "
                                              "at most a day",
                                              batch, scenario.plan.micro_batch),
                                  "look at the units of sample_time, sample_bytes and storage_bandwidth"});
    pipeline.loaders.push_back(
        {Time::from_seconds(batch), static_cast<int>(data.workers), static_cast<int>(data.workers * data.prefetch)});
  }
  result::Input& facts = pipeline.facts;
  facts.known = true;
  facts.workers = data.workers;
  facts.ahead = data.workers * data.prefetch;
  const double between = times.batch(most) / static_cast<double>(std::max<std::int64_t>(data.workers, 1));
  facts.micro_batch_ps = Time::from_seconds(between).ps();
  facts.step_ps =
      Time::from_seconds(between * static_cast<double>(scenario.training.micro_batches(scenario.plan))).ps();
  facts.bound = times.bound(most);
  return pipeline;
}

}  // namespace rehearse::run
