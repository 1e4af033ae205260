// The flow of a run; see performer.h. Ranks run freely, steps are never synchronised: a fast rank may be a step ahead,
// held back only by what it must receive.
#include "execute/performer.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>

#include "execute/local/local_communicator.h"
#include "execute/measure.h"
#include "execute/rank.h"
#include "execute/run_state.h"
#include "execute/timeline.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/program/static_check.h"

namespace rehearse::execute {
namespace {

std::vector<Timeline> make_timelines(const program::Program& program, const plan::RankGrid& grid) {
  std::vector<Timeline> timelines;
  for (const program::Role& role : program.roles) {
    for (const program::Buffer& b : role.buffers)
      REHEARSE_CHECK(b.dtype != program::DType::bf16 && b.dtype != program::DType::f16, "{}: '{}' is not fp32",
                     role.name, b.name);
    timelines.push_back(make_timeline(role, grid));
  }
  return timelines;
}

std::int64_t machine_memory() {
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

void check_memory(const std::vector<Timeline>& timelines, int ranks) {
  std::int64_t needed = 0;
  for (const Timeline& t : timelines) needed += t.memory.arena_bytes * (ranks / static_cast<int>(timelines.size()));
  if (needed > machine_memory())
    throw DoesNotFit(fmt::format("does not fit in memory: {} ranks need {} of this machine's {}", ranks,
                                 format_bytes(Bytes(needed)), format_bytes(Bytes(machine_memory()))));
}

// Ranks that report the loss: of the last stage, one a data-parallel replica.
std::vector<int> loss_reporters(const plan::RankGrid& grid) {
  std::vector<int> ranks;
  for (int r = 0; r < grid.ranks(); ++r)
    if (grid.coordinate(r, Axis::pipeline) == grid.size(Axis::pipeline) - 1 && grid.coordinate(r, Axis::tensor) == 0)
      ranks.push_back(r);
  return ranks;
}

using Ranks = std::vector<std::unique_ptr<Rank>>;

void initialise(const Ranks& ranks) {
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&rank] { rank->initialise(); });
  for (auto& thread : threads) thread.join();
}

// Ends every rank's threads when it goes, whatever the way out.
class Running {
 public:
  Running(const Ranks& ranks, Stop& stop) : ranks_(ranks), stop_(stop) {
    for (const auto& rank : ranks_) rank->start();
  }
  ~Running() {
    if (finished_) return;
    stop_.request();
    finish();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  void finish() {
    for (const auto& rank : ranks_) rank->join();
    finished_ = true;
  }

 private:
  const Ranks& ranks_;
  Stop& stop_;
  bool finished_ = false;
};

// Follows the steps as they end; returns early if the run is stopped.
void follow(Run& run, std::vector<double>& losses) {
  for (int step = 0; step < run.options.steps; ++step) {
    std::optional<double> loss;
    while (!(loss = run.losses.wait(step))) {
      if (run.stop.requested()) return;
      if (run.options.poll) run.options.poll();
    }
    losses.push_back(*loss);
    if (run.options.on_step) run.options.on_step(step, *loss);
  }
}

std::string failure_text(const Failures& failures) {
  std::string text = failures.cause();
  constexpr std::size_t kShown = 8;
  const auto& waiting = failures.waiting();
  for (std::size_t i = 0; i < std::min(kShown, waiting.size()); ++i) text += "\n  " + waiting[i];
  if (waiting.size() > kShown) text += fmt::format("\n  and {} more waits", waiting.size() - kShown);
  return text;
}

result::Result measured(const Run& run, const Ranks& ranks, std::vector<double> losses) {
  result::Result r;
  r.source = "measured";
  r.scenario_name = run.scenario.name;
  r.scenario_file = run.scenario.file;
  r.ranks = run.grid.ranks();
  r.steps = run.options.steps;
  r.loss = std::move(losses);
  r.memory_capacity = machine_memory() / r.ranks;
  StepShares shares;
  for (const auto& rank : ranks) shares.push_back(rank->shares());
  add_times(shares, run.scenario, r);
  add_program(run.program, run.scenario, run.grid, run.options.record, r);
  if (run.options.record) {
    for (const int rank : run.grid.members(0, {Axis::pipeline})) {
      r.role_of_rank[rank] = run.grid.coordinate(rank, Axis::pipeline);
      const auto records = ranks[static_cast<std::size_t>(rank)]->records();
      r.records.insert(r.records.end(), records.begin(), records.end());
    }
    if (!r.records.empty()) {
      std::int64_t first = r.records.front().start_ps;
      for (const auto& record : r.records) first = std::min(first, record.start_ps);
      for (auto& record : r.records) record.start_ps -= first;
    }
  }
  r.wall_s = std::chrono::duration<double>(Clock::now() - run.began).count();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  r.peak_rss_bytes = usage.ru_maxrss * 1024;
  return r;
}

// What must hold of every program (program/static_check.h); a broken rule would be a hang or a wrong number here.
void check_program(const program::Program& program, const plan::RankGrid& grid) {
  program::GridView view;
  view.ranks = grid.ranks();
  view.role = [&](int rank) { return static_cast<program::RoleId>(grid.coordinate(rank, Axis::pipeline)); };
  view.members = [&](int rank, const program::Group& g) { return grid.members(rank, g.axes, g.pipeline_only); };
  view.peer = [&](int rank, Axis axis, int offset) { return grid.peer(rank, axis, offset); };
  std::vector<program::Violation> found = program::check_ranks(program, view);
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    const auto more = program::check_role(program, static_cast<program::RoleId>(r));
    found.insert(found.end(), more.begin(), more.end());
  }
  if (!found.empty())
    throw InternalError(fmt::format("the program breaks {} rule(s); first: {}: {}", found.size(), found.front().rule,
                                    found.front().message));
}

}  // namespace

void check_performable(const plan::Scenario& scenario, int steps) {
  Diagnostics problems;
  const auto problem = [&](const std::string& path, const std::string& message, const std::string& hint) {
    problems.add({"", 0, 0, path, message, hint});
  };
  using plan::Precision;
  const plan::Training& t = scenario.training;
  const std::int64_t ranks = scenario.cluster.gpus;
  if (t.precision != Precision::fp32 || t.grad_dtype != Precision::fp32 || t.reduce_dtype != Precision::fp32)
    problem("training.precision", "plans are performed in fp32 only",
            "set training.precision=fp32, and grad_dtype and reduce_dtype to fp32 if given");
  if (ranks > kMaxRanks)
    problem("cluster.gpus",
            fmt::format("{} ranks as threads of this machine; at most {} are performed", ranks, kMaxRanks),
            "rehearse simulate takes any number");
  if (steps < 1) problem("", fmt::format("{} steps; at least one", steps), "");
  problems.throw_if_any();
}

int threads_per_rank(const plan::Scenario& scenario) {
  const plan::ClusterRequest& c = scenario.cluster;
  if (c.threads_per_rank > 0) return static_cast<int>(c.threads_per_rank);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / static_cast<int>(c.gpus));
}

Outcome perform(const plan::Scenario& scenario, const program::Program& program, const Options& options) {
  check_performable(scenario, options.steps);
  const plan::RankGrid grid = scenario.grid();
  check_program(program, grid);
  const std::vector<Timeline> timelines = make_timelines(program, grid);
  check_memory(timelines, grid.ranks());
  const std::unique_ptr<Data> data =
      open_data(scenario.model, scenario.training.seq_len, scenario.training.seed, options.data);

  Stop stop;
  Failures failures;
  const std::vector<int> reporters = loss_reporters(grid);
  Losses losses(static_cast<int>(reporters.size()), options.steps);
  Run run{scenario, program, grid, options, *data, stop, losses, failures, threads_per_rank(scenario), {}, {}};
  const auto communicators = make_local_communicators(grid.ranks(), options.timeout, stop);
  Ranks ranks;
  for (int r = 0; r < grid.ranks(); ++r) {
    const auto reporter = std::find(reporters.begin(), reporters.end(), r);
    ranks.push_back(
        std::make_unique<Rank>(run, r, timelines[static_cast<std::size_t>(grid.coordinate(r, Axis::pipeline))],
                               *communicators[static_cast<std::size_t>(r)],
                               reporter == reporters.end() ? -1 : static_cast<int>(reporter - reporters.begin())));
  }
  run.whereabouts = [&](int rank) { return ranks[static_cast<std::size_t>(rank)]->whereabouts(); };
  initialise(ranks);

  Outcome outcome;
  std::vector<double> curve;
  run.began = Clock::now();
  {
    Running running(ranks, stop);
    follow(run, curve);
    running.finish();
  }
  if (!failures.cause().empty()) throw RankFailure(failure_text(failures));

  outcome.result = measured(run, ranks, std::move(curve));
  outcome.data = data->description();
  if (options.keep_parameters)
    for (int r = 0; r < grid.ranks(); ++r)
      collect(ranks[static_cast<std::size_t>(r)]->timeline(), grid, r, ranks[static_cast<std::size_t>(r)]->arena(),
              outcome.parameters);
  return outcome;
}

}  // namespace rehearse::execute
