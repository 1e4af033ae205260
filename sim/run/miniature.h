// The miniature of a plan: one that a machine at hand can perform, with the large plan's schedule, ZeRO stage,
// recomputation and flags, every way of splitting the model that it has, and of its shapes as much as time and memory
// allow. The order of what is given up, top to bottom in miniature_sizes.cpp:
//
//   ranks        two of each split (pipeline, data, tensor, context in turn, as far as there are ranks), then twice as
//                many; the large plan's where there are enough
//   widths       a rank's heads, feed-forward columns and experts stay; the model has as many as its fewer ranks hold
//   layers       of a stage and chunk, down to one
//   micro-batches  in the proportion of the stages (the bubble's share stays), then down to what the schedule needs
//   micro-batch  sequences, down to one
//   experts, chunks  of a rank, down to what a token chooses; of a stage, down to two
//   length and width  (of images: their size) halved by turns, the longer of tokens and hidden size first; the
//   vocabulary with the hidden size
//
// What a rule forbids of the small plan though not of the large one (kernels that CPUs do not have) is dropped, with
// the rule's words. Topology, costs, noise, failures and other jobs are the large cluster's and left out. The outcome
// depends on the scenario and the limits alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/scenario.h"

namespace rehearse::run {

struct MiniatureLimits {
  std::int64_t ranks = 8;
  double flops = 4e10;   // of a step, all ranks together
  Bytes bytes{1 << 30};  // of tensors, all ranks together, by a rough count (miniature_bytes)
};

// The fewest ranks that keep each split of the plan.
std::int64_t ranks_that_keep_splits(const plan::Plan& plan);

// raised: what is performed needs more of it (a vocabulary of at least all bytes).
enum class Fate : unsigned char { kept, reduced, raised, dropped };

// A key, or what follows from several ("heads of a rank").
struct MiniatureRow {
  std::string what, large, small;
  Fate fate = Fate::kept;
  std::string why = {};  // of what a rule forbids
};

struct Miniature {
  std::vector<std::string> assignments;  // to the large plan's file, after those that it was read with
  plan::Scenario scenario;               // as they make it
  std::vector<MiniatureRow> rows;
  double flops = 0;    // of a step
  bool within = true;  // the limits; false: nothing smaller is known
};

// `assignments`: those that `large` was read with from its file. Throws InputError where rules forbid every miniature.
Miniature miniature_of(const plan::Scenario& large, const std::vector<std::string>& assignments,
                       const std::string& data_root, const MiniatureLimits& limits);

// FLOPs of a step with those that recomputation adds, at most: a third more where whole layers are.
double miniature_flops(const plan::Scenario& scenario);
// Parameters with gradients and states in fp32, 16 bytes (Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1), for
// every replica whatever is sharded; 34 bytes a token, layer and hidden column of activations (Korthikanti et al. 2022,
// arXiv 2205.05198, section 4.1), doubled for fp32, of the micro-batches in flight; logits and their gradient in fp32.
double miniature_bytes(const plan::Scenario& scenario);

}  // namespace rehearse::run
