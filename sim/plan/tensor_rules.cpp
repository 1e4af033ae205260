// What products that go on beside their collectives need; see sections.h.
#include <fmt/format.h>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

void check_async_tensor(const Node& plan, const Scenario& s, const std::function<bool(const char*)>& sound) {
  if (!s.plan.async_tensor_parallel || !sound("plan.async_tensor_parallel") || !sound("plan.tensor")) return;
  const Node key = plan.get("async_tensor_parallel");
  if (sound("plan.sequence_parallel") && !s.plan.sequence_parallel)
    return key.error("rows of the sequence are gathered and scattered", "sequence_parallel: true");
  if (s.training.lora()) key.error("adapters read what is gathered whole", "leave it out, or lora_rank: 0");
  if (s.training.four_bits() || (s.training.eight_bits() && s.training.fp8_block() > 0))
    key.error("rows in 8 or 4 bits with scales of blocks are gathered whole",
              "leave it out, or fp8_recipe: tensorwise, delayed or rowwise");
}

}  // namespace rehearse::plan::detail
