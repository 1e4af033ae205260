// The shapes measured on their own, so that programs nobody named are costed by interpolation: products of matrices on
// a grid of sizes, in the three forms that layers use (forward, gradient of the input, of the weight), and every op of
// small one-layer models of several widths, lowered as any scenario is: so kinds and shapes are those of programs.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "calibrate/budget.h"
#include "calibrate/kernel_times.h"
#include "sim/plan/scenario.h"
#include "sim/program/program.h"

namespace rehearse::calibrate {

struct GridKernel {
  const plan::Scenario* scenario;
  const program::Role* role;
  const program::Op* op;
};

// Owns the programs its kernels are of. Not copyable.
class KernelGrid {
 public:
  KernelGrid();
  KernelGrid(const KernelGrid&) = delete;
  KernelGrid& operator=(const KernelGrid&) = delete;
  // Coarse before fine, so that what is measured first spans the range; each key once.
  const std::vector<GridKernel>& kernels() const { return kernels_; }

 private:
  void add_products(const std::vector<std::int64_t>& sizes);
  void add_model(const plan::Scenario& scenario);
  void add(GridKernel kernel);

  std::deque<plan::Scenario> scenarios_;  // stay where they are
  std::deque<program::Program> programs_;
  std::vector<GridKernel> kernels_;
  std::map<KernelKey, bool> known_;
};

// A transformer of one layer, `heads` times head_dim = hidden; feed-forward width 4 hidden, of llama (gated) 7/2
// hidden, a fourth of whose heads have keys. Two micro-batches a step, so that gradients are accumulated. For the
// caller: vocabulary and precision.
plan::Scenario one_layer(model::Family family, std::int64_t hidden, std::int64_t head_dim, std::int64_t seq_len,
                         std::int64_t micro_batch);

// Threads a rank may have on so many cores, as the grid takes them: powers of two, and all cores.
std::vector<int> thread_counts(int cores);

// Measures in order until the budget is spent; the first in any case, if the table is empty.
void measure_grid(const KernelGrid& grid, int cores, const Budget& budget, KernelTimes& times);

}  // namespace rehearse::calibrate
