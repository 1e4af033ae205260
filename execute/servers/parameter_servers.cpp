// See parameter_servers.h.
#include "execute/servers/parameter_servers.h"

#include "execute/servers/local_servers.h"
#include "execute/servers/remote_servers.h"
#include "sim/base/check.h"
#include "sim/base/half.h"

namespace rehearse::execute {

using account::ServerParameter;

ParameterServers::ParameterServers(Run& run)
    : run_(run),
      timeline_(run.timeline(0)),
      parameters_(account::server_parameters(*timeline_.role, static_cast<int>(run.scenario.plan.servers))),
      elements_(account::server_elements(parameters_, static_cast<int>(run.scenario.plan.servers))),
      ends_(static_cast<std::size_t>(run.grid.ranks())) {}

std::int64_t ParameterServers::place_of(program::BufferId id) const {
  const program::Buffer& b = timeline_.role->buffers[static_cast<std::size_t>(id)];
  const program::BufferId base = b.is_view() ? b.base : id;
  const std::int64_t at = timeline_.persistent[static_cast<std::size_t>(base)];
  REHEARSE_CHECK(at >= 0, "'{}' is not kept", b.name);
  return at + (b.is_view() ? b.offset * size_of(b.dtype) : 0);
}

ParameterServers::Shards ParameterServers::numbers_of(const RankMemory& memory,
                                                      program::BufferId ServerParameter::*which) const {
  Shards shards;
  for (const std::int64_t n : elements_) shards.emplace_back(static_cast<std::size_t>(n));
  for (const ServerParameter& p : parameters_) {
    const program::Buffer& b = timeline_.role->buffers[static_cast<std::size_t>(p.*which)];
    to_float(b.dtype, memory.at(place_of(p.*which)), p.elements,
             shards[static_cast<std::size_t>(p.server)].data() + p.first);
  }
  return shards;
}

void ParameterServers::begin_with(const RankMemory& memory) {
  if (run_.first_step == 0) begin(numbers_of(memory, &ServerParameter::value));
}

Clock::time_point ParameterServers::pull(int worker, std::int64_t iteration, const RankMemory& memory) {
  Shards values(servers());
  const Clock::time_point admitted = get(worker, iteration, values);
  for (const ServerParameter& p : parameters_) {
    const program::Buffer& b = timeline_.role->buffers[static_cast<std::size_t>(p.value)];
    from_float(b.dtype, values[static_cast<std::size_t>(p.server)].data() + p.first, p.elements,
               memory.at(place_of(p.value)));
  }
  return admitted;
}

bool ParameterServers::push(int worker, std::int64_t iteration, const RankMemory& memory) {
  const bool counted = run_.scenario.plan.backup_workers == 0 || ask_whether_counts(worker, iteration);
  if (counted) send(worker, iteration, numbers_of(memory, &ServerParameter::gradient));
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - run_.began);
  ends_[static_cast<std::size_t>(worker)].push_back({since.count() * 1000, counted ? 1 : 0});
  if (iteration + 1 == run_.options.steps) end(worker);
  return counted;
}

std::vector<WorkerRecord> ParameterServers::workers() const {
  std::vector<WorkerRecord> records;
  for (const int rank : run_.world.here()) records.push_back({rank, ends_[static_cast<std::size_t>(rank)]});
  return records;
}

std::unique_ptr<ParameterServers> make_servers(Run& run) {
  if (run.world.wire() != nullptr) return std::make_unique<RemoteServers>(run);
  return std::make_unique<LocalServers>(run);
}

bool serves(const plan::Scenario& scenario, const World& world) {
  return scenario.plan.served() && world.here().front() >= scenario.cluster.gpus;
}

}  // namespace rehearse::execute
