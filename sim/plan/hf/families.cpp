// See families.h. Defaults are those of transformers' configuration classes, LlamaConfig and the like, by which a file
// without the key is read.
#include "sim/plan/hf/families.h"

#include <algorithm>
#include <iterator>

#include "sim/plan/hf/parts.h"

namespace rehearse::plan::hf {

namespace {

struct Missing {
  std::string_view model_type, what;
};

constexpr Missing kMissing[] = {
    {"gemma3", "without its text_config, which alone is read"},
    {"mistral3", "without its text_config, which alone is read"},
    {"gemma3n", "its embeddings of each layer and branches that are predicted are not available"},
    {"mpt", "norms without biases and products behind clipped queries are not read yet"},
    {"qwen2_moe", "a gate of the shared expert is not available yet"},
    {"llama4", "without its text_config, which alone is read"},
    {"mllama", "layers that attend to images are not available"},
    {"roberta", "an encoder without segments and a next sentence is not available yet"},
    {"olmo2", "norms behind the branches without those before them, and of all queries and keys as one, are not there"},
    {"olmo3", "norms behind the branches without those before them, and of all queries and keys as one, are not there"},
    {"qwen3_next",
     "layers of gated delta rules between those of attention, and a gate of attention, are not available"},
    {"modernbert", "an encoder with rotated positions, windows in some layers and unpadded batches is not available"},
    {"mamba", "selective scans of the first Mamba are not available: mamba2 and nemotron_h are"},
    {"falcon_mamba", "selective scans of the first Mamba are not available: mamba2 and nemotron_h are"},
    {"jamba", "selective scans of the first Mamba are not available: mamba2 and nemotron_h are"},
    {"bamba",
     "layers of a state-space mixer and a gated feed-forward part are not available: mamba2 and nemotron_h are"},
    {"zamba2", "attention that several layers share is not available: mamba2 and nemotron_h are"},
};

}  // namespace

// What every configuration has, and no product or buffer of training depends on.
void common(Config& c) {
  c.no_matter(
      {"auto_map", "transformers_version", "_name_or_path", "tokenizer_class", "is_decoder", "is_encoder_decoder"},
      "what it is");
  c.no_matter(
      {"bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "decoder_start_token_id"},
      "ids of tokens");
  c.no_matter({"initializer_range", "init_std", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon",
               "rope_interleave", "original_max_position_embeddings"},
              kValues);
  c.no_matter({"use_cache", "max_length", "prefix", "task_specific_params", "generation_config", "pretraining_tp"},
              "of generation");
  c.no_matter({"id2label", "label2id", "finetuning_task", "output_attentions", "output_hidden_states",
               "output_router_logits", "return_dict", "chunk_size_feed_forward"},
              "of calls of the model");
  for (const char* key : {"_attn_implementation", "attn_implementation", "_flash_attn_2_enabled"})
    c.for_scenario(key, "model.attention");
  c.for_scenario("gradient_checkpointing", "plan.recompute");
  for (const char* key : {"torch_dtype", "dtype"}) c.for_scenario(key, "training.precision");
  c.left_out("quantization_config", "see training.precision");
}

const std::vector<Kind>& translated_kinds() {
  static const std::vector<Kind> all = {
      {"llama", "LlamaForCausalLM", llama},
      {"mistral", "MistralForCausalLM", mistral},
      {"mixtral", "MixtralForCausalLM", mixtral},
      {"gpt2", "GPT2LMHeadModel", gpt2},
      {"qwen2", "Qwen2ForCausalLM", qwen2},
      {"qwen3", "Qwen3ForCausalLM", qwen3},
      {"qwen3_moe", "Qwen3MoeForCausalLM", qwen3_moe},
      {"deepseek_v2", "DeepseekV2ForCausalLM", deepseek_v2},
      {"deepseek_v3", "DeepseekV3ForCausalLM", deepseek_v3},
      {"kimi_k2", "DeepseekV3ForCausalLM", deepseek_v3},
      {"gpt_oss", "GptOssForCausalLM", gpt_oss},
      {"llama4_text", "Llama4ForCausalLM", llama4_text},
      {"glm4_moe", "Glm4MoeForCausalLM", glm4_moe},
      {"glm4", "Glm4ForCausalLM", glm4},
      {"smollm3", "SmolLM3ForCausalLM", smollm3},
      {"phi3", "Phi3ForCausalLM", phi3},
      {"cohere", "CohereForCausalLM", cohere},
      {"gemma", "GemmaForCausalLM", gemma},
      {"gemma2", "Gemma2ForCausalLM", gemma2},
      {"gemma3_text", "Gemma3ForCausalLM", gemma3_text},
      {"gpt_bigcode", "GPTBigCodeForCausalLM", gpt_bigcode},
      {"starcoder2", "Starcoder2ForCausalLM", starcoder2},
      {"gpt_neox", "GPTNeoXForCausalLM", gpt_neox},
      {"phi", "PhiForCausalLM", phi},
      {"gptj", "GPTJForCausalLM", gptj},
      {"bloom", "BloomForCausalLM", bloom},
      {"opt", "OPTForCausalLM", opt},
      {"falcon", "FalconForCausalLM", falcon},
      {"nemotron", "NemotronForCausalLM", nemotron},
      {"nemotron_h", "NemotronHForCausalLM", nemotron_h},
      {"mamba2", "Mamba2ForCausalLM", mamba2},
      {"bert", "BertForPreTraining", bert},
      {"t5", "T5ForConditionalGeneration", t5},
      {"mt5", "MT5ForConditionalGeneration", mt5},
      {"vit", "ViTForImageClassification", vit},
      {"resnet", "ResNetForImageClassification", resnet},
  };
  return all;
}

std::string_view missing_for(std::string_view model_type) {
  const auto* found = std::find_if(std::begin(kMissing), std::end(kMissing),
                                   [&](const Missing& each) { return each.model_type == model_type; });
  return found == std::end(kMissing) ? std::string_view() : found->what;
}

}  // namespace rehearse::plan::hf
