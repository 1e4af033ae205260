// Small plans that what a reader gave is put to use with: a reader that returns something unusable has not done its
// work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/result/result.h"

namespace rehearse::fuzz {

// A transformer of two layers on so many GPUs of a topology (a name or a path), of which two share each matrix if there
// are two; `cluster_keys` more of the section cluster, "placement: [0-3]".
std::string small_scenario(const std::string& topology, int gpus, const std::string& cluster_keys = "");

// Read and simulated as the command does, with problems placed in the file.
result::Result simulate_text(const std::string& text, const std::vector<std::string>& calibrations = {});

// Kernels, transfers and their like of a step over all ranks, roughly: what simulating it costs.
double work_of(const plan::Scenario& scenario);
inline constexpr double kSmallWork = 2e5;

// Simulates a scenario, if that is little work; with problems placed in its file.
void simulate_if_small(const plan::Scenario& scenario);

// Everything that is printed of a result.
void print_all(const result::Result& r);

}  // namespace rehearse::fuzz
