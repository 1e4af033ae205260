// Scenario files, and what the command line adds to them: --set, --sweep.
#include <sstream>

#include "cli/sweep_axes.h"
#include "sim/plan/scenario.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/small_plans.h"

namespace rehearse::fuzz {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void read_scenario_file(const std::string& bytes) {
  const std::string path = put_file("input.yaml", bytes);
  simulate_if_small(plan::read_scenario(path, {}, REHEARSE_SOURCE_DIR));
}

// An assignment a line.
void read_assignments(const std::string& bytes) {
  const std::string path = put_file("base.yaml", small_scenario("dgx-a100", 8));
  simulate_if_small(plan::read_scenario(path, lines_of(bytes), REHEARSE_SOURCE_DIR));
}

// A model's file beside a scenario that names it; of its layers so many that a simulation takes no time.
void read_configuration(const std::string& bytes) {
  put_file("config.json", bytes);
  const std::string path = put_file("model.yaml", "rehearse: 1\nmodel: {hf: config.json}\ntraining: {seq_len: 64}\n");
  simulate_if_small(plan::read_scenario(path, {"cluster.topology=dgx-a100", "model.layers=3"}, REHEARSE_SOURCE_DIR));
}

// A --sweep a line.
void read_sweeps(const std::string& bytes) {
  (void)cli::read_axes(lines_of(bytes));
}

}  // namespace

void add_scenario_readers(std::vector<Reader>& list) {
  list.push_back({.name = "scenario",
                  .read = read_scenario_file,
                  .seeds = {"scenarios/*.yaml", "scenarios/published/*.yaml", "scenarios/local/*.yaml"},
                  .scenario_keys = true,
                  .runs = 600});
  list.push_back({.name = "set", .read = read_assignments, .scenario_keys = true});
  list.push_back({.name = "configuration", .read = read_configuration, .seeds = {"tests/unit/plan/hf/*.json"}});
  list.push_back({.name = "sweep", .read = read_sweeps, .scenario_keys = true});
}

}  // namespace rehearse::fuzz
