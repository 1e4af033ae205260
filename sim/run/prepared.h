// A scenario with everything that simulating it needs, loaded and checked once: program, cluster, costs, model of
// collectives. One of them serves any number of simulations: samples of noise, what-ifs, counterfactuals.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/cost/cost.h"
#include "sim/engine/engine.h"
#include "sim/plan/scenario.h"
#include "sim/program/program.h"
#include "sim/run/run.h"

namespace rehearse::run {

// Factors of physical rates and times; how measurements take them: cost.h (Scale), collective/scaled_model.h.
struct Levers {
  double compute = 1, memory = 1, nvlink = 1, nic = 1;  // rates
  double latency = 1, launch = 1;                       // times
};

class Prepared {
 public:
  // Throws InputError for input that cannot be. Scenario and options must outlive it.
  Prepared(const plan::Scenario& scenario, const Options& options);

  const program::Program& program() const { return program_; }
  const plan::RankGrid& grid() const { return grid_; }
  const cluster::Cluster& cluster() const { return *cluster_; }
  const cost::CostModel& costs() const { return *costs_; }
  const collective::CollectiveModel& collectives() const { return collectives_.model(); }

  // Of a plain simulation: the scenario's noise, sample 0, nothing recorded.
  engine::Options engine_options() const;
  // Several threads may at once.
  engine::Outcome simulate(const engine::Options& options) const;
  engine::Outcome simulate(const engine::Options& options, const Levers& levers) const;

 private:
  // Transfers as the options' fidelity wants them, on top of what is measured.
  class Collectives {
   public:
    Collectives(std::unique_ptr<collective::CollectiveModel> measured, const cluster::Cluster& cluster,
                Fidelity fidelity);
    const collective::CollectiveModel& model() const { return other_ ? *other_ : *measured_; }

   private:
    std::unique_ptr<collective::CollectiveModel> measured_, other_;
  };

  void check_noise() const;

  const plan::Scenario& scenario_;
  const Options& options_;
  plan::RankGrid grid_;
  std::unique_ptr<cluster::Cluster> cluster_;
  std::vector<std::string> files_;  // of devices and calibrations
  std::unique_ptr<cost::CostModel> costs_;
  Collectives collectives_;
  program::Program program_;
};

}  // namespace rehearse::run
