// The flow of a run; see performer.h. Ranks run freely, steps are never synchronised: a fast rank may be a step ahead,
// held back only by what it must receive.
#include "execute/performer.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <memory>
#include <numeric>
#include <thread>

#include "execute/checkpoint/checkpoints.h"
#include "execute/collective_ways.h"
#include "execute/late_ranks.h"
#include "execute/measure.h"
#include "execute/memory_use.h"
#include "execute/processes/local_world.h"
#include "execute/program_check.h"
#include "execute/rank/cpu_rank.h"
#include "execute/rank/routing_log.h"
#include "execute/report.h"
#include "execute/servers/parameter_servers.h"
#include "execute/servers/server_order.h"
#include "execute/servers/server_process.h"
#include "execute/servers/server_state.h"
#include "execute/step_limit.h"
#include "execute/timeline.h"
#include "kernels/device_state.h"
#include "sim/account/first_weights.h"
#include "sim/account/server_kernels.h"
#include "sim/account/server_shards.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"

namespace rehearse::execute {
namespace {

std::int64_t machine_memory() {
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

// What `servers` parameter servers keep, those with most first: values and the optimizer's moments, in fp32
// (servers/server_state.h).
std::int64_t memory_of_servers(const plan::Scenario& scenario, const program::Role& worker, std::int64_t servers) {
  if (servers == 0) return 0;
  const auto all = static_cast<int>(scenario.plan.servers);
  std::vector<std::int64_t> elements = account::server_elements(account::server_parameters(worker, all), all);
  std::sort(elements.rbegin(), elements.rend());
  const std::int64_t sum = std::accumulate(elements.begin(), elements.begin() + servers, std::int64_t{0});
  return sum * (1 + account::server_moments(scenario.training)) * static_cast<std::int64_t>(sizeof(float));
}

// Of ranks and parameter servers on this machine.
void check_memory(const plan::Scenario& scenario, const std::vector<Timeline>& timelines, const plan::RankGrid& grid,
                  std::span<const int> ranks, std::int64_t servers) {
  const std::int64_t of_servers = memory_of_servers(scenario, *timelines.front().role, servers);
  std::int64_t needed = of_servers;
  for (const int rank : ranks) {
    const auto& memory = timeline_of(timelines, grid, rank).memory;
    needed += memory.arena_bytes + memory.host_bytes;
  }
  if (needed > machine_memory())
    throw DoesNotFit(fmt::format(
        "does not fit in memory: {} ranks{} need {} of this machine's {}", ranks.size(),
        servers > 0 ? fmt::format(" and {} parameter servers, {},", servers, format_bytes(Bytes(of_servers))) : "",
        format_bytes(Bytes(needed)), format_bytes(Bytes(machine_memory()))));
}

std::unique_ptr<Data> data_of(const plan::Scenario& scenario, const Options& options) {
  return open_data(scenario.model, scenario.training.seq_len, scenario.training.seed, options.data);
}

// Ranks that report the loss: of the stage that ends the model, one a data-parallel replica.
std::vector<int> loss_reporters(const plan::RankGrid& grid, const std::vector<Timeline>& timelines) {
  std::vector<int> ranks;
  for (int r = 0; r < grid.ranks(); ++r)
    if (timeline_of(timelines, grid, r).loss >= 0 && grid.coordinate(r, Axis::tensor) == 0) ranks.push_back(r);
  REHEARSE_CHECK(!ranks.empty(), "{} stages, and none has the loss", timelines.size());
  return ranks;
}

using Ranks = std::vector<std::unique_ptr<Rank>>;

std::unique_ptr<Rank> make_rank(Run& run, int rank, bool reports_loss) {
  if (run.options.maker != nullptr) return run.options.maker->make(run, rank, reports_loss);
  return std::make_unique<CpuRank>(run, rank, reports_loss);
}

Ranks make_ranks(Run& run, const std::vector<int>& reporters) {
  Ranks ranks;
  for (const int r : run.world.here())
    ranks.push_back(make_rank(run, r, std::find(reporters.begin(), reporters.end(), r) != reporters.end()));
  return ranks;
}

// All at once: they may meet in it. What failed first by itself, and did not only wait for another, is thrown on.
void initialise(const Run& run, const Ranks& ranks) {
  std::vector<std::exception_ptr> errors(ranks.size()), waits(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        ranks[i]->initialise();
      } catch (const WaitEnded&) {
        waits[i] = std::current_exception();
      } catch (...) {
        errors[i] = std::current_exception();
        run.world.stop().request();
      }
    });
  for (auto& thread : threads) thread.join();
  errors.insert(errors.end(), waits.begin(), waits.end());
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

// Ends every rank's threads when it goes, whatever the way out.
class Running {
 public:
  Running(const Ranks& ranks, Stop& stop) : ranks_(ranks), stop_(stop) {
    for (const auto& rank : ranks_) rank->start();
  }
  ~Running() {
    if (!ended()) stop_.request();
    for (const auto& rank : ranks_) rank->join();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  bool ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->ended(); });
  }

 private:
  const Ranks& ranks_;
  Stop& stop_;
};

std::int64_t end_of(const Run& run) {
  return run.limit != nullptr ? run.limit->end() : run.options.steps;
}

// Follows the steps as they end; returns early if the run is stopped.
void follow_losses(const Run& run, const std::vector<int>& reporters, TrainingLosses& losses) {
  const model::Model& m = run.scenario.model;
  std::vector<double> reported(static_cast<std::size_t>(1 + m.mtp_depth));
  for (int step = static_cast<int>(run.first_step); step < end_of(run); ++step) {
    for (std::size_t part = 0; part < reported.size(); ++part) {
      std::optional<double> loss;
      while (!(loss = run.world.loss(loss_item(step, part, reported.size()), reporters))) {
        if (run.world.stop().requested()) return;
        if (run.options.poll) run.options.poll();
        if (run.checkpoints != nullptr) run.checkpoints->look(losses);
      }
      reported[part] = *loss;
    }
    losses.add(m, reported);
    if (run.checkpoints != nullptr) run.checkpoints->look(losses);
    if (run.options.on_step)
      run.options.on_step(step, {losses.of_steps.back(), reported.size() > 1 ? reported : std::vector<double>()});
    if (run.limit != nullptr && run.options.enough(losses.of_steps)) run.limit->end_soon();
  }
}

// Runs the ranks that are here to their end; at the root returns the losses by step.
TrainingLosses run_ranks(const Run& run, const Ranks& ranks, const std::vector<int>& reporters) {
  constexpr std::chrono::milliseconds kPause{5};
  TrainingLosses losses;
  if (run.checkpoints != nullptr) losses = run.checkpoints->losses();
  losses.make_parts(run.scenario.model);
  const Running running(ranks, run.world.stop());
  if (run.world.root()) follow_losses(run, reporters, losses);
  while (!running.ended()) {
    if (run.options.poll) run.options.poll();
    std::this_thread::sleep_for(kPause);
  }
  return losses;
}

RankFailure failure_of(const Run& run) {
  return RankFailure(run.world.failures().report([&run](int rank) { return run.whereabouts(rank); }));
}

// What `wait` returns; throws RankFailure if the run fails before it does.
template <class Wait>
auto wait_for_others(const Run& run, const std::string& what, Wait wait) {
  World& world = run.world;
  try {
    return wait();
  } catch (const DeadlineError& late) {
    const int rank = world.here().front();
    world.failures().fail(rank,
                          fmt::format("rank {} waited in vain {} for {}", rank, what, ranks_text(late.missing())));
  } catch (const Stopped&) {
  }
  throw failure_of(run);
}

// One rank a stage stands for its stage.
bool recorded(const Run& run, int rank) {
  const std::vector<int> representatives = run.grid.members(0, {Axis::pipeline});
  return run.options.record && std::find(representatives.begin(), representatives.end(), rank) != representatives.end();
}

Report report_of(const Run& run, const Ranks& ranks) {
  Report report;
  for (const auto& rank : ranks) {
    RankReport& r = report.ranks.emplace_back();
    r.rank = rank->rank();
    r.shares = rank->shares();
    if (recorded(run, r.rank)) r.records = rank->records();
    if (run.options.keep_parameters) r.parameters = rank->parameters();
    r.arena_bytes = rank->held_bytes();
    r.transfer_starts = rank->transfer_starts();
    r.transfer_waits = rank->transfer_waits();
    r.device = rank->device_use();
    r.products = rank->products();
    r.loss_scale = rank->loss_scale();
    r.checkpoints = rank->checkpoint_use();
    r.first_weights_s = rank->first_weights_s();
    r.routing = rank->routing();
  }
  if (run.servers != nullptr) report.served = run.servers->records();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  report.peak_rss_bytes = usage.ru_maxrss * 1024;
  return report;
}

void add_records(const Run& run, const std::vector<RankReport>& ranks, result::Result& out) {
  for (const RankReport& r : ranks) {
    if (!recorded(run, r.rank)) continue;
    out.role_of_rank[r.rank] = run.grid.coordinate(r.rank, Axis::pipeline);
    out.records.insert(out.records.end(), r.records.begin(), r.records.end());
  }
  if (out.records.empty()) return;
  std::int64_t first = out.records.front().start_ps;
  for (const auto& record : out.records) first = std::min(first, record.start_ps);
  for (auto& record : out.records) record.start_ps -= first;
}

// Who has a part of the run's checkpoints here (Checkpoints::add).
std::vector<int> holders_here(const Run& run) {
  const std::span<const int> here = run.world.here();
  if (!run.scenario.plan.served()) return {here.begin(), here.end()};
  if (serves(run.scenario, run.world)) return {here.front() - run.grid.ranks()};
  if (run.world.wire() != nullptr) return {};
  std::vector<int> servers(static_cast<std::size_t>(run.scenario.plan.servers));
  std::iota(servers.begin(), servers.end(), 0);
  return servers;
}

// Every rank's part of the last checkpoint is on disk, and at the root the manifests too.
void finish_checkpoints(const Run& run, const TrainingLosses& losses) {
  if (run.checkpoints == nullptr) return;
  for (const int rank : holders_here(run)) run.checkpoints->finish(rank);
  if (!run.world.root()) return;
  wait_for_others(run, "for the files of a checkpoint", [&] {
    const Clock::time_point deadline = Clock::now() + run.options.timeout;
    for (std::vector<int> missing; !(missing = run.checkpoints->look(losses)).empty();) {
      if (run.world.stop().requested()) throw Stopped(missing);
      if (Clock::now() >= deadline) throw DeadlineError(missing);
      if (run.options.poll) run.options.poll();
      std::this_thread::sleep_for(kLook / 10);
    }
    return true;
  });
}

std::int64_t memory_of_a_rank(const Run& run) {
  if (run.options.maker != nullptr) return run.options.maker->memory_of_a_rank();
  return machine_memory() / static_cast<std::int64_t>(run.world.on_this_machine().size());
}

// Of several devices the one with the lowest clock stands for all.
void add_device(const RankReport& rank, result::GpuRun& gpu) {
  const DeviceConditions& c = rank.device.conditions;
  if (c.samples > 0 && (gpu.samples == 0 || c.sm_mhz < gpu.sm_mhz)) {
    gpu.samples = c.samples;
    gpu.sm_mhz = c.sm_mhz, gpu.least_sm_mhz = c.least_sm_mhz, gpu.max_sm_mhz = c.max_sm_mhz;
    gpu.memory_mhz = c.memory_mhz, gpu.temperature_c = c.temperature_c;
    gpu.power_w = c.power_w, gpu.power_limit_w = c.power_limit_w;
    gpu.throttle = c.throttle_known ? kernels::throttle_text(c.throttle) : "unknown";
  }
  for (const result::ProductUse& p : rank.products)
    if (std::find(gpu.products.begin(), gpu.products.end(), p) == gpu.products.end()) gpu.products.push_back(p);
}

// Of the slowest rank.
result::FirstWeights first_weights_of(const Run& run, const std::vector<RankReport>& ranks) {
  std::vector<std::vector<account::FirstMessage>> messages;
  for (const program::Role& role : run.program.roles)
    messages.push_back(account::first_messages(run.scenario, run.program, role));
  result::FirstWeights facts = account::first_weights_facts(messages);
  for (const RankReport& rank : ranks)
    facts.time_ps = std::max(facts.time_ps, Time::from_seconds(rank.first_weights_s).ps());
  return facts;
}

void add_use(const CheckpointUse& one, CheckpointUse& all) {
  all.written = std::max(all.written, one.written);
  all.bytes += one.bytes;
  all.all_bytes += one.all_bytes;
  all.stall_s = std::max(all.stall_s, one.stall_s);
  all.write_s = std::max(all.write_s, one.write_s);
}

Outcome outcome_of(const Run& run, const std::vector<std::string>& reports, TrainingLosses losses) {
  Outcome outcome;
  result::Result& r = outcome.result;
  r.source = "measured";
  r.scenario_name = run.scenario.name;
  r.scenario_file = run.scenario.file;
  r.ranks = run.grid.ranks();
  r.steps = end_of(run) - run.first_step;  // that were performed here
  r.late_ranks_known = run.late_ranks_known;
  r.loss = std::move(losses.of_steps);
  for (std::size_t part = 0; part < losses.parts.size(); ++part)
    r.loss_parts.push_back({loss_part_name(part), std::move(losses.parts[part])});
  r.memory_capacity = memory_of_a_rank(run);
  outcome.processes = static_cast<int>(reports.size());
  std::vector<RankReport> ranks;
  ServedRecords served;
  for (const std::string& bytes : reports) {
    Report report = unpack(bytes);
    std::move(report.served.workers.begin(), report.served.workers.end(), std::back_inserter(served.workers));
    std::move(report.served.servers.begin(), report.served.servers.end(), std::back_inserter(served.servers));
    r.peak_rss_bytes = std::max(r.peak_rss_bytes, report.peak_rss_bytes);
    outcome.all_rss_bytes += report.peak_rss_bytes;
    std::move(report.ranks.begin(), report.ranks.end(), std::back_inserter(ranks));
  }
  std::sort(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  settle_waits(run, ranks);
  r.first_weights = first_weights_of(run, ranks);
  StepShares shares;
  for (const RankReport& rank : ranks) {
    shares.push_back(rank.shares);
    r.arena_bytes += rank.arena_bytes;
    outcome.device.beside_bytes = std::max(outcome.device.beside_bytes, rank.device.beside_bytes);
    outcome.device.total_bytes = std::max(outcome.device.total_bytes, rank.device.total_bytes);
    outcome.device.graph_steps = std::max(outcome.device.graph_steps, rank.device.graph_steps);
    outcome.device.products += rank.device.products;
    outcome.device.other_products += rank.device.other_products;
    if (std::abs(rank.device.clock_drift_ps) > std::abs(outcome.device.clock_drift_ps))
      outcome.device.clock_drift_ps = rank.device.clock_drift_ps;
    add_device(rank, r.gpu);
    add_use(rank.checkpoints, outcome.checkpoints);
    outcome.routing.insert(outcome.routing.end(), rank.routing.begin(), rank.routing.end());
    if (!rank.loss_scale.empty()) outcome.loss_scales.push_back(rank.loss_scale);
    if (run.options.keep_parameters)
      collect(run.timeline(rank.rank), run.grid, rank.rank, rank.parameters, outcome.parameters);
  }
  std::sort(outcome.routing.begin(), outcome.routing.end(),
            [](const auto& a, const auto& b) { return a.place() < b.place(); });
  add_times(shares, run.scenario, run.first_step, r);
  add_records(run, ranks, r);
  if (run.options.maker == nullptr) add_collectives(run, r);
  add_program(run.program, run.scenario, run.grid, run.options.record, r);
  if (run.servers != nullptr) {
    const program::Role& worker = *run.timeline(0).role;
    add_served(run.scenario, worker, served, run.first_step, run.options.steps, r);
    outcome.server_events = events_of(served);
    for (const ServerRecord& server : served.servers) add_use(server.checkpoints, outcome.checkpoints);
    if (run.options.keep_parameters) outcome.parameters = parameters_of(worker, served);
  }
  outcome.shares = std::move(shares);
  outcome.first_step = run.first_step;
  r.steps = end_of(run);
  for (result::StageMemory& stage : r.stages) {  // what a simulation counts too
    stage.framework += outcome.device.beside_bytes;
    stage.peak += outcome.device.beside_bytes;
  }
  r.wall_s = std::chrono::duration<double>(Clock::now() - run.began).count();
  outcome.data = run.data.description();
  return outcome;
}

void check_checkpoints(const plan::Scenario& scenario, const Options& options) {
  if (options.checkpoint.any() && options.maker != nullptr)
    throw InputError(Diagnostic{"--checkpoint", 0, 0, "", "ranks on GPUs write no checkpoints yet", "--device cpu"});
  if (!options.checkpoint.any() || options.checkpoint.kind != CheckpointKind::full) return;
  if (const auto kept = kept_by_rank(scenario))
    throw InputError(Diagnostic{"--checkpoint-kind", 0, 0, "",
                                fmt::format("{}: there is no whole of {}", kept->what, kept->it),
                                "sharded, incremental, or " + kept->instead});
}

// With Options::enough: the streams of all ranks see the same limit.
void check_may_end(const plan::Scenario& scenario, const Options& options, World& world) {
  const bool here = static_cast<std::int64_t>(world.here().size()) == scenario.cluster.gpus;
  if (!here || options.maker != nullptr || options.checkpoint.any() || scenario.plan.served())
    throw InputError(Diagnostic{"", 0, 0, "",
                                "a run ends early where its ranks are threads on CPUs, without checkpoints and "
                                "parameter servers",
                                "--ranks local, or all of --steps"});
}

// Servers are threads beside the ranks', or processes beside theirs.
void check_server_placement(const plan::Scenario& scenario, const Options& options, World* world) {
  if (!scenario.plan.served()) return;
  const auto refuse = [](const char* path, const char* message, const char* hint) {
    throw InputError(Diagnostic{path, 0, 0, "", message, hint});
  };
  if (options.maker != nullptr) refuse("--device", "parameter servers are performed on CPUs so far", "--device cpu");
  const bool all_here = world != nullptr && static_cast<std::int64_t>(world->here().size()) == scenario.cluster.gpus;
  if (world != nullptr && world->wire() == nullptr && !all_here)
    refuse("--ranks", "parameter servers are threads beside the ranks', or processes beside theirs over Gloo or MPI",
           "--ranks local, gloo or mpi");
}

// Of these processes those that are ranks of the plan, and not its servers.
std::span<const int> ranks_of_plan(std::span<const int> processes, const plan::RankGrid& grid) {
  const auto servers = std::find_if(processes.begin(), processes.end(), [&](int rank) { return rank >= grid.ranks(); });
  return {processes.begin(), servers};
}

// Threads beside the ranks', or processes.
std::int64_t servers_on_this_machine(const plan::Scenario& scenario, World& world, const plan::RankGrid& grid) {
  if (!scenario.plan.served()) return 0;
  if (world.wire() == nullptr) return scenario.plan.servers;
  const std::span<const int> all = world.on_this_machine();
  return static_cast<std::int64_t>(all.size() - ranks_of_plan(all, grid).size());
}

}  // namespace

void check_performable(const plan::Scenario& scenario, int steps) {
  Diagnostics problems;
  const auto problem = [&](const std::string& path, const std::string& message, const std::string& hint) {
    problems.add({"", 0, 0, path, message, hint});
  };
  const std::int64_t ranks = scenario.cluster.gpus, servers = scenario.plan.served() ? scenario.plan.servers : 0;
  if (ranks + servers > kMaxRanks)
    problem(ranks > kMaxRanks ? "cluster.gpus" : "plan.servers",
            fmt::format("{} ranks{} of this machine; at most {} are performed", ranks,
                        servers > 0 ? fmt::format(" and {} parameter servers", servers) : " as threads", kMaxRanks),
            "rehearse simulate takes any number");
  if (scenario.data.takes_time())
    problem("data",
            "what loading takes is simulated only: here examples are made or read beforehand, and a step that is "
            "measured waits for none",
            "leave out sample_time, sample_bytes and to_device; samples, drop_last and epochs may stay");
  if (steps < 1) problem("", fmt::format("{} steps; at least one", steps), "");
  problems.throw_if_any();
}

int threads_per_rank(const plan::Scenario& scenario, int ranks_on_machine) {
  const plan::ClusterRequest& c = scenario.cluster;
  if (c.threads_per_rank > 0) return static_cast<int>(c.threads_per_rank);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks_on_machine);
}

std::vector<Timeline> make_timelines(const program::Program& program, const plan::RankGrid& grid) {
  std::vector<Timeline> timelines;
  for (const program::Role& role : program.roles) timelines.push_back(make_timeline(role, grid));
  return timelines;
}

void check_run(const plan::Scenario& scenario, const program::Program& program, const Options& options,
               std::span<const int> ranks) {
  check_performable(scenario, options.steps);
  check_checkpoints(scenario, options);
  check_server_placement(scenario, options, nullptr);
  const plan::RankGrid grid = scenario.grid();
  check_program(program, grid);
  const std::vector<Timeline> timelines = make_timelines(program, grid);
  check_memory_reuse(program, grid, timelines, options.maker != nullptr);
  const std::int64_t first = options.checkpoint.any() ? find_beginning(scenario, options).step : 0;
  if (scenario.plan.served()) server_order(scenario, options, first);
  if (options.maker != nullptr)
    options.maker->check(timelines, grid, ranks);
  else
    check_memory(
        scenario, timelines, grid, ranks,
        ranks.size() == static_cast<std::size_t>(grid.ranks()) && scenario.plan.served() ? scenario.plan.servers : 0);
  data_of(scenario, options);
}

namespace {

// What all ranks keep, or all parameter servers, where they do.
std::vector<RankState> all_states(const Run& run) {
  std::vector<RankState> all;
  if (run.scenario.plan.served())
    for (int server = 0; server < static_cast<int>(run.scenario.plan.servers); ++server)
      all.push_back(server_rank_state(run.scenario, run.timeline(0), server));
  else
    for (int rank = 0; rank < run.grid.ranks(); ++rank) all.emplace_back(run.timeline(rank), run.grid, rank);
  return all;
}

// In a process that performs a parameter server; the root has the outcome.
std::optional<Outcome> perform_server(Run& run) {
  ServerProcess server(run);
  run.began = wait_for_others(run, "at the beginning", [&] { return run.world.begin(); });
  server.serve();
  if (run.world.stop().requested()) throw failure_of(run);
  finish_checkpoints(run, {});
  Report report = report_of(run, {});
  report.served = server.records();
  wait_for_others(run, "at the end", [&] { return run.world.gather(pack(report)); });
  return {};
}

}  // namespace

std::optional<Outcome> perform(const plan::Scenario& scenario, const program::Program& program, const Options& options,
                               World& world) try {
  check_performable(scenario, options.steps);
  check_checkpoints(scenario, options);
  const plan::RankGrid grid = scenario.grid();
  check_server_placement(scenario, options, &world);
  check_program(program, grid);
  const std::vector<Timeline> timelines = make_timelines(program, grid);
  const int slots = check_memory_reuse(program, grid, timelines, options.maker != nullptr);
  const std::span<const int> on_this_machine = ranks_of_plan(world.on_this_machine(), grid);
  if (options.maker == nullptr)
    check_memory(scenario, timelines, grid, on_this_machine, servers_on_this_machine(scenario, world, grid));
  const std::unique_ptr<Data> data = data_of(scenario, options);

  const int threads = threads_per_rank(scenario, std::max(1, static_cast<int>(on_this_machine.size())));
  // GPUs compare their ranks' starts afterwards (late_ranks.h), which takes one clock.
  const bool one_machine = on_this_machine.size() == static_cast<std::size_t>(grid.ranks());
  const bool known = options.maker == nullptr ? world.knows_arrivals() : one_machine;
  Run run{scenario, program, grid, options, *data, world, timelines, threads, known, {}, slots};
  std::optional<Checkpoints> checkpoints;
  if (options.checkpoint.any()) {
    checkpoints.emplace(scenario, options, world);
    if (!scenario.plan.served())
      for (const int rank : world.here()) checkpoints->add(rank, RankState(run.timeline(rank), grid, rank));
    if (options.checkpoint.kind == CheckpointKind::full) checkpoints->put_together(all_states(run));
    run.checkpoints = &*checkpoints;
    run.first_step = checkpoints->first_step();
  }
  run.choices = recorded_choices(scenario, run.first_step, options.steps);
  std::optional<StepLimit> limit;
  if (options.enough) {
    check_may_end(scenario, options, world);
    run.limit = &limit.emplace(0, options.steps, program::steps_per_round(program));
  }
  if (serves(scenario, world)) return perform_server(run);
  const std::unique_ptr<ParameterServers> servers = scenario.plan.served() ? make_servers(run) : nullptr;
  run.servers = servers.get();
  const std::vector<int> reporters = loss_reporters(grid, timelines);
  const Ranks ranks = make_ranks(run, reporters);
  wait_for_others(run, "for the ranks to be connected", [&] { initialise(run, ranks); });

  run.began = wait_for_others(run, "at the beginning", [&] { return world.begin(); });
  TrainingLosses losses = run_ranks(run, ranks, reporters);
  if (world.stop().requested()) {
    if (checkpoints && world.root()) checkpoints->look(losses);  // what has come since
    throw failure_of(run);
  }
  if (servers) servers->finish();
  if (world.stop().requested()) throw failure_of(run);
  finish_checkpoints(run, losses);

  const std::vector<std::string> reports =
      wait_for_others(run, "at the end", [&] { return world.gather(pack(report_of(run, ranks))); });
  if (!world.root()) return {};
  if (checkpoints) checkpoints->keep_last();
  return outcome_of(run, reports, std::move(losses));
} catch (const RankFailure&) {
  throw;
} catch (const Interrupted& end) {
  world.failures().fail(world.here().front(), fmt::format("rank {} was {}", world.here().front(), end.what()));
  throw;
} catch (const std::exception& error) {
  world.failures().fail(world.here().front(), fmt::format("rank {} ended: {}", world.here().front(), error.what()));
  throw;
}

Outcome perform(const plan::Scenario& scenario, const program::Program& program, const Options& options) {
  check_performable(scenario, options.steps);
  const auto world = make_local_world(scenario.grid().ranks(), options.timeout);
  return *perform(scenario, program, options, *world);
}

}  // namespace rehearse::execute
