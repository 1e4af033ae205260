// A scenario from text, lowered: for tests of programs and of what simulating them gives.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "sim/lower/lower.h"
#include "sim/plan/scenario.h"
#include "sim/program/static_check.h"
#include "tests/support/temporary.h"

namespace rehearse {

// Of profile `rehearse`, the ideal, unless the text or an assignment names another.
inline plan::Scenario scenario_from(const std::string& text, std::vector<std::string> assignments = {}) {
  const std::string path = test::temporary_path("scenario.yaml");
  std::ofstream(path) << text;
  if (text.find("\nframework:") == std::string::npos) assignments.insert(assignments.begin(), "framework=rehearse");
  plan::Scenario scenario = plan::read_scenario(path, assignments, REHEARSE_SOURCE_DIR);
  std::filesystem::remove(path);
  return scenario;
}

inline program::GridView grid_view(const program::Program& program, const plan::RankGrid& grid) {
  program::GridView view;
  view.ranks = grid.ranks();
  view.role = [&](int rank) { return program::role_of(program, grid.coordinates(rank)); };
  view.size = [&grid](Axis axis) { return grid.size(axis); };
  view.members = [&grid](int rank, const program::Group& g) {
    return grid.members(rank, g.axes, g.pipeline_only, g.tensor_block);
  };
  view.peer = [&grid](int rank, Axis axis, int offset) { return grid.peer(rank, axis, offset); };
  return view;
}

// Every violation of the static check, one a line; "" if there is none.
inline std::string violations(const program::Program& program, const plan::RankGrid& grid) {
  std::string text;
  for (std::size_t r = 0; r < program.roles.size(); ++r)
    for (const auto& v : program::check_role(program, static_cast<program::RoleId>(r)))
      text += v.rule + ": " + v.message + "\n";
  for (const auto& v : program::check_ranks(program, grid_view(program, grid)))
    text += v.rule + ": " + v.message + "\n";
  return text;
}

// What the ops of one step of a role sum to.
template <typename F>
auto sum_over_step(const program::Role& role, F value_of) {
  decltype(value_of(role, role.bodies[0].ops[0])) total{};
  for (const program::Slot& slot : role.slots)
    for (const program::Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops) total += value_of(role, op);
  return total;
}

}  // namespace rehearse
