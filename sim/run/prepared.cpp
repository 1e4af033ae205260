// See prepared.h.
#include "sim/run/prepared.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "sim/account/grid_view.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/in_parallel.h"
#include "sim/base/random.h"
#include "sim/cluster/scaled.h"
#include "sim/cluster/topology.h"
#include "sim/collective/scaled_model.h"
#include "sim/collective/steps.h"
#include "sim/cost/calibration_file.h"
#include "sim/cost/device_file.h"
#include "sim/lower/lower.h"
#include "sim/plan/keys.h"
#include "sim/program/static_check.h"
#include "sim/run/describe_scenario.h"

namespace rehearse::run {

using program::Program;
using program::RoleId;

namespace {

std::vector<program::Violation> check(const Program& program, const plan::RankGrid& grid, bool execute, int threads) {
  const std::size_t roles = program.roles.size();
  std::vector<std::vector<program::Violation>> found(roles + 1);
  in_parallel(threads, found.size(), [&](std::size_t r) {
    found[r] = r < roles ? program::check_role(program, static_cast<RoleId>(r))
                         : program::check_ranks(program, account::grid_view(program, grid), execute);
  });
  std::vector<program::Violation> all;
  for (const auto& one : found) all.insert(all.end(), one.begin(), one.end());
  return all;
}

// Of a mixed cluster: each kind's device file, and the measurements named that are of it.
std::vector<std::vector<std::string>> files_of_kinds(const plan::Scenario& scenario,
                                                     const std::vector<std::string>& devices, const Options& options) {
  std::vector<std::vector<std::string>> files;
  for (const std::string& device : devices) files.push_back({cost::find_device_file(device, options.data_root)});
  for (const auto* list : {&scenario.calibrations, &options.calibrations})
    for (const std::string& name : *list) {
      const std::string file = cost::find_device_file(name, options.data_root);
      const std::string of = cost::is_calibration_path(file) ? "" : cost::measurements_for(file);
      const auto kind = std::find_if(files.begin(), files.end(), [&](const std::vector<std::string>& own) {
        return own.front() == file || (!of.empty() && own.front() == cost::find_device_file(of, options.data_root));
      });
      if (kind == files.end())
        throw InputError(Diagnostic{"", 0, 0, "costs.calibration",
                                    fmt::format("{} is {}; the cluster has {} kinds of devices: {}", name,
                                                of.empty() ? "no file of measurements" : "of measurements of " + of,
                                                devices.size(), fmt::join(devices, ", ")),
                                    "in a mixed cluster calibrations add measurements to one of its devices; an entry "
                                    "of cluster.nodes may name "
                                    "its device"});
      if (kind->front() != file) kind->push_back(file);
    }
  return files;
}

std::string device_file(const plan::Scenario& scenario, const cluster::Cluster& cluster, const Options& options) {
  const std::string& name = scenario.calibrations.empty() && !options.calibrations.empty()
                                ? options.calibrations.front()
                            : scenario.calibrations.empty() ? cluster.device_name()
                                                            : scenario.calibrations.front();
  const std::string file = cost::find_device_file(name, options.data_root);
  // A file that only adds measurements says to which device.
  const std::string device = cost::measurements_for(file);
  return device.empty() ? file : cost::find_device_file(device, options.data_root);
}

// Of each kind of device: its file first, then every other that adds to it.
std::vector<std::vector<std::string>> cost_files(const plan::Scenario& scenario, const cluster::Cluster& cluster,
                                                 const Options& options) {
  if (const auto kinds = cluster.device_names(); kinds.size() > 1) return files_of_kinds(scenario, kinds, options);
  std::vector<std::string> files{device_file(scenario, cluster, options)};
  for (const auto* list : {&scenario.calibrations, &options.calibrations})
    for (const std::string& name : *list) {
      const std::string file = cost::find_device_file(name, options.data_root);
      if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
    }
  return {files};
}

Time launch_cost(const plan::Scenario& scenario, const cost::Device& device) {
  const bool measured = device.launch > Time() && scenario.framework.measured_host;
  if (measured) return device.launch;
  const Time cost = scenario.framework.launch_cost;
  return device.host_launch == 1 ? cost : Time::from_seconds(cost.seconds() * device.host_launch);
}

// A calibration of one GPU measured no collectives.
std::string collectives_file(const std::string& device, const std::string& name, const Options& options) {
  if (name == "local" || !collective::takes_collectives_of_topology(device)) return device;
  return cost::find_device_file(name, options.data_root);
}

// What adds to the first.
std::vector<std::string> measurements_in(const std::vector<std::string>& files) {
  return {files.begin() + 1, files.end()};
}

// Cores of a host that leaves their number open: those of the calibration named, 0 (this machine's) if none is.
int open_cores(const plan::Scenario& scenario, const Options& options) {
  for (const auto* list : {&scenario.calibrations, &options.calibrations}) {
    if (list->empty()) continue;
    const std::string file = cost::find_device_file(list->front(), options.data_root);
    return cost::is_calibration_path(file) ? cost::read_calibration(file).host.cores : 0;
  }
  return 0;
}

collective::Pins pins_of(const plan::Scenario& scenario) {
  collective::Pins pins;
  for (const plan::PinnedCollective& p : scenario.cluster.collectives)
    pins.push_back(
        collective::pin_of(p.kind, p.algorithm, p.protocol, fmt::format("cluster.collectives[{}]", pins.size())));
  return pins;
}

// Transfers as they were measured of each kind of device (files).
std::unique_ptr<collective::CollectiveModel> measured_transfers(const cluster::Cluster& cluster,
                                                                const std::vector<std::vector<std::string>>& files,
                                                                const plan::Scenario& scenario,
                                                                const Options& options) {
  const std::vector<std::string> names = cluster.device_names();
  if (names.size() == 1)
    return collective::make_model(cluster, collectives_file(files.front().front(), names.front(), options),
                                  pins_of(scenario), measurements_in(files.front()));
  std::vector<collective::KindFiles> kinds;
  for (std::size_t k = 0; k < names.size(); ++k)
    kinds.push_back({collectives_file(files[k].front(), names[k], options), measurements_in(files[k])});
  return collective::make_mixed_model(cluster, kinds, pins_of(scenario));
}

// Ranks of one node copy to its host, and step there, at the same time. Of the nodes of a kind of device.
cost::HostShare share_of(const plan::RankGrid& grid, const cluster::Cluster& cluster, int kind) {
  cost::HostShare share{std::min(grid.ranks(), cluster.devices_per_node()),
                        std::max(1, cluster.host_sharing().threads_per_rank)};
  std::size_t most = 1;
  int first = -1;
  for (int node = 0; node < cluster.nodes(); ++node) {
    const std::vector<int> devices = cluster.devices_of(node);
    if (cluster.kind_of(devices.front()) != kind) continue;
    if (first < 0) first = node;
    most = std::max(most, devices.size());
  }
  if (const cluster::NodeView view = cluster.node_view(std::max(first, 0)); view.host.bandwidth > Bandwidth()) {
    share.host_memory = Bandwidth(view.host.bandwidth.per_s() / static_cast<std::int64_t>(most));
    share.to_host = view.to_host;
  }
  return share;
}

std::unique_ptr<cost::CostModel> launched(std::unique_ptr<cost::CostModel> costs, const plan::Scenario& scenario) {
  const Time gap = scenario.framework.blocking_gap;
  return gap > Time() && !costs->device().cpu ? cost::with_blocking_launches(std::move(costs), gap) : std::move(costs);
}

// Of all kinds but the first.
std::vector<std::unique_ptr<cost::CostModel>> costs_of_others(const std::vector<std::vector<std::string>>& files,
                                                              const plan::Scenario& scenario,
                                                              const cluster::Cluster& cluster,
                                                              const cost::Scale& scale = {}) {
  std::vector<std::unique_ptr<cost::CostModel>> others;
  for (std::size_t k = 1; k < files.size(); ++k)
    others.push_back(
        launched(cost::load_costs(files[k], share_of(scenario.grid(), cluster, static_cast<int>(k)), scale), scenario));
  return others;
}

// What a calibration says of one machine as a whole does not part into kinds.
void check_kinds(const Machine& machine) {
  for (int kind = 0; machine.kinds() > 1 && kind < machine.kinds(); ++kind) {
    const cost::Device& device = machine.costs_of(kind).device();
    if (device.cpu || device.jitter.any())
      throw InputError(Diagnostic{
          "", 0, 0, "cluster.nodes",
          fmt::format(
              "{} was calibrated on one machine, with its scatter; a cluster of {} kinds of devices has files of "
              "calibrate/devices",
              device.name, machine.kinds()),
          "rehearse list devices"});
  }
}

// Products in the scenario's precision are costed on every kind of device. 8-bit and 4-bit ones are in bf16 too.
void check_precision(const Machine& machine, const plan::Scenario& scenario) {
  const plan::Training& t = scenario.training;
  for (int kind = 0; kind < machine.kinds(); ++kind) {
    const cost::Device& device = machine.costs_of(kind).device();
    if (peak_of(device, t) > 0) continue;
    std::vector<std::string> rates;
    for (const auto& [name, rate] : {std::pair{"fp32", device.peak_fp32},
                                     {"bf16", device.peak_bf16},
                                     {"fp16", device.peak_fp16},
                                     {"fp8", device.peak_fp8},
                                     {"nvfp4", device.peak_fp4}})
      if (rate.per_s() > 0) rates.emplace_back(name);
    const std::string precision = plan::value_text(*plan::find_key("training.precision"), scenario).value_or("");
    throw InputError(Diagnostic{scenario.file, 0, 0, "training.precision",
                                fmt::format("{}: device {} has no products of this type", precision, device.name),
                                fmt::format("{}", fmt::join(rates, ", "))});
  }
}

Program lower_told(const plan::Scenario& scenario, const Options& options) {
  if (options.phase) options.phase("lowering");
  return lower::lower(scenario);
}

// One link's name of each kind.
std::string example_links(const cluster::Cluster& cluster) {
  std::set<cluster::ResourceKind> kinds;
  std::string names;
  for (const cluster::Resource& r : cluster.resources())
    if (kinds.insert(r.kind).second) names += (names.empty() ? "" : ", ") + r.name;
  return names;
}

void throw_if_any(const std::vector<program::Violation>& violations) {
  if (!violations.empty())
    throw InternalError(fmt::format("the lowered program breaks {} rule(s); first: {}: {}", violations.size(),
                                    violations.front().rule, violations.front().message));
}

}  // namespace

Collectives::Collectives(std::unique_ptr<collective::CollectiveModel> measured, const cluster::Cluster& cluster,
                         Fidelity fidelity)
    : measured_(std::move(measured)) {
  if (fidelity == Fidelity::analytic) other_ = collective::make_analytic_model(*measured_);
  if (fidelity == Fidelity::step) other_ = collective::make_stepped_model(*measured_, cluster);
}

Machine::Machine(const plan::Scenario& scenario, const Options& options, const plan::Scenario& owner, int job)
    : cluster(cluster::build_cluster(owner.cluster.topology,
                                     static_cast<int>(owner.cluster.gpus + owner.plan.own_servers()),
                                     owner.cluster.overrides, static_cast<int>(owner.cluster.threads_per_rank),
                                     options.data_root, open_cores(owner, options), job)),
      files(cost_files(scenario, *cluster, options)),
      costs(launched(cost::load_costs(files.front(), share_of(scenario.grid(), *cluster, 0)), scenario)),
      others(costs_of_others(files, scenario, *cluster)),
      collectives(measured_transfers(*cluster, files, scenario, options), *cluster, options.fidelity) {
  check_kinds(*this);
  check_precision(*this, scenario);
}

Prepared::Prepared(const plan::Scenario& scenario, const Options& options, std::optional<program::Program> lowered)
    : Prepared(scenario, options, scenario, 0, std::move(lowered)) {
  check_noise();
  prepare_jobs();
}

Prepared::Prepared(const plan::Scenario& scenario, const Options& options, const plan::Scenario& owner, int job,
                   std::optional<program::Program> lowered)
    : scenario_(scenario),
      options_(options),
      owner_(owner),
      job_(job),
      grid_(scenario.grid()),
      machine_(options.machine && job == 0 ? options.machine
                                           : std::make_shared<Machine>(scenario, options, owner, job)),
      chosen_(choose_layers(scenario, *machine_)),
      kinds_(device_kinds(*machine_->costs, machine_->others)),
      program_(lowered ? std::move(*lowered) : lower_told(this->scenario(), options)),
      kernels_(program_),
      input_(input_pipeline(scenario, cluster())),
      attention_loads_(document_loads(scenario, simulated_steps(scenario, options.steps))) {
  check_input();
  if (options.phase) options.phase("checking");
  const bool buffered = collectives().buffered_messages();
  const bool arena = in_arena() || (costs().device().cpu && buffered);
  if (options.check) throw_if_any(check(program_, grid_, !arena, options.threads));
  if (arena) lay_out_arenas(buffered);
  layout_ = engine::lay_out_program(program_, grid_, arenas(), kernels_);
}

void Prepared::lay_out_arenas(bool buffered) {
  const program::GridView view = account::grid_view(program_, grid_);
  arenas_ = program::lay_out_arenas(program_, view, !buffered, options_.threads);
  const bool gets_through = arenas_->drains && arenas_->send_slots == 0;
  if (options_.check && !gets_through) throw_if_any(program::check_ranks(program_, view));
  if (!arenas_->drains)
    throw_if_any(program::check_memory_reuse(program_, view, arenas_->by_role(), arenas_->send_slots));
}

void Prepared::check_noise() const {
  Diagnostics problems;
  const bool one_host = cluster().host_sharing().cores > 0 && !cluster().explicit_links();
  for (std::size_t i = 0; i < scenario_.noise.links.size(); ++i) {
    const std::string& pattern = scenario_.noise.links[i].resources;
    const std::string path = fmt::format("noise.links[{}].resources", i);
    const auto& links = cluster().resources();
    if (one_host)
      problems.add({"", 0, 0, path, "the ranks are on one host: what they send one another crosses no link", ""});
    else if (std::none_of(links.begin(), links.end(), [&](const auto& r) { return engine::matches(pattern, r.name); }))
      problems.add({"", 0, 0, path, fmt::format("no link of {} is called '{}'", cluster().name(), pattern),
                    fmt::format("links are called: {}", example_links(cluster()))});
  }
  problems.throw_if_any();
}

void Prepared::check_input() const {
  if (input_.loaders.empty() || !costs().device().cpu) return;
  throw InputError(Diagnostic{
      "", 0, 0, "data", "what loading takes is simulated for GPUs: on a CPU workers and ranks would share its cores",
      "leave out sample_time, sample_bytes and to_device, or name a cluster of GPUs"});
}

void Prepared::prepare_jobs() {
  if (scenario_.jobs.empty()) return;
  if (options_.steps < 2)
    throw InputError(Diagnostic{"", 0, 0, "cluster.jobs", "with jobs alongside it at least 2 steps are simulated",
                                "--steps 2: a job's first step begins with nothing in flight"});
  const auto apart = [](const plan::Scenario& s) { return s.plan.local_steps > 1; };
  if (apart(scenario_) ||
      std::any_of(scenario_.jobs.begin(), scenario_.jobs.end(), [&](const auto& job) { return apart(job.scenario); }))
    throw InputError(Diagnostic{"", 0, 0, "cluster.jobs",
                                "of several jobs on a cluster steps are compared, which with plan.local_steps differ",
                                "plan.local_steps: 0, or no jobs"});
  for (std::size_t j = 0; j < scenario_.jobs.size(); ++j) {
    const plan::Scenario& other = scenario_.jobs[j].scenario;
    try {
      beside_.push_back(std::unique_ptr<Prepared>(new Prepared(other, options_, scenario_, static_cast<int>(j) + 1)));
    } catch (const InputError& error) {
      throw plan::located(error, other);
    }
    REHEARSE_CHECK(beside_.back()->cluster().resources().size() == cluster().resources().size(),
                   "job {} is on another cluster", j + 1);
  }
}

Time Prepared::launch_cost() const {
  return costs().device().cpu ? Time() : run::launch_cost(scenario_, costs().device());
}

std::optional<engine::DeviceKinds> Prepared::device_kinds(const cost::CostModel& first,
                                                          const std::vector<std::unique_ptr<cost::CostModel>>& others,
                                                          double launch) const {
  if (others.empty()) return std::nullopt;
  engine::DeviceKinds kinds;
  const auto add = [&](const cost::CostModel& model) {
    kinds.costs.push_back(&model);
    const Time cost = run::launch_cost(scenario_, model.device());
    kinds.launch_cost.push_back(launch == 1 ? cost : Time::from_seconds(cost.seconds() * launch));
  };
  add(first);
  for (const auto& model : others) add(*model);
  for (int rank = 0; rank < grid_.ranks(); ++rank) kinds.of_rank.push_back(cluster().kind_of(rank));
  return kinds;
}

bool Prepared::in_arena() const {
  return scenario_.framework.allocator == plan::Allocator::arena;
}

int Prepared::simulated_steps(const plan::Scenario& scenario, int steps) {
  const auto round = static_cast<int>(scenario.plan.local_steps);
  return round > 1 ? std::max(1, (steps + round - 2) / round) * round + 1 : steps;
}

engine::Options Prepared::engine_options() const {
  engine::Options options;
  options.steps = steps();
  options.launch_cost = launch_cost();
  options.arena = in_arena();
  options.arenas = arenas();
  options.loaders = loaders();
  options.attention_loads = attention_loads_ ? &*attention_loads_ : nullptr;
  options.noise = scenario_.noise;
  options.fold = options_.fold;
  options.kinds = kinds_ ? &*kinds_ : nullptr;
  options.layout = layout_.get();
  return options;
}

engine::Job Prepared::as_job(int steps, const Changed* changed) const {
  engine::Job job{
      .program = program_,
      .grid = grid_,
      .collectives = changed != nullptr ? changed->collectives.model() : collectives(),
      .costs = changed != nullptr ? *changed->costs : costs(),
      .launch_cost = launch_cost(),
      .arena = in_arena(),
      .noise = scenario_.noise,
      .repeats = steps,
      .arenas = arenas(),
      .loaders = loaders(),
      .attention_loads = attention_loads_ ? &*attention_loads_ : nullptr,
      .kinds = changed != nullptr ? (changed->kinds ? &*changed->kinds : nullptr) : (kinds_ ? &*kinds_ : nullptr),
      .layout = layout_.get()};
  if (job_ == 0) return job;
  job.name = owner_.jobs[static_cast<std::size_t>(job_) - 1].name;
  job.start = owner_.jobs[static_cast<std::size_t>(job_) - 1].start;
  // Jobs with one seed, as copies of one scenario are, do not have the same draws.
  job.noise.seed = static_cast<std::int64_t>(
      mix_key(static_cast<std::uint64_t>(job.noise.seed), static_cast<std::uint64_t>(job_)) >> 1);
  return job;
}

std::vector<engine::Job> Prepared::jobs(int steps, const std::vector<std::unique_ptr<Changed>>& changed) const {
  std::vector<engine::Job> list;
  for (std::size_t j = 0; j < beside_.size(); ++j)
    list.push_back(beside_[j]->as_job(steps, changed.empty() ? nullptr : changed[j].get()));
  return list;
}

engine::Outcome Prepared::simulate(const engine::Options& options) const {
  return engine::simulate(program_, grid_, cluster(), collectives(), costs(), options, jobs(options.steps));
}

engine::FoldReport Prepared::folding(const engine::Options& options) const {
  return engine::report_folding(as_job(options.steps), cluster(), options, jobs(options.steps));
}

std::vector<Time> Prepared::alone(std::size_t job, int steps, const engine::Options& options) const {
  if (job > 0) {
    engine::Job one = beside_.at(job - 1)->as_job(steps);
    one.start = Time();
    return engine::repeat_alone(one, cluster(), options);
  }
  engine::Options own = options;
  own.recorded_ranks.clear();
  own.repeats = steps;
  std::vector<Time> ends =
      engine::simulate(program_, grid_, cluster(), collectives(), costs(), own).job_step_ends.front();
  ends.resize(static_cast<std::size_t>(steps));
  return ends;
}

Prepared::Changed::Changed(const Prepared& prepared, const Levers& levers)
    : cluster(cluster::scaled(prepared.cluster(), {levers.nvlink, levers.nic})),
      costs(launched(cost::load_costs(prepared.machine_->files.front(), share_of(prepared.grid_, prepared.cluster(), 0),
                                      {levers.compute, levers.memory, levers.launch}),
                     prepared.scenario_)),
      others(costs_of_others(prepared.machine_->files, prepared.scenario_, prepared.cluster(),
                             {levers.compute, levers.memory, levers.launch})),
      collectives(collective::scaled(
                      measured_transfers(*cluster, prepared.machine_->files, prepared.scenario_, prepared.options_),
                      {levers.latency, levers.memory}),
                  *cluster, prepared.options_.fidelity),
      kinds(prepared.device_kinds(*costs, others, levers.launch)) {}

engine::Outcome Prepared::simulate(const engine::Options& options, const Levers& levers) const {
  const auto scaled = [&levers](Time launch) { return Time::from_seconds(launch.seconds() * levers.launch); };
  const Changed own(*this, levers);
  std::vector<std::unique_ptr<Changed>> others;
  for (const auto& each : beside_) others.push_back(std::make_unique<Changed>(*each, levers));
  std::vector<engine::Job> beside = jobs(options.steps, others);
  for (engine::Job& job : beside) job.launch_cost = scaled(job.launch_cost);
  engine::Options changed = options;
  changed.launch_cost = scaled(options.launch_cost);
  changed.kinds = own.kinds ? &*own.kinds : nullptr;
  return engine::simulate(program_, grid_, *own.cluster, own.collectives.model(), *own.costs, changed, beside);
}

}  // namespace rehearse::run
