// See served_report.h.
#include "execute/servers/served_report.h"

#include <algorithm>
#include <limits>

#include "execute/rank/initial_values.h"
#include "sim/base/check.h"

namespace rehearse::execute {

namespace {

double seconds(std::int64_t from_ps, std::int64_t to_ps) {
  return Time::from_ps(to_ps - from_ps).seconds();
}

const char* name_of(plan::Consistency c) {
  return c == plan::Consistency::synchronous ? "synchronous"
         : c == plan::Consistency::bounded   ? "bounded"
                                             : "asynchronous";
}

// Into `p`; the updates a second of all workers together.
double add_rates(const std::vector<WorkerRecord>& workers, result::ParameterServers& p) {
  std::int64_t from = 0, to = std::numeric_limits<std::int64_t>::max();
  for (const WorkerRecord& w : workers) {
    REHEARSE_CHECK(!w.ends.empty(), "worker {} has ended no iteration", w.worker);
    from = std::max(from, w.ends.front().when_ps), to = std::min(to, w.ends.back().when_ps);
  }
  double sum = 0;
  for (const WorkerRecord& w : workers) {
    std::size_t last = 0;
    for (std::size_t k = 1; k < w.ends.size() && w.ends[k].when_ps <= to; ++k) {
      last = k;
      ++(w.ends[k].counted != 0 ? p.updates : p.dropped);
    }
    const double time = seconds(w.ends.front().when_ps, w.ends[last].when_ps);
    p.iterations_per_s.push_back(time > 0 ? static_cast<double>(last) / time : 0);
    sum += p.iterations_per_s.back();
  }
  p.window_ps = std::max<std::int64_t>(0, to - from);
  return sum;
}

void add_sizes(const std::vector<ServerRecord>& servers, const program::Role& role, result::ParameterServers& p) {
  std::int64_t all = 0;
  const ServerRecord* fullest = &servers.front();
  for (const ServerRecord& s : servers) {
    all += s.elements;
    if (s.elements > fullest->elements) fullest = &s;
  }
  const account::ServerParameter first = account::server_parameters(role, static_cast<int>(servers.size())).front();
  const auto size = [&](program::BufferId id) { return size_of(role.buffers[static_cast<std::size_t>(id)].dtype); };
  p.parameter_bytes = all * size(first.value), p.gradient_bytes = all * size(first.gradient);
  p.fullest_server_bytes = fullest->elements * size(first.value);
  p.server_memory_bytes = fullest->state_bytes;
}

// A step is the time of as many updates as make a global batch.
void scale_step(const plan::Scenario& s, double samples_per_s, result::Result& out) {
  const plan::Training& t = s.training;
  const auto step = Time::from_seconds(static_cast<double>(t.global_batch) / samples_per_s);
  const double factor =
      static_cast<double>(step.ps()) / static_cast<double>(std::max<std::int64_t>(1, out.step_time_ps));
  std::int64_t left = step.ps();
  for (std::int64_t& share : out.breakdown_ps) {
    share = static_cast<std::int64_t>(static_cast<double>(share) * factor);
    left -= share;
  }
  *std::max_element(out.breakdown_ps.begin(), out.breakdown_ps.end()) += left;
  out.interval_low_s *= factor, out.interval_high_s *= factor;
  out.step_time_ps = step.ps();
  out.tokens_per_s = samples_per_s * static_cast<double>(s.model.reads_text() ? t.seq_len : 1);
}

}  // namespace

void add_served(const plan::Scenario& scenario, const program::Role& role, const ServedRecords& records,
                std::int64_t first, std::int64_t steps, result::Result& out) {
  const plan::Plan& plan = scenario.plan;
  const bool synchronous = plan.consistency == plan::Consistency::synchronous;
  result::ParameterServers& p = out.servers;
  p.known = true;
  p.servers = plan.servers, p.workers = plan.data, p.backup_workers = plan.backup_workers;
  p.own_devices = plan.own_servers();
  p.consistency = name_of(plan.consistency);
  if (plan.consistency == plan::Consistency::bounded) p.bound = plan.staleness;
  REHEARSE_CHECK(!records.servers.empty(), "no server has an account");
  const ServerRecord& server = records.servers.front();
  p.most_ahead = server.most_ahead;
  double sum = add_rates(records.workers, p);
  if (synchronous) {
    const auto& ends = server.steps_ps;
    const double time = ends.size() > 1 ? seconds(ends.front(), ends.back()) : 0;
    sum = time > 0 ? static_cast<double>(ends.size() - 1) / time : 0;
  }
  p.updates_per_s = sum;
  p.samples_per_s =
      sum * static_cast<double>(scenario.training.global_batch) / static_cast<double>(synchronous ? 1 : plan.counted());
  p.staleness = synchronous ? std::vector<std::int64_t>{p.updates * plan.servers}
                            : account::staleness_of(events_of(records), first + 1, steps);
  p.mean_staleness = account::mean_of_counts(p.staleness);
  add_sizes(records.servers, role, p);
  if (!synchronous && p.samples_per_s > 0) scale_step(scenario, p.samples_per_s, out);
  out.tokens_per_s_per_gpu = out.tokens_per_s / static_cast<double>(result::paid_devices(out));
}

std::vector<account::ServerEvent> events_of(const ServedRecords& records) {
  std::vector<account::ServerEvent> all;
  for (const ServerRecord& s : records.servers) all.insert(all.end(), s.events.begin(), s.events.end());
  return all;
}

Parameters parameters_of(const program::Role& role, const ServedRecords& records) {
  Parameters whole;
  for (const account::ServerParameter& p : account::server_parameters(role, static_cast<int>(records.servers.size()))) {
    const float* const from = records.servers[static_cast<std::size_t>(p.server)].values.data() + p.first;
    whole[parameter_name(role.buffers[static_cast<std::size_t>(p.value)])].assign(from, from + p.elements);
  }
  return whole;
}

}  // namespace rehearse::execute
