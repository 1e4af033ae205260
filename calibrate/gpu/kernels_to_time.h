// Which kernels a GPU is calibrated with, in the order in which a budget is worth spending on them: those of the
// scenarios' programs, by the time a step spends in them (a roofline's estimate); then, for the products that matter
// most, the same product of half and of twice the tokens, so that other batch sizes lie between measured ones, and of
// sizes between those that are held out of the calibration, to check it; then products and other kernels of a grid.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "calibrate/gpu/bench.h"

namespace rehearse::calibrate::gpu {

// What tells one kernel from another: kind, shape, operand types, type.
std::string key_of(const program::Role& role, const program::Op& op);

// Owns the programs its kernels are of. Not copyable.
class KernelsToTime {
 public:
  // `grid`: also what is not of the scenarios.
  explicit KernelsToTime(const std::vector<plan::Scenario>& scenarios, bool grid = true);
  KernelsToTime(const KernelsToTime&) = delete;
  KernelsToTime& operator=(const KernelsToTime&) = delete;
  const std::vector<Kernel>& kernels() const { return kernels_; }

 private:
  void add_programs();
  void add_neighbours();
  void add_held_out();
  void add_grid();
  void add(const Kernel& kernel);
  const Kernel* add_product(const cost::ProductKey& key, const plan::Scenario& scenario, bool held_out);

  std::deque<plan::Scenario> scenarios_;
  std::deque<program::Program> programs_;
  std::vector<Kernel> kernels_;
  std::map<std::string, std::size_t> known_;  // index in kernels_
};

// A rough time of a step's kernels on any GPU of today, seconds: for the order of things and shares of a budget alone.
double rough_step_seconds(const program::Role& role);

// A program of one product, and the size of a product that grows with the tokens of a micro-batch: K of a weight
// gradient (A transposed), else M.
program::Program product_program(const cost::ProductKey& key);
std::int64_t& tokens_of(cost::ProductKey& key);

}  // namespace rehearse::calibrate::gpu
