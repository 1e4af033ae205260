// The main flow, top to bottom in run.cpp: scenario -> program -> static check -> memory plan -> cluster and costs ->
// simulation -> result. Everything a command or a search needs to simulate one plan.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/account/server_events.h"
#include "sim/plan/scenario.h"
#include "sim/result/result.h"

namespace rehearse::run {

// analytic: every transfer takes its time alone; flow: activities share links; step: collectives message by message
// (sim/collective/steps.h).
enum class Fidelity : unsigned char { analytic, flow, step };

struct Machine;    // prepared.h
struct Processes;  // processes.h

struct Options {
  std::string data_root;                  // holds scenarios/, topologies/, calibrate/
  std::vector<std::string> calibrations;  // --calibration FILE, after the scenario's own
  int steps = 2;
  Fidelity fidelity = Fidelity::flow;
  bool fold = true;  // simulate one rank of those that are alike (sim/engine/folding/folding.h); the result is the same
  bool record = true;  // keep the ops of representative ranks (one a stage)
  int samples = 0;     // of the noise, to be simulated; 0: sample 0 alone, and no statistics
  bool what_if = false;
  std::string left_out;  // a source of published runs that the step's interval must not know (step_interval.h)
  int threads = 1;       // simulations at once, where there are several; roles checked and laid out at once
  // Loaded already, of a scenario that differs in its plan alone; nullptr: loaded here. Not with jobs alongside it.
  std::shared_ptr<const Machine> machine;
  // That have been started for the same scenario and options and share the simulations of samples, what-ifs and
  // counterfactuals; nullptr: this one does all.
  const Processes* processes = nullptr;
  // Of a plan with parameter servers: filled with what each did, of the simulation that is reported; nullptr: it is
  // not.
  std::vector<account::ServerEvent>* server_events = nullptr;
  bool check = true;                                 // the static check (sim/program/static_check.h)
  std::function<void(double done)> progress;         // of the simulation
  std::function<void(std::string_view what)> phase;  // called when another part of the work before it begins
};

// Throws InputError for input that cannot be, engine::Deadlock for a program that cannot proceed. A plan that does not
// fit in memory is a value: result.memory_fits is false, and the rest is as if it fitted.
result::Result simulate_scenario(const plan::Scenario& scenario, const Options& options);

}  // namespace rehearse::run
