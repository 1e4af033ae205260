// See with_blocking_launches in cost.h.
#include <utility>

#include "sim/cost/cost.h"

namespace rehearse::cost {
namespace {

class BlockingLaunches final : public CostModel {
 public:
  BlockingLaunches(std::unique_ptr<CostModel> costs, Time gap) : costs_(std::move(costs)), gap_(gap) {}
  const Device& device() const override { return costs_->device(); }
  bool by_kind() const override { return costs_->by_kind(); }
  std::int64_t own_memory(const program::Op& op) const override { return costs_->own_memory(op); }
  Estimate kernel(const program::Role& role, const program::Op& op, const Interference& beside) const override {
    Estimate estimate = costs_->kernel(role, op, beside);
    estimate.duration += gap_ * op.launches;
    return estimate;
  }

 private:
  std::unique_ptr<CostModel> costs_;
  Time gap_;
};

}  // namespace

std::unique_ptr<CostModel> with_blocking_launches(std::unique_ptr<CostModel> costs, Time gap) {
  return std::make_unique<BlockingLaunches>(std::move(costs), gap);
}

}  // namespace rehearse::cost
