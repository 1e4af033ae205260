// The main flow: a scenario becomes a program, is checked, its cluster and costs loaded (prepared.cpp), its memory
// planned, and is simulated, more than once if samples or what-ifs are asked for (study.cpp); the outcome becomes the
// result that every command prints and writes.
#include "sim/run/run.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "sim/account/balance.h"
#include "sim/account/program_facts.h"
#include "sim/collective/collective.h"
#include "sim/cost/cost.h"
#include "sim/engine/engine.h"
#include "sim/plan/documents.h"
#include "sim/plan/expert_loads.h"
#include "sim/program/kernel_kinds.h"
#include "sim/program/work.h"
#include "sim/run/describe_scenario.h"
#include "sim/run/device_kinds.h"
#include "sim/run/energy.h"
#include "sim/run/first_weights.h"
#include "sim/run/fit.h"
#include "sim/run/jobs.h"
#include "sim/run/parameter_servers.h"
#include "sim/run/prepared.h"
#include "sim/run/step_interval.h"
#include "sim/run/study.h"

namespace rehearse::run {

using program::Program;
using program::Role;

namespace {

// How well the costs of an op are known; the first rank of the role stands for the others.
std::string coverage_of(const Prepared& prepared, const Role& role, const program::Op& op) {
  const Program& program = prepared.program();
  const plan::RankGrid& grid = prepared.grid();
  const auto text = [](auto coverage) {
    constexpr const char* names[] = {"exact", "interpolated", "extrapolated", "spec"};
    return names[static_cast<int>(coverage)];
  };
  const int rank = account::first_rank(grid, role);
  const cost::CostModel& costs = prepared.costs_of_rank(rank);
  const collective::CollectiveModel& collectives = prepared.collectives();
  if (const auto* collective = std::get_if<program::Collective>(&op.shape)) {
    const program::Group& g = program.groups[static_cast<std::size_t>(collective->group)];
    const std::vector<int> members = grid.members(rank, g.axes, g.pipeline_only, g.tensor_block);
    const std::int64_t bytes = program::collective_bytes(op);
    if (collective->parts >= 0 || collective->to.experts > 0) {
      std::vector<Bytes> parts = program::part_bytes(program, collective->parts, bytes, members.size());
      return text(collectives.exchange(members, {std::move(parts), collective->back, collective->to}).coverage);
    }
    return text(collectives.collective(collective->kind, members, Bytes(bytes)).coverage);
  }
  if (const auto* legs = std::get_if<program::PointToPoint>(&op.shape)) {
    const program::Leg& leg = legs->legs.back();
    const int peer = grid.peer(rank, leg.axis, leg.offset);
    return text(collectives.send(rank, peer, Bytes(program::leg_bytes(op, leg))).coverage);
  }
  if (std::holds_alternative<program::HostSync>(op.shape)) return "";
  cost::Interference beside;
  if (costs.device().cpu) beside.busy_cores = grid.ranks();  // the usual company: every rank at its compute stream
  return text(costs.kernel(role, op, beside).coverage);
}

// Of an op of the program.
std::int32_t kernel_kind(const Prepared& prepared, const Role& role, const program::Op& op) {
  const auto number = static_cast<std::size_t>(&role - prepared.program().roles.data());
  for (std::size_t b = 0; b < role.bodies.size(); ++b) {
    const std::vector<program::Op>& ops = role.bodies[b].ops;
    const std::less<const program::Op*> before;
    if (ops.empty() || before(&op, ops.data()) || before(&ops.back(), &op)) continue;
    return prepared.kernels().of(number, static_cast<program::BodyId>(b), static_cast<std::int32_t>(&op - ops.data()));
  }
  return program::KernelKinds::kNone;
}

// Whether the stages are even, by what their kernels take.
std::vector<result::Note> balance_notes_of(const Prepared& prepared, const plan::Scenario& scenario) {
  cost::Interference beside;
  if (prepared.costs().device().cpu) beside.busy_cores = prepared.grid().ranks();
  const std::vector<StageDevices> devices = devices_of_stages(prepared.cluster(), prepared.grid());
  std::map<std::pair<int, std::int32_t>, double> known;  // by kinds of device and kernel
  const auto of_kind = [&](int device, const Role& role, const program::Op& op) {
    const cost::CostModel& costs = prepared.machine().costs_of(device);
    const auto ask = [&] { return costs.kernel(role, op, beside).duration.seconds(); };
    if (!costs.by_kind()) return ask();
    const auto [entry, fresh] = known.try_emplace({device, kernel_kind(prepared, role, op)}, 0.0);
    if (fresh) entry->second = ask();
    return entry->second;
  };
  const auto seconds = [&](const Role& role, const program::Op& op) {
    double longest = 0;  // of the kinds of devices that the stage is on
    for (const int kind : devices[static_cast<std::size_t>(role.pipeline)].kinds)
      longest = std::max(longest, of_kind(kind, role, op));
    return longest;
  };
  return account::balance_notes(scenario, prepared.program(), seconds, "by its kernels");
}

// In a cluster of several kinds of devices: which, MFU over the sum of their peaks, and where they were measured.
void describe_kinds(const Prepared& prepared, result::Result& out) {
  if (const ChosenLayers* chosen = prepared.chosen_layers()) out.notes.push_back({"layers_by_time", chosen->text});
  const Machine& machine = prepared.machine();
  if (machine.kinds() == 1) return;
  out.scenario["cluster.device"] = device_counts(machine);
  std::vector<double> peaks;
  for (int kind = 0; kind < machine.kinds(); ++kind) {
    const cost::Device& device = machine.costs_of(kind).device();
    peaks.push_back(peak_of(device, prepared.scenario().training));
    for (const std::string& place : device.measured_in)
      if (std::find(out.measured_in.begin(), out.measured_in.end(), place) == out.measured_in.end())
        out.measured_in.push_back(place);
  }
  double sum = 0;
  for (int rank = 0; rank < prepared.grid().ranks(); ++rank)
    sum += peaks[static_cast<std::size_t>(prepared.cluster().kind_of(rank))];
  out.peak_flops_per_gpu = sum / prepared.grid().ranks();
  out.flop_formula += "; devices differ: over the sum of their peaks";
}

// How evenly the tokens fall on the experts' ranks, and what is to be said of it.
void add_expert_balance(const plan::Scenario& scenario, result::Result& out) {
  const plan::ExpertLoads loads(scenario);
  const plan::LoadBalance balance = loads.balance();
  const bool told = scenario.model.routing != model::Routing::uniform;
  out.experts = {!loads.even() || (told && balance.dropped > 0), balance.imbalance, balance.mean_imbalance,
                 balance.worst_layer, balance.dropped};
  if (!told || !out.experts.known) return;
  std::string text;
  if (!loads.even())
    text = fmt::format(
        "Loads of experts are uneven: in layer {} one rank's experts get {:.3g} times the rows of the mean rank, "
        "in the mean over layers {:.3g} times, and the others of its expert group wait for it.",
        balance.worst_layer, balance.imbalance, balance.mean_imbalance);
  else
    text = fmt::format("{:.1f}% of the tokens' choices of experts are beyond model.capacity_factor, and dropped.",
                       100 * balance.dropped);
  out.notes.push_back({"uneven_experts", text});
}

// Samples of a machine's scatter that a simulation takes by itself: the median of so many steps is what a measured
// step, a median too, is set against. Among more ranks one sample is enough, since what the slowest of many takes
// varies little.
constexpr int kMachineSamples = 9, kMostRanksSampled = 64;

bool draws_machine(const Prepared& prepared, const plan::Scenario& scenario) {
  return scenario.noise.machine && prepared.costs().device().jitter.any();
}

int samples_of(const Prepared& prepared, const plan::Scenario& scenario, const Options& options) {
  if (options.samples > 0 || !draws_machine(prepared, scenario) || prepared.grid().ranks() > kMostRanksSampled)
    return options.samples;
  return kMachineSamples;
}

// The interval of a machine whose scatter was measured: the costs' own, that of the samples, and how much steps differ
// by what all ranks share and by the machine's pace, as independent of one another; of the latter two 90% of a normal
// distribution.
void widen(const cost::Device& device, result::Result& out) {
  constexpr double kNinety = 1.645;
  const double step = Time::from_ps(out.step_time_ps).seconds();
  if (step <= 0) return;
  const double common = kNinety * std::hypot(device.jitter.step, device.pace.spread);
  const auto sampled = [&](std::int64_t ps) {
    return out.samples.count > 0 && ps > 0 ? std::log(Time::from_ps(ps).seconds() / step) : 0.0;
  };
  const double low = std::hypot(std::log(out.interval_low_s / step), sampled(out.samples.step_ps.p5), common);
  const double high = std::hypot(std::log(out.interval_high_s / step), sampled(out.samples.step_ps.p95), common);
  out.interval_low_s = step * std::exp(-low);
  out.interval_high_s = step * std::exp(high);
}

// A simulated run ends with a round's last step.
void add_local_steps(const engine::Outcome& outcome, const plan::Plan& plan, result::Result& out) {
  if (!plan.steps_apart()) return;
  const std::int64_t steps = plan.local_steps;
  const std::size_t last = outcome.step_ends.size() - 1;
  const Time outer = last > 0 ? outcome.step_ends[last] - outcome.step_ends[last - 1] : outcome.step_ends[last];
  out.local_steps = result::local_steps(steps, plan.workers(), outcome.round.ps(), outer.ps());
  out.local_steps.outer = plan.outer_optimizer == plan::OuterOptimizer::average ? "average" : "nesterov";
}

void add_outcome(const engine::Outcome& outcome, const plan::Scenario& scenario, const Options& options,
                 result::Result& out) {
  out.step_time_ps = outcome.step_time.ps();
  out.breakdown_ps = outcome.breakdown_ps;
  add_local_steps(outcome, scenario.plan, out);
  const double step = outcome.step_time.seconds();
  if (step > 0) {
    const auto& t = scenario.training;
    const auto per_sample = scenario.model.reads_text() ? t.seq_len : 1;
    out.tokens_per_s = static_cast<double>(t.global_batch) * static_cast<double>(per_sample) / step;
    out.tokens_per_s_per_gpu = out.tokens_per_s / static_cast<double>(out.ranks);
  }
  double busy = 0;
  for (const double s : outcome.coverage_busy_s) busy += s;
  for (std::size_t i = 0; i < out.coverage.size() && busy > 0; ++i) out.coverage[i] = outcome.coverage_busy_s[i] / busy;
  const double total = outcome.busy_s > 0 ? outcome.busy_s : 1;
  // Of the kernels, and of what the framework does around them, which our own Performer's kernels are all of.
  const plan::FrameworkProfile& profile = scenario.framework;
  const StepInterval learned =
      profile.measured_host ? StepInterval{} : step_interval(profile.name, options.left_out, options.data_root);
  if (outcome.busy_s > 0) out.kernels_low = outcome.busy_low_s / total, out.kernels_high = outcome.busy_high_s / total;
  const StepInterval around = with_kernels(learned, out.kernels_low, out.kernels_high);
  out.interval_low_s = step * around.low;
  // What loading takes is the scenario's word: faster kernels would wait for it all the same.
  if (out.input.known)
    out.interval_low_s = std::max(out.interval_low_s, std::min(step, Time::from_ps(out.input.step_ps).seconds()));
  out.interval_high_s = step * around.high;
  out.ops = outcome.ops;
  out.events = outcome.events;
  out.ranks_simulated = outcome.ranks_simulated;
  out.records = outcome.records;
  out.links = outcome.links;
  out.collectives = outcome.collectives;
}

// Of one sample of a plan with parameter servers: the workers, then what goes round between them and the servers.
void simulate_served(const Prepared& prepared, const plan::Scenario& scenario, const Options& options,
                     engine::Options engine_options, result::Result& out) {
  const std::int64_t sample = engine_options.sample;
  const int iterations = served_iterations(options);
  const engine::Outcome workers = simulate_workers(prepared, std::move(engine_options), iterations);
  add_outcome(workers, scenario, options, out);
  engine::ServedRun run = run_servers(prepared, workers, iterations, sample);
  add_servers(prepared, workers, run, out);
  if (options.record) add_iteration_ends(run, out);
  if (options.server_events != nullptr) *options.server_events = std::move(run.events);
}

// A step is the mean time of as many updates as make a global batch, and a sample's is a draw of all that is drawn.
void simulate_all_served(const Prepared& prepared, const plan::Scenario& scenario, const Options& options,
                         engine::Options engine_options, result::Result& out) {
  if (options.what_if)
    throw InputError(Diagnostic{"", 0, 0, "plan.servers",
                                "what-ifs change the links of the engine, and pulls and pushes have a network of their "
                                "own: they are not simulated yet",
                                "leave --what-if out; --set cluster.overrides changes a link"});
  const auto samples = static_cast<std::size_t>(options.samples);
  SharedProgress progress(options.progress, samples + 1);
  if (options.phase) options.phase("simulating");
  if (samples > 0) {
    const result::Result described = out;
    Options of_one = options;  // samples are drawn by several threads: none of them writes what is reported
    of_one.server_events = nullptr;
    of_one.record = false;
    out.samples = sample(prepared, options.samples, {options.threads, options.processes}, progress,
                         [&](const engine::Options& drawn) {
                           result::Result one = described;
                           simulate_served(prepared, scenario, of_one, drawn, one);
                           return SampledStep{one.step_time_ps, one.breakdown_ps};
                         });
    engine_options.sample = out.samples.reported;
  }
  engine_options.progress = progress.one();
  simulate_served(prepared, scenario, options, std::move(engine_options), out);
}

// The simulation reported (of samples, that of the median step), and what else is asked.
void simulate_all(const Prepared& prepared, const plan::Scenario& scenario, const Options& options,
                  engine::Options engine_options, result::Result& out) {
  if (scenario.plan.served()) return simulate_all_served(prepared, scenario, options, std::move(engine_options), out);
  constexpr std::size_t kUsualCauses = 2;
  const int samples = samples_of(prepared, scenario, options);
  const bool noisy = scenario.noise.any() || draws_machine(prepared, scenario);
  SharedProgress progress(options.progress, static_cast<std::size_t>(samples) + 1 + (noisy ? kUsualCauses : 0) +
                                                (options.what_if ? 2 * kLevers : 0) +
                                                (scenario.jobs.empty() ? 0 : scenario.jobs.size() + 1));
  const Workers workers{options.threads, options.processes};
  if (samples > 0) {
    if (options.phase) options.phase("simulating");
    out.samples = sample(prepared, samples, workers, progress);
    engine_options.sample = out.samples.reported;
  }
  if (options.phase) options.phase("simulating");
  engine_options.progress = progress.one();
  engine_options.rank_steps = options.record;
  const engine::Outcome outcome = prepared.simulate(engine_options);
  engine_options.rank_steps = false;
  for (const std::vector<Time>& ends : outcome.rank_step_ends) {
    out.step_ends_ps.emplace_back().reserve(ends.size());
    for (const Time end : ends) out.step_ends_ps.back().push_back(end.ps());
  }
  add_outcome(outcome, scenario, options, out);
  out.energy = energy_of(prepared, outcome);
  if (draws_machine(prepared, scenario)) widen(prepared.costs().device(), out);
  if (noisy) out.noise = noise_cost(prepared, engine_options, outcome, workers, progress);
  if (options.what_if) out.what_if = what_if(prepared, engine_options, outcome, workers, progress);
  out.jobs = compare_jobs(prepared, scenario, engine_options, outcome, options.threads, progress);
}

}  // namespace

result::Result simulate_scenario(const plan::Scenario& given, const Options& options) {
  const auto began = std::chrono::steady_clock::now();
  const Prepared prepared(given, options);
  const plan::Scenario& scenario = prepared.scenario();
  const Program& program = prepared.program();
  const plan::RankGrid& grid = prepared.grid();

  result::Result out;
  describe_scenario(scenario, prepared.cluster(), prepared.costs().device(), out);
  out.ranks = grid.ranks();
  out.steps = prepared.steps();
  out.measured_in = prepared.costs().device().measured_in;
  out.pace = prepared.costs().device().pace;
  if (options.phase) options.phase("planning the memory of");
  out.stages = stages_of(prepared.machine(), scenario, program, prepared.arenas());
  const Room room = least_room(prepared.machine(), scenario, out.stages);
  out.memory_capacity = room.capacity, out.memory_headroom = room.headroom;
  std::tie(out.host_bytes, out.host_capacity) = fullest_host(prepared.cluster(), grid, out.stages);
  out.memory_fits = room.fits() && out.host_fits();
  const std::int64_t document = plan::equal_document_length(scenario.training);
  out.model_flops = model::model_flops(scenario.model, scenario.training.global_batch, scenario.training.seq_len,
                                       scenario.training.adapters(), document);
  out.hardware_flops = account::hardware_flops(program, grid);
  out.flop_formula =
      model::flop_formula(scenario.model, scenario.training.seq_len, scenario.training.adapters(), document);
  describe_kinds(prepared, out);
  if (prepared.chosen_layers() == nullptr)
    for (result::Note& note : balance_notes_of(prepared, scenario)) out.notes.push_back(std::move(note));
  add_expert_balance(scenario, out);
  out.input = prepared.input().facts;

  engine::Options engine_options = prepared.engine_options();
  if (options.record) {
    for (const program::RoleId shown : account::shown_roles(program)) {
      const Role& role = program.roles[static_cast<std::size_t>(shown)];
      const int rank = account::first_rank(grid, role);
      engine_options.recorded_ranks.push_back(rank);
      out.role_of_rank[rank] = role.pipeline;
    }
    account::name_ops(
        program, grid, [&](const Role& role, const program::Op& op) { return coverage_of(prepared, role, op); }, out);
  }
  simulate_all(prepared, scenario, options, std::move(engine_options), out);
  out.first_weights = first_weights_of(prepared);
  for (result::CollectiveUse& use : out.collectives)
    if (use.nodes > 1 && !prepared.costs().device().cpu)
      use.path = prepared.cluster().gpudirect() ? "gpudirect" : "host_memory";

  out.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  out.peak_rss_bytes = usage.ru_maxrss * 1024;
  return out;
}

}  // namespace rehearse::run
