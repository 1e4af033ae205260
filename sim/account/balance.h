// How evenly the stages of a pipeline share the work of a step. Every micro-batch passes every stage, and a stage takes
// them one after the other, whatever the schedule: a step takes at least as long as its largest stage computes, so of
// the ranks' time at least 1 - mean / largest is idle, mean and largest being of the stages' compute. What uneven
// chunks of even stages cost is not in that bound.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::account {

// How much of a stage's time a kernel takes: seconds, or FLOPs where nothing else is known. Only ratios count.
using WorkOf = std::function<double(const program::Role&, const program::Op&)>;
double flops_of(const program::Role& role, const program::Op& op);

struct Balance {
  std::vector<std::int64_t> layers;  // of each stage, its chunks together
  std::vector<double> work;          // of each stage: kernels of forward, recomputation and backward, over a step
  std::size_t largest = 0;           // the stage with most work
  double largest_over_mean = 1;      // of work
  bool even_layers() const;
};
Balance balance_of(const plan::Scenario& scenario, const program::Program& program, const WorkOf& work_of);

inline constexpr double kUnevenLayers =
    1.01;                                    // largest over mean from which stages of unlike layer counts are reported,
inline constexpr double kUnevenWork = 1.10;  // and from which stages of like counts are: judgements

// What divides the layers, nearest to the plan's own number: the next below and the next above.
struct Divisors {
  std::vector<std::int64_t> pipelines;        // with the plan's GPUs, batch, tensor and chunks
  std::vector<std::int64_t> other_pipelines;  // that need other GPUs or another batch; nearer than those
  std::vector<std::int64_t> chunks;           // interleaved: with the plan's stages
};
Divisors dividing(const plan::Scenario& scenario);

// "uneven_stages", one note or none. `by`: what work_of counts, as "by its kernels".
std::vector<result::Note> balance_notes(const plan::Scenario& scenario, const program::Program& program,
                                        const WorkOf& work_of, std::string_view by);

}  // namespace rehearse::account
