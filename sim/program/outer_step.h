// One of the kinds of operations of op.h.
#pragma once

#include <cstdint>

namespace rehearse::program {

// The end of a round of local steps (plan.local_steps), of a bucket that `workers` have each moved for themselves.
// mean {sum of the workers' values f32} -> {param, master f32?}: their mean (McMahan et al. 2016, arXiv 1602.05629, of
// workers with as many examples). With an optimizer of its own (Douillard et al. 2023, arXiv 2311.08105, algorithm 1):
// difference {value f32, outer f32} -> {outer - value, f32}, with outer the values that the round began with; update
// {sum of the workers' differences f32, outer f32, momentum f32?} -> {outer, momentum?, param, master f32?}: d = sum /
// workers; m = mu m + d; outer -= lr (d + mu m) (torch.optim.SGD with nesterov=True; without momentum outer -= lr d);
// the worker's values are those of outer then.
enum class OuterPart : unsigned char { mean, difference, update };
struct OuterStep {
  OuterPart part = OuterPart::mean;
  std::int64_t elements = 0, workers = 1;
  bool master = false, momentum = false;  // operands that there are
  double lr = 1, mu = 0;
  friend bool operator==(const OuterStep&, const OuterStep&) = default;
};

}  // namespace rehearse::program
