// See parameter_servers.h.
#include "sim/run/parameter_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "sim/account/server_kernels.h"
#include "sim/account/server_shards.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/engine/noise.h"
#include "sim/lower/stage.h"
#include "sim/run/fit.h"

namespace rehearse::run {

namespace {

using program::DType;

// Of one worker's role: all workers have the same parameters.
const program::Role& worker_role(const Prepared& prepared) {
  REHEARSE_CHECK(prepared.program().roles.size() == 1, "{} roles of workers", prepared.program().roles.size());
  return prepared.program().roles.front();
}

std::vector<std::int64_t> elements_of(const Prepared& prepared) {
  const auto servers = static_cast<int>(prepared.scenario().plan.servers);
  return account::server_elements(account::server_parameters(worker_role(prepared), servers), servers);
}

DType values_type(const plan::Scenario& s) {
  return lower::dtype_of(s.training.precision);
}

// Of one server, what its device does and takes for it; none where it has no elements.
struct ServerCosts {
  cost::Estimate update, sum;
};
ServerCosts costs_of_server(const Prepared& prepared, int server, std::int64_t elements);

int device_of_server(const plan::Plan& plan, int server) {
  const auto workers = static_cast<int>(plan.data);
  return plan.own_servers() > 0 ? workers + server : server * workers / static_cast<int>(plan.servers);
}

ServerCosts costs_of_server(const Prepared& prepared, int server, std::int64_t elements) {
  if (elements == 0) return {};
  const plan::Scenario& s = prepared.scenario();
  const account::ServerKernels kernels =
      account::server_kernels(s, elements, values_type(s), lower::dtype_of(s.training.reduce_dtype));
  const auto& costs = prepared.machine().costs_of(prepared.cluster().kind_of(device_of_server(s.plan, server)));
  return {costs.kernel(kernels.role, kernels.update, {}), costs.kernel(kernels.role, kernels.sum, {})};
}

// Shares of busy time count the servers' kernels beside the workers', of an iteration of all workers.
void add_coverage(const Prepared& prepared, const engine::Outcome& workers, const std::vector<std::int64_t>& elements,
                  result::Result& out) {
  std::array<double, 4> busy = workers.coverage_busy_s;
  const auto [updates, sums] = account::server_calls(prepared.scenario().plan);
  for (std::size_t server = 0; server < elements.size(); ++server) {
    const ServerCosts costs = costs_of_server(prepared, static_cast<int>(server), elements[server]);
    for (const auto& [calls, one] : {std::pair{updates, costs.update}, std::pair{sums, costs.sum}})
      busy[static_cast<std::size_t>(one.coverage)] += static_cast<double>(calls) * one.duration.seconds();
  }
  const double all = std::accumulate(busy.begin(), busy.end(), 0.0);
  for (std::size_t i = 0; i < busy.size() && all > 0; ++i) out.coverage[i] = busy[i] / all;
}

engine::ServedWork work_of(const Prepared& prepared, const std::vector<std::vector<Time>>& ends, int iterations) {
  const plan::Scenario& s = prepared.scenario();
  const plan::Plan& plan = s.plan;
  engine::ServedWork work;
  work.workers = static_cast<int>(plan.data), work.servers = static_cast<int>(plan.servers);
  work.consistency = plan.consistency, work.bound = plan.staleness, work.counted = static_cast<int>(plan.counted());
  work.iterations = iterations;
  // Where fewer were simulated all are alike from the last on.
  work.compute = [&ends, overhead = plan.mode_overhead](int worker, std::int64_t iteration) {
    const std::vector<Time>& own = ends[static_cast<std::size_t>(worker)];
    const auto last = std::min(static_cast<std::size_t>(iteration), own.size() - 1);
    const Time computed = last == 0 ? own[0] : own[last] - own[last - 1];
    return overhead > 0 ? Time::from_seconds(computed.seconds() * (1 + overhead)) : computed;
  };
  const std::vector<std::int64_t> elements = elements_of(prepared);
  const std::int64_t pulled = program::size_of(values_type(s)),
                     pushed = program::size_of(lower::dtype_of(s.training.reduce_dtype));
  for (int w = 0; w < work.workers; ++w)
    for (int server = 0; server < work.servers; ++server) {
      const int device = device_of_server(plan, server);
      const std::int64_t n = elements[static_cast<std::size_t>(server)];
      const bool moves = device != w && n > 0;
      const collective::CollectiveModel& model = prepared.collectives();
      work.pulls.push_back(moves ? model.send(device, w, Bytes(n * pulled)) : collective::TransferPlan());
      work.pushes.push_back(moves ? model.send(w, device, Bytes(n * pushed)) : collective::TransferPlan());
    }
  for (int server = 0; server < work.servers; ++server) {
    const ServerCosts costs = costs_of_server(prepared, server, elements[static_cast<std::size_t>(server)]);
    work.update.push_back(costs.update.duration);
    work.add.push_back(costs.sum.duration);
  }
  return work;
}

bool workers_vary(const Prepared& prepared) {
  const plan::Noise& noise = prepared.scenario().noise;
  return noise.kernels > 0 || noise.rank_step.any() || (noise.machine && prepared.costs().device().jitter.any());
}

// The iterations of a worker that lie in the steady run, by their ends: the first is left out.
struct Span {
  std::size_t last = 0;  // of them
  double seconds = 0;
};
Span span_of(const std::vector<engine::ServedRun::Iteration>& own, Time to) {
  Span span;
  for (std::size_t k = 1; k < own.size() && own[k].ended <= to; ++k) span.last = k;
  span.seconds = (own[span.last].ended - own[0].ended).seconds();
  return span;
}

// Where the workers' time goes between the ends of their iterations, in the mean.
struct Shares {
  double computing = 0, held = 0, moving = 0;
  double all() const { return computing + held + moving; }
};

Shares shares_of(const engine::ServedRun& run) {
  Shares shares;
  for (const auto& own : run.iterations) {
    const Span span = span_of(own, run.to);
    for (std::size_t k = 1; k <= span.last; ++k) {
      shares.held += (own[k].asked - own[k - 1].ended).seconds();
      shares.computing += (own[k].computed - own[k].began).seconds();
      shares.moving += (own[k].began - own[k].asked + (own[k].ended - own[k].computed)).seconds();
    }
  }
  return shares;
}

void add_rates(const Prepared& prepared, const engine::ServedRun& run, result::ParameterServers& p) {
  const plan::Scenario& s = prepared.scenario();
  const double batch = static_cast<double>(s.training.global_batch) / static_cast<double>(s.plan.counted());
  double sum = 0;
  for (const auto& own : run.iterations) {
    const Span span = span_of(own, run.to);
    p.iterations_per_s.push_back(span.seconds > 0 ? static_cast<double>(span.last) / span.seconds : 0);
    sum += p.iterations_per_s.back();
    for (std::size_t k = 1; k < own.size() && own[k].ended <= run.to; ++k) ++(own[k].counted ? p.updates : p.dropped);
  }
  p.window_ps = (run.to - run.from).ps();
  if (run.steps.size() > 1) {
    const double seconds = (run.steps.back() - run.steps.front()).seconds();
    sum = seconds > 0 ? static_cast<double>(run.steps.size() - 1) / seconds : 0;
    p.samples_per_s = sum * static_cast<double>(s.training.global_batch);
  } else {
    p.samples_per_s = sum * batch;
  }
  p.updates_per_s = sum;
}

void add_staleness(const plan::Plan& plan, const engine::ServedRun& run, std::int64_t last,
                   result::ParameterServers& p) {
  p.staleness = plan.consistency == plan::Consistency::synchronous ? std::vector<std::int64_t>{p.updates * plan.servers}
                                                                   : account::staleness_of(run.events, 1, last);
  p.mean_staleness = account::mean_of_counts(p.staleness);
}

// What has least time to spare in the steady run.
void add_bound(const Prepared& prepared, const engine::ServedRun& run, const Shares& shares,
               result::ParameterServers& p) {
  const double window = (run.to - run.from).seconds();
  p.bound_by = "workers", p.busy = shares.all() > 0 ? shares.computing / shares.all() : 0;
  const auto busier = [&](const std::string& what, double busy) {
    if (busy > p.busy) p.bound_by = what, p.busy = busy;
  };
  if (window <= 0) return;
  for (std::size_t server = 0; server < run.server_busy.size(); ++server)
    busier(fmt::format("server {}", server), run.server_busy[server].seconds() / window);
  const auto& resources = prepared.cluster().resources();
  for (std::size_t r = 0; r < resources.size(); ++r)
    busier(resources[r].name,
           static_cast<double>(run.link_bytes[r]) / (static_cast<double>(resources[r].capacity.per_s()) * window));
}

void scale_step(double step_s, const Shares& shares, result::Result& out) {
  const double before = Time::from_ps(out.step_time_ps).seconds();
  const auto step = Time::from_seconds(step_s);
  out.interval_low_s *= before > 0 ? step_s / before : 0;
  out.interval_high_s *= before > 0 ? step_s / before : 0;
  const double all = shares.all();
  const auto part = [&](double share) {
    return all > 0 ? static_cast<std::int64_t>(static_cast<double>(step.ps()) * share / all) : 0;
  };
  const std::int64_t computing = part(shares.computing);
  std::int64_t left = step.ps();
  // Of the workers' own program, but for what it waits for the end of a common step, which is none here.
  std::int64_t& straggler = out.breakdown_ps[static_cast<std::size_t>(result::Share::straggler)];
  const std::int64_t own = out.step_time_ps - straggler;
  straggler = 0;
  for (std::int64_t& share : out.breakdown_ps)
    share = own > 0 ? static_cast<std::int64_t>(static_cast<double>(share) * static_cast<double>(computing) /
                                                static_cast<double>(own))
                    : 0;
  out.breakdown_ps[static_cast<std::size_t>(result::Share::straggler)] += part(shares.held);
  out.breakdown_ps[static_cast<std::size_t>(result::Share::exposed_data)] += part(shares.moving);
  for (const std::int64_t share : out.breakdown_ps) left -= share;
  *std::max_element(out.breakdown_ps.begin(), out.breakdown_ps.end()) += left;
  out.step_time_ps = step.ps();
}

}  // namespace

int served_iterations(const Options& options) {
  return std::max(options.steps, kServedIterations);
}

engine::Outcome simulate_workers(const Prepared& prepared, engine::Options options, int iterations) {
  options.rank_steps = true;
  options.steps = workers_vary(prepared) ? iterations : std::min(iterations, 3);
  return prepared.simulate(options);
}

engine::ServedRun run_servers(const Prepared& prepared, const engine::Outcome& workers, int iterations,
                              std::int64_t sample) {
  engine::ServedWork work = work_of(prepared, workers.rank_step_ends, iterations);
  const plan::Scenario& s = prepared.scenario();
  const engine::Noise noise(s.noise, sample, {}, static_cast<int>(s.plan.data));
  if (noise.transfers())
    work.message_factor = [&](int worker, int server, bool pull, std::int64_t iteration) {
      const int device = device_of_server(s.plan, server);
      return noise.transfer(false, pull ? device : worker, pull ? worker : device, server, iteration);
    };
  work.noise = s.noise;
  return engine::run_servers(work, prepared.cluster());
}

void add_servers(const Prepared& prepared, const engine::Outcome& workers, const engine::ServedRun& run,
                 result::Result& out) {
  const plan::Scenario& s = prepared.scenario();
  result::ParameterServers& p = out.servers;
  p.known = true;
  p.servers = s.plan.servers, p.workers = s.plan.data, p.backup_workers = s.plan.backup_workers;
  p.own_devices = s.plan.own_servers();
  p.consistency = out.scenario.at("plan.consistency");
  if (s.plan.consistency == plan::Consistency::bounded) p.bound = s.plan.staleness;
  const std::vector<std::int64_t> elements = elements_of(prepared);
  const std::int64_t all = std::accumulate(elements.begin(), elements.end(), std::int64_t{0}),
                     most = *std::max_element(elements.begin(), elements.end()),
                     value = program::size_of(values_type(s));
  p.parameter_bytes = all * value;
  p.gradient_bytes = all * program::size_of(lower::dtype_of(s.training.reduce_dtype));
  p.fullest_server_bytes = most * value;
  p.server_memory_bytes = most * (value + (value < 4 ? 4 : 0) + 4 * account::server_moments(s.training));
  p.most_ahead = run.most_ahead;
  add_coverage(prepared, workers, elements, out);
  add_rates(prepared, run, p);
  add_staleness(s.plan, run, static_cast<std::int64_t>(run.iterations.front().size()), p);
  const Shares shares = shares_of(run);
  add_bound(prepared, run, shares, p);
  out.steps = static_cast<std::int64_t>(run.iterations.front().size());
  out.events += static_cast<std::int64_t>(run.events.size());
  out.links = {};
  // The fullest server's; of a worker's device that has one too beside what the worker holds.
  std::int64_t needed = p.server_memory_bytes;
  if (s.plan.own_servers() == 0)
    for (auto& stage : out.stages) {
      stage.optimizer += p.server_memory_bytes;
      stage.peak += p.server_memory_bytes;
      needed = std::max(needed, stage.peak);
    }
  if (needed > out.memory_capacity - out.memory_headroom) out.memory_fits = false;
  if (p.samples_per_s <= 0) return;
  scale_step(static_cast<double>(s.training.global_batch) / p.samples_per_s, shares, out);
  out.tokens_per_s = p.samples_per_s * static_cast<double>(s.model.reads_text() ? s.training.seq_len : std::int64_t{1});
  out.tokens_per_s_per_gpu = out.tokens_per_s / static_cast<double>(result::paid_devices(out));
  REHEARSE_CHECK(!workers.rank_step_ends.empty(), "no steps of workers");
}

void add_iteration_ends(const engine::ServedRun& run, result::Result& out) {
  out.step_ends_ps.clear();
  for (const auto& own : run.iterations) {
    out.step_ends_ps.emplace_back();
    for (const auto& iteration : own) out.step_ends_ps.back().push_back(iteration.ended.ps());
  }
}

std::vector<account::ServerEvent> simulated_server_order(const plan::Scenario& scenario, const Options& options,
                                                         int iterations) {
  const Prepared prepared(scenario, options);
  const engine::Outcome workers = simulate_workers(prepared, prepared.engine_options(), iterations);
  return run_servers(prepared, workers, iterations).events;
}

}  // namespace rehearse::run
