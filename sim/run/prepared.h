// A scenario with everything that simulating it needs, loaded and checked once: program, cluster, costs, model of
// collectives; and the same of the jobs alongside it. One of them serves any number of simulations: samples of noise,
// what-ifs, counterfactuals.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/cost/cost.h"
#include "sim/engine/engine.h"
#include "sim/engine/folding/reasons.h"
#include "sim/plan/scenario.h"
#include "sim/program/kernel_kinds.h"
#include "sim/program/program.h"
#include "sim/run/document_loads.h"
#include "sim/run/input_pipeline.h"
#include "sim/run/layers_by_time.h"
#include "sim/run/run.h"

namespace rehearse::run {

// Factors of physical rates and times; how measurements take them: cost.h (Scale), collective/scaled_model.h.
struct Levers {
  double compute = 1, memory = 1, nvlink = 1, nic = 1;  // rates
  double latency = 1, launch = 1;                       // times
};

// Transfers as the options' fidelity wants them, on top of what is measured.
class Collectives {
 public:
  Collectives(std::unique_ptr<collective::CollectiveModel> measured, const cluster::Cluster& cluster,
              Fidelity fidelity);
  const collective::CollectiveModel& model() const { return other_ ? *other_ : *measured_; }

 private:
  std::unique_ptr<collective::CollectiveModel> measured_, other_;
};

// What a scenario runs on, whatever its plan: the same for all plans with one cluster section, one list of calibrations
// and one framework.
struct Machine {
  // `job`: 0, or which job of `owner`, whose cluster it is, the scenario is. Throws InputError.
  Machine(const plan::Scenario& scenario, const Options& options, const plan::Scenario& owner, int job);
  Machine(const plan::Scenario& scenario, const Options& options) : Machine(scenario, options, scenario, 0) {}

  // Of the kinds of devices in use (cluster::Cluster::device_names), of which there are several in a mixed cluster.
  int kinds() const { return 1 + static_cast<int>(others.size()); }
  const cost::CostModel& costs_of(int kind) const {
    return kind == 0 ? *costs : *others[static_cast<std::size_t>(kind) - 1];
  }

  std::unique_ptr<cluster::Cluster> cluster;
  std::vector<std::vector<std::string>> files;  // of devices and calibrations, of each kind
  std::unique_ptr<cost::CostModel> costs;       // of the first kind
  std::vector<std::unique_ptr<cost::CostModel>> others;
  Collectives collectives;
};

class Prepared {
 public:
  // Throws InputError for input that cannot be. Scenario and options must outlive it. `lowered`: the scenario's
  // program (lower::lower), where it is there already.
  Prepared(const plan::Scenario& scenario, const Options& options, std::optional<program::Program> lowered = {});

  const program::Program& program() const { return program_; }
  const program::KernelKinds& kernels() const { return kernels_; }
  const plan::RankGrid& grid() const { return grid_; }
  // Of ranks whose memory is simulated as arenas; else nullptr.
  const program::Arenas* arenas() const { return arenas_ ? &*arenas_ : nullptr; }
  const cluster::Cluster& cluster() const { return *machine_->cluster; }
  // The scenario with what was left to choose: layers_per_stage: by_time.
  const plan::Scenario& scenario() const { return chosen_ ? chosen_->scenario : scenario_; }
  // What was, or nullptr.
  const ChosenLayers* chosen_layers() const { return chosen_ ? &*chosen_ : nullptr; }
  const Machine& machine() const { return *machine_; }
  // Of the device of rank 0.
  const cost::CostModel& costs() const { return *machine_->costs; }
  const cost::CostModel& costs_of_rank(int rank) const { return machine_->costs_of(cluster().kind_of(rank)); }
  const collective::CollectiveModel& collectives() const { return machine_->collectives.model(); }
  const InputPipeline& input() const { return input_; }
  // 0: this, k: the k-th job alongside it.
  const Prepared& job(std::size_t k) const { return k == 0 ? *this : *beside_.at(k - 1); }

  // How many steps are simulated: as asked for, or with local steps whole rounds behind the last step of one.
  int steps() const { return simulated_steps(scenario_, options_.steps); }
  static int simulated_steps(const plan::Scenario& scenario, int steps);
  // Of a plain simulation: the scenario's noise, sample 0, nothing recorded.
  engine::Options engine_options() const;
  // Several threads may at once.
  engine::Outcome simulate(const engine::Options& options) const;
  engine::Outcome simulate(const engine::Options& options, const Levers& levers) const;
  // Which of its ranks are alike.
  engine::FoldReport folding(const engine::Options& options) const;
  // The ends of so many steps of a job that has the cluster to itself: 0 the scenario's own, k the k-th beside it.
  std::vector<Time> alone(std::size_t job, int steps, const engine::Options& options) const;

 private:
  // The k-th job alongside a scenario, on its cluster.
  Prepared(const plan::Scenario& scenario, const Options& options, const plan::Scenario& owner, int job,
           std::optional<program::Program> lowered = {});

  // What levers change.
  struct Changed {
    Changed(const Prepared& prepared, const Levers& levers);
    std::unique_ptr<cluster::Cluster> cluster;
    std::unique_ptr<cost::CostModel> costs;
    std::vector<std::unique_ptr<cost::CostModel>> others;
    Collectives collectives;
    std::optional<engine::DeviceKinds> kinds;
  };

  void check_noise() const;
  void check_input() const;
  // `buffered`: messages are.
  void lay_out_arenas(bool buffered);
  const std::vector<engine::Loader>* loaders() const { return input_.loaders.empty() ? nullptr : &input_.loaders; }
  void prepare_jobs();
  Time launch_cost() const;
  // nullopt: one kind.
  std::optional<engine::DeviceKinds> device_kinds(const cost::CostModel& first,
                                                  const std::vector<std::unique_ptr<cost::CostModel>>& others,
                                                  double launch = 1) const;
  bool in_arena() const;
  // As a job alongside another; `changed`: nullptr or what stands for its own costs and collectives.
  engine::Job as_job(int steps, const Changed* changed = nullptr) const;
  std::vector<engine::Job> jobs(int steps, const std::vector<std::unique_ptr<Changed>>& changed = {}) const;

  const plan::Scenario& scenario_;
  const Options& options_;
  const plan::Scenario& owner_;  // of the cluster
  int job_ = 0;                  // of the owner's
  plan::RankGrid grid_;
  std::shared_ptr<const Machine> machine_;
  std::optional<ChosenLayers> chosen_;
  std::optional<engine::DeviceKinds> kinds_;
  program::Program program_;
  program::KernelKinds kernels_;
  InputPipeline input_;
  std::optional<engine::AttentionLoads> attention_loads_;
  std::optional<program::Arenas> arenas_;  // laid out once for all that is simulated and said of it
  std::shared_ptr<const engine::ProgramLayout> layout_;
  std::vector<std::unique_ptr<Prepared>> beside_;
};

}  // namespace rehearse::run
