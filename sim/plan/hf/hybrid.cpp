// Layers of one branch each, Mamba-2 mixers among them: Nemotron-H, Nemotron Nano 2 and Nemotron 3
// (configuration_nemotron_h.py beside the checkpoints, and in transformers from 5.3 on), and Mamba-2 itself.
#include "sim/plan/hf/parts.h"

namespace rehearse::plan::hf {

namespace {

// By letters, or by a word for each layer.
std::string pattern_of(Config& c, const char* by_words, const char* by_letters) {
  const std::vector<std::string> words = c.words(by_words);
  if (words.empty()) return c.text(by_letters, "");
  c.no_matter({by_letters}, fmt::format("{} says it", by_words));
  std::string pattern;
  for (const std::string& word : words) {
    const char letter = word == "mamba"       ? 'M'
                        : word == "attention" ? '*'
                        : word == "mlp"       ? '-'
                        : word == "moe"       ? 'E'
                                              : '?';
    if (letter == '?') {
      c.refuse(by_words, fmt::format("'{}', expected mamba, attention, mlp or moe", word));
      return "";
    }
    pattern += letter;
  }
  return pattern;
}

void mixers(Config& c) {
  c.shape_or("conv_kernel", "mamba_conv", 4);
  c.shape_or("chunk_size", "mamba_chunk", 128);
  c.require("use_conv_bias", true, true, "a convolution without biases is not available");
  c.no_matter({"time_step_limit", "time_step_min", "time_step_max", "time_step_floor", "time_step_rank",
               "rescale_prenorm_residual", "mamba_ssm_cache_dtype", "norm_eps"},
              kValues);
  c.no_matter({"use_mamba_kernels", "num_logits_to_keep"}, "of calls of the model");
}

}  // namespace

void nemotron_h(Config& c) {
  const std::string pattern = pattern_of(c, "layers_block_type", "hybrid_override_pattern");
  const bool experts = pattern.find('E') != std::string::npos;
  widths(c, experts ? "moe" : "llama", 4096);
  c.put("layer_pattern", pattern, c.has("layers_block_type") ? "layers_block_type" : "hybrid_override_pattern");
  if (pattern.find('-') != std::string::npos) c.shape("intermediate_size", "ffn_hidden");
  c.shape_or("num_key_value_heads", "kv_heads", 8);
  if (c.given("attention_head_dim"))
    c.shape("attention_head_dim", "head_dim");
  else
    c.shape_or("head_dim", "head_dim", 128);
  c.put("position", "none", "model_type");
  const std::string activation = c.text("mlp_hidden_act", "relu2");
  if (activation != "relu2")
    c.refuse("mlp_hidden_act", fmt::format("'{}': feed-forward layers of nemotron_h have relu2", activation));
  c.put("activation", "squared_relu", "mlp_hidden_act");
  c.shape_or("mamba_num_heads", "mamba_heads", 128);
  c.shape_or("mamba_head_dim", "mamba_head_dim", 64);
  c.shape_or("n_groups", "mamba_groups", 8);
  c.shape_or("ssm_state_size", "mamba_state", 128);
  mixers(c);
  if (experts) {
    c.shape_or("n_routed_experts", "experts", 8);
    c.shape_or("num_experts_per_tok", "experts_per_token", 2);
    c.shape_or("moe_intermediate_size", "expert_ffn_hidden", 7688);
    c.count_or("n_shared_experts", "shared_experts", 1);
    c.shape_or("moe_shared_expert_intermediate_size", "shared_ffn_hidden", 7688);
    c.shape_or("n_group", "expert_groups", 1);
    c.shape_or("topk_group", "groups_per_token", 1);
    c.put("router", "sigmoid", "model_type");
    if (c.given("moe_latent_size")) c.shape("moe_latent_size", "expert_latent");
    c.left_out_of_kind("the routers' biases, one number an expert, which no gradient trains");
    c.no_matter({"norm_topk_prob", "routed_scaling_factor"}, kValues);
  }
  for (const char* biased : {"use_bias", "mamba_proj_bias", "attention_bias", "mlp_bias"})
    c.require(biased, false, false, "biases of products are not available for nemotron_h");
  tied(c, false);
  if (c.integer("num_nextn_predict_layers", 0) > 0) {
    c.count_or("num_nextn_predict_layers", "mtp_depth", 0);
    const bool words = c.has("mtp_layers_block_type");
    c.put("mtp_pattern", pattern_of(c, "mtp_layers_block_type", "mtp_hybrid_override_pattern"),
          words ? "mtp_layers_block_type" : "mtp_hybrid_override_pattern");
  } else {
    c.no_matter({"mtp_hybrid_override_pattern", "mtp_layers_block_type"}, "there are no modules");
  }
  c.no_matter({"expand"}, "mamba_num_heads and mamba_head_dim say it");
  c.no_matter({"mamba_hidden_act"}, "models of this kind have one");
  c.no_matter({"residual_in_fp32"}, "the scenario's precision says it");
  for (const char* key : {"attention_dropout", "hidden_dropout"}) c.for_scenario(key, kDropout);
  c.no_matter({"sliding_window"}, "not of this kind");
}

void mamba2(Config& c) {
  c.put("family", "llama", "model_type");
  const std::int64_t layers = c.shape("num_hidden_layers", "layers");
  const auto mixers_alone = static_cast<std::size_t>(std::clamp<std::int64_t>(layers, 0, 1 << 14));
  c.put("layer_pattern", std::string(mixers_alone, 'M'), "num_hidden_layers");
  c.shape("hidden_size", "hidden");
  c.shape("vocab_size", "vocab");
  c.put("max_seq_len", "2048", "model_type");
  c.put("position", "none", "model_type");
  c.shape_or("num_heads", "mamba_heads", 128);
  c.shape_or("head_dim", "mamba_head_dim", 64);
  c.shape_or("n_groups", "mamba_groups", 8);
  c.shape_or("state_size", "mamba_state", 128);
  mixers(c);
  c.require("use_bias", false, false, "biases of a mixer's products are not available");
  c.no_matter({"hidden_act", "rms_norm"}, "models of this kind have one");
  c.no_matter({"expand"}, "num_heads and head_dim say it");
  c.no_matter({"residual_in_fp32"}, "the scenario's precision says it");
  tied(c, false);
}

}  // namespace rehearse::plan::hf
