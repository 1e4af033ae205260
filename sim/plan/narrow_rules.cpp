// What is kept and sent in few bits, or made again in backward, one key each: which models and plans it goes with.
#include <fmt/format.h>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {
namespace {

void of_norms(const Node& key, const Scenario& s) {
  using model::Family;
  const Family family = s.model.family;
  if (family != Family::gpt && family != Family::llama && family != Family::moe)
    return key.error("is of layers with a norm before each branch", "leave it out, or family: gpt, llama or moe");
  if (s.training.lora()) key.error("adapters read what norms give in backward", "leave it out");
}

// Whether the model has routed experts.
bool has_experts(const Node& key, const Scenario& s) {
  if (s.model.family == model::Family::moe) return true;
  key.error("this model has no experts", "leave it out, or family: moe");
  return false;
}

bool blocks(const Node& key, const Scenario& s) {
  if (s.training.eight_bits() && s.training.fp8_block() > 0) return true;
  key.error("rows of 8 bits bring the scales of their blocks", "precision: fp8 with fp8_recipe: blockwise or mxfp8");
  return false;
}

void of_dispatch(const Node& key, const Scenario& s) {
  if (!blocks(key, s) || !has_experts(key, s)) return;
  if (s.plan.expert == 1) key.error("experts are not spread over ranks", "plan.expert above 1");
  if (s.plan.expert_dispatch == ExpertDispatch::all_gather)
    key.error("all_gather brings each rank the rows of all, in 16 bits", "plan.expert_dispatch: all_to_all");
}

void of_attention_output(const Node& key, const Scenario& s) {
  if (!s.training.eight_bits() || s.training.fp8_recipe != Fp8Recipe::blockwise)
    return key.error("is of the recipe that has it", "precision: fp8 with fp8_recipe: blockwise");
  if (s.plan.context > 1) key.error("ranks of a context group trade what attention gives in 16 bits", "context: 1");
  if (s.purpose == Purpose::perform) key.error("numbers of 12 bits are simulated, and not performed", "leave it out");
}

}  // namespace

// torchao asserts the first (Float8LinearConfig, enable_fsdp_float8_all_gather); experts are no torch.nn.Linear there.
void check_row_scales(const Node& training, const Scenario& s) {
  if (s.training.fp8_params)
    training.get("fp8_params")
        .error("backward scales columns of weights, so 16 bits are gathered", "false, or fp8_recipe: tensorwise");
  if (s.model.family == model::Family::moe)
    training.get("fp8_recipe")
        .error("scales of rows are of linear layers, and routed experts are none",
               "fp8_recipe: tensorwise, blockwise or mxfp8");
}

void check_narrow_and_again(const Sections& sections, const Scenario& s) {
  const Node &plan = sections.plan, &training = sections.training;
  if (s.plan.recompute_norms) of_norms(plan.get("recompute_norms"), s);
  if (s.plan.recompute_expert_activation) has_experts(plan.get("recompute_expert_activation"), s);
  if (s.plan.weigh_in_experts && plan.has("weigh_in_experts")) {  // what a framework does by itself has no place
    const Node key = plan.get("weigh_in_experts");
    if (!s.framework.weighs_in_experts) has_experts(key, s);
    if (s.model.weigh_expert_inputs)
      key.error("weigh_expert_inputs: scores multiply what goes into experts", "leave it out");
  }
  if (s.training.fp8_dispatch) of_dispatch(training.get("fp8_dispatch"), s);
  if (s.training.fp8_activation_input) {
    const Node key = training.get("fp8_activation_input");
    if (blocks(key, s)) has_experts(key, s);
  }
  if (s.training.e5m6_attention_output) of_attention_output(training.get("e5m6_attention_output"), s);
}

}  // namespace rehearse::plan::detail
