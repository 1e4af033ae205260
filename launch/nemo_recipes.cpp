// See nemo_recipes.h.
#include "launch/nemo_recipes.h"

#include <fmt/format.h>

#include <algorithm>

namespace rehearse::launch {

const std::map<std::string_view, NemoRecipe>& nemo_recipes() {
  static const std::map<std::string_view, NemoRecipe> all = {
      {"llama2_7b", {"llama2-7b", 4096}},
      {"llama2_13b", {"llama2-13b", 4096}},
      {"llama2_70b", {"llama2-70b", 4096}},
      {"llama3_8b", {"llama3-8b", 8192}},
      {"llama3_8b_16k", {"llama3-8b", 16384}},
      {"llama3_8b_64k", {"llama3-8b", 65536}},
      {"llama3_8b_128k", {"llama3-8b", 131072}},
      {"llama3_70b", {"llama3-70b", 8192}},
      {"llama3_70b_16k", {"llama3-70b", 16384}},
      {"llama3_70b_64k", {"llama3-70b", 65536}},
      {"llama31_8b", {"llama3.1-8b", 8192}},
      {"llama31_70b", {"llama3.1-70b", 8192}},
      {"llama31_405b", {"llama3.1-405b", 8192}},
      {"llama32_1b", {"llama3.2-1b", 8192}},
      {"llama32_3b", {"llama3.2-3b", 8192}},
      {"deepseek_v2", {"deepseek-v2", 4096}},
      {"deepseek_v2_lite", {"deepseek-v2-lite", 4096}},
      {"deepseek_v3", {"deepseek-v3", 4096}},
      {"kimi_k2", {"kimi-k2", 4096}},
      {"gpt3_175b", {"gpt3-175b", 2048}},
      {"gpt_oss_20b", {"gpt-oss-20b", 4096}},
      {"gpt_oss_120b", {"gpt-oss-120b", 4096}},
      {"gemma_2b", {"gemma-2b", 0}},
      {"gemma_7b", {"gemma-7b", 0}},
      {"gemma2_2b", {"gemma2-2b", 0}},
      {"gemma2_9b", {"gemma2-9b", 0}},
      {"gemma2_27b", {"gemma2-27b", 0}},
      {"gemma3_1b", {"gemma3-1b", 0}},
      {"mistral_7b", {"mistral-7b", 0}},
      {"mistral_nemo_12b", {"mistral-nemo-12b", 0}},
      {"mixtral_8x7b", {"mixtral-8x7b", 0}},
      {"mixtral_8x22b", {"mixtral-8x22b", 0}},
      {"nemotron4_15b", {"nemotron-4-15b", 4096}},
      {"nemotron4_340b", {"nemotron-4-340b", 4096}},
      {"nemotronh_8b", {"nemotron-h-8b", 8192}},
      {"nemotronh_56b", {"nemotron-h-56b", 8192}},
      {"qwen25_500m", {"qwen2.5-0.5b", 0}},
      {"qwen25_1p5b", {"qwen2.5-1.5b", 0}},
      {"qwen25_7b", {"qwen2.5-7b", 0}},
      {"qwen25_14b", {"qwen2.5-14b", 0}},
      {"qwen25_32b", {"qwen2.5-32b", 0}},
      {"qwen25_72b", {"qwen2.5-72b", 0}},
      {"qwen3_600m", {"qwen3-0.6b", 4096}},
      {"qwen3_1p7b", {"qwen3-1.7b", 4096}},
      {"qwen3_4b", {"qwen3-4b", 4096}},
      {"qwen3_8b", {"qwen3-8b", 4096}},
      {"qwen3_14b", {"qwen3-14b", 4096}},
      {"qwen3_32b", {"qwen3-32b", 4096}},
      {"qwen3_30b_a3b", {"qwen3-30b-a3b", 4096}},
      {"qwen3_235b_a22b", {"qwen3-235b-a22b", 4096}},
      {"glm45_355b_a32b", {"glm-4.5", 0}},
      {"glm45_air_106b_a12b", {"glm-4.5-air", 0}},
      {"nemotron_3_nano", {"nemotron-3-nano", 8192}},
      {"nemotron_3_super", {"nemotron-3-super", 8192}},
      {"llama4_maverick", {"llama4-maverick", 8192}},
  };
  return all;
}

// What recipes have where a command says nothing, and what is theirs alone.
void add_recipe_defaults(bool performance, std::vector<Setting>& settings, std::vector<std::string>& assumed) {
  const auto has = [&](std::string_view key) {
    return std::any_of(settings.begin(), settings.end(), [&](const Setting& one) { return one.key == key; });
  };
  const auto add = [&](const char* key) {
    if (!has(key)) settings.push_back({key, {}, 0, 0, ""});
  };
  if (!has("bf16") && !has("fp16")) {
    add("bf16");
    assumed.emplace_back("bf16, as recipes have it where the command gives no precision");
  }
  for (const char* key : {"use-distributed-optimizer", "overlap-grad-reduce", "overlap-param-gather"}) add(key);
  if (performance && !has("accumulate-allreduce-grads-in-fp32") && !has("grad-reduce-in-bf16")) {
    add("grad-reduce-in-bf16");
    assumed.emplace_back("gradients in bf16, ddp.grad_reduce_in_fp32 False of the scripts' performance mode");
  }
  assumed.emplace_back(
      "the distributed optimizer with reductions and gathers overlapped, as Megatron-Bridge's and NeMo's recipes have "
      "it");
  const auto tensor = std::find_if(settings.rbegin(), settings.rend(),
                                   [](const Setting& one) { return one.key == "tensor-model-parallel-size"; });
  if (tensor == settings.rend() || has("sequence-parallel")) return;
  if (tensor->values == std::vector<std::string>{"1"}) return;
  add("sequence-parallel");
  assumed.emplace_back("sequence parallelism, which the program sets with tensor parallelism");
}

void take_recipe_sequences(Taken& taken, const std::string& recipe) {
  if (taken.has("seq-length")) return;
  if (recipe.empty()) return;  // --model alone: the model's own
  constexpr std::int64_t kUsual = 4096;
  const auto found = nemo_recipes().find(recipe);
  const bool known = found != nemo_recipes().end() && found->second.seq_len > 0;
  taken.put("training.seq_len", fmt::format("{}", known ? found->second.seq_len : kUsual), nullptr);
  taken.assume(known ? fmt::format("sequences of {} tokens, the recipe's", found->second.seq_len)
                     : fmt::format("sequences of {} tokens: those of the recipe are not known here (-sl)", kUsual));
}

// Rows of experts that drop none go by DeepEP or HybridEP in Megatron-Bridge's configurations
// (scripts/performance/configs, deepseek/deepseek_v3_llm_pretrain.py @27dfb3df, qwen/qwen3_workload_base_configs.py
// @01b2977e).
void take_recipe_dispatch(Taken& taken) {
  if (taken.given("plan.expert_dispatch") || !taken.has_experts() || taken.flag("use-tokendrop") ||
      taken.integer("expert-model-parallel-size").value_or(1) < 2)
    return;
  taken.put("plan.expert_dispatch", "forwarding", nullptr);
  taken.assume(
      "rows forwarded to experts (DeepEP, HybridEP), as the scripts' configurations without token drop have it");
}

// Rank and scale of Megatron-Bridge's and NeMo's LoRA (peft/lora.py: dim and alpha 32).
void take_recipe_adapters(Taken& taken) {
  for (const char* key : {"finetuning", "peft", "peft-scheme", "task"}) {
    const Setting* const at = taken.peek(key);
    if (at == nullptr || at->values.empty()) continue;
    if (at->values.front() == "dora")
      taken.not_modelled(one_line(fmt::format("{} (line {})", taken.find(key)->as, at->line)));
    if (at->values.front() != "lora") continue;
    taken.put("training.lora_rank", "32", taken.find(key));
    taken.put("training.lora_alpha", "32", nullptr);
    return taken.assume("adapters of rank 32 and alpha 32, the default of Megatron-Bridge's and NeMo's LoRA");
  }
}

}  // namespace rehearse::launch
